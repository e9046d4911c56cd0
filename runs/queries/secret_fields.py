"""Finds the secret fields of models.
It examines annotations as well as schemas, because a model may have no schema."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic.errors import PydanticInvalidForJsonSchema

from runs.engine.agents import Agent

_DEEPEST = 12
KEYS_SUFFIX = " (its keys)"
_SECRETS = (SecretStr, SecretBytes, Secret)


def secret_paths(model: type[BaseModel] | None) -> list[str]:
    """Return paths such as `login.pin`, `passwords[].value` (lists and mappings) and `accounts (its keys)`."""
    if model is None:
        return []
    found = [path for mode in ("validation", "serialization") for path in _in_schema(_schema(model, mode))]
    return list(dict.fromkeys([*found, *_in_annotation(model, "", ())]))


def models_of(agent: Agent) -> list[tuple[str, type[BaseModel] | None]]:
    """Return all models of an agent's recorded data, each with the place where it is used."""
    models: list[tuple[str, type[BaseModel] | None]] = [
        ("input", agent.input),
        ("state", agent.state),
        ("output", agent.output),
    ]
    for tool in agent.all_tools():
        models += [(f"{tool.name} input", tool.input), (f"{tool.name} output", tool.output)]
    models += [(f"{assistant.name} answer", assistant.output) for assistant in agent.assistants]
    for message in agent.messages.values():
        models += [(f"{message.name} request", message.takes), (f"{message.name} answer", message.answers)]
    return models


# --- by the schema ----------------------------------------------------------------------------------------------------


def _schema(model: type[BaseModel], mode: Any) -> Mapping[str, Any]:
    try:
        return model.model_json_schema(mode=mode)
    except PydanticInvalidForJsonSchema:
        return {}


def _in_schema(schema: Mapping[str, Any]) -> Iterator[str]:
    definitions = schema.get("$defs", {})

    def walk(each: Any, path: str, seen: tuple[str, ...]) -> Iterator[str]:
        if not isinstance(each, Mapping) or len(seen) > _DEEPEST:
            return
        if each.get("format") == "password" or each.get("writeOnly") is True:
            yield path
            return
        reference = str(each.get("$ref", "")).rpartition("/")[2]
        if reference and reference not in seen:
            yield from walk(definitions.get(reference), path, (*seen, reference))
        for name, field in each.get("properties", {}).items():
            yield from walk(field, _below(path, name), seen)
        for part in ("anyOf", "allOf", "oneOf", "prefixItems"):
            for other in each.get(part, ()):
                yield from walk(other, path, seen)
        for part in ("items", "additionalProperties"):
            yield from walk(each.get(part), f"{path}[]", seen)
        for pattern in each.get("patternProperties", {}).values():
            yield from walk(pattern, f"{path}[]", seen)
        if any(True for _ in walk(each.get("propertyNames"), path, seen)):
            yield f"{path}{KEYS_SUFFIX}"

    yield from walk(schema, "", ())


# --- by the annotations -----------------------------------------------------------------------------------------------


def _in_annotation(kind: Any, path: str, seen: tuple[Any, ...]) -> Iterator[str]:
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, _SECRETS):
        yield path
        return
    if kind in seen or len(seen) > _DEEPEST:
        return
    if (alias := getattr(kind, "__value__", None)) is not None:  # an alias: type Name = …
        yield from _in_annotation(alias, path, (*seen, kind))
    elif (fields := _fields(kind)) is not None:
        for names, each in fields:
            for name in names:
                yield from _in_annotation(each, _below(path, name), (*seen, kind))
    else:
        yield from _in_arguments(origin, get_args(kind), path, seen)


def _in_arguments(origin: Any, arguments: Collection[Any], path: str, seen: tuple[Any, ...]) -> Iterator[str]:
    is_itself = origin in (Union, types.UnionType, Annotated)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2
    holds = is_mapping or (isinstance(origin, type) and origin is not tuple and not is_itself) or ... in arguments
    for n, each in enumerate(list(arguments)[:1] if origin is Annotated else arguments):
        if is_mapping and n == 0:
            if any(True for _ in _in_annotation(each, path, seen)):
                yield f"{path}{KEYS_SUFFIX}"
        else:
            yield from _in_annotation(each, f"{path}[]" if holds else path, seen)


def _fields(kind: Any) -> list[tuple[list[str], Any]] | None:
    """Return a class's fields with their possible recorded names; None for a class without fields."""
    origin = get_origin(kind) or kind
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [(_names(name, field), field.annotation) for name, field in kind.model_fields.items()]
    if dataclasses.is_dataclass(origin) or hasattr(origin, "__total__") or hasattr(origin, "_fields"):
        try:
            return [([name], each) for name, each in get_type_hints(origin).items()]
        except NameError:  # can't be resolved here, but is in Pydantic's schema
            return None
    return None


def _names(name: str, field: Any) -> list[str]:
    return list(dict.fromkeys(each for each in (field.serialization_alias, field.alias, name) if each))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
