"""A form from a JSON schema: fields to draw, and a document from what came back. Pure: no Django, no I/O.

The schema's author is the agent's; the form makes no rules of its own. What a person typed is handed on as they typed it (numbers as
numbers where they are such), and the agent's own validation says what is wrong with it, field by field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger import strict_json

_MAX_DEPTH = 8
# Beyond 15 digits JSON readers disagree about the number: it is handed on as typed, for the model to judge.
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_INPUTS = {"email": "email"}


@dataclass
class Field:
    """One field, or a group of them. `kind`: group, text, long, integer, decimal, choice, flag, json."""

    name: str
    label: str
    kind: str
    is_required: bool = False
    help: str = ""
    value: str = ""
    is_on: bool = False
    choices: list[str] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)
    children: list[Field] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "f-" + self.name.replace(".", "-")

    @property
    def max_length(self) -> int | None:
        return self.limits.get("maxLength")

    def walk(self) -> list[Field]:
        return [self, *(inner for child in self.children for inner in child.walk())]


def fields_of(schema: Mapping[str, Any], document: Any = None, errors: Mapping[str, list[str]] | None = None) -> list[Field]:
    """The fields of an object schema, filled from `document`. `errors` are messages by dotted field name."""
    whole = _Maker(schema).make("", schema, {} if document is None else document, is_required=True, depth=0)
    by_name = dict(errors or {})
    for one in whole.walk():
        one.errors = by_name.pop(one.name, [])
    # An error about what has no field of its own belongs to the nearest group above it.
    for name, messages in by_name.items():
        near = max((one for one in whole.walk() if one.name and name.startswith(f"{one.name}.")), key=lambda one: len(one.name), default=None)
        if near is not None:
            near.errors.extend(messages)
    return whole.children


def stray(fields: list[Field], errors: Mapping[str, list[str]]) -> list[str]:
    """Messages whose field is not on the form, to be shown above it."""
    names = {inner.name for one in fields for inner in one.walk()}
    return [
        f"{name}: {message}" if name else message
        for name, messages in errors.items()
        for message in messages
        if not any(name == known or name.startswith(f"{known}.") for known in names)
    ]


def document_of(schema: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The document that a filled form stands for. Fields left empty are left out unless the schema requires them."""
    whole = _Maker(schema).make("", schema, {}, is_required=True, depth=0)
    return _filled(whole, given)


def _filled(group: Field, given: Mapping[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for one in group.children:
        key = one.name.rpartition(".")[2]
        if one.kind == "group":
            # An optional group in which nothing was typed is one that isn't there.
            if one.is_required or any(given.get(inner.name, "").strip() for inner in one.walk()):
                document[key] = _filled(one, given)
            continue
        is_there, value = _value(one, given.get(one.name))
        if is_there:
            document[key] = value
    return document


def _value(one: Field, text: str | None) -> tuple[bool, Any]:
    """Whether the field is in the document, and as what."""
    if one.kind == "flag":
        return True, text is not None
    text = "" if text is None else text.replace("\r\n", "\n")
    if not text.strip() and not one.is_required:
        return False, None
    if one.kind in ("integer", "decimal") and _INTEGER.fullmatch(text.strip()):
        return True, int(text)
    if one.kind in ("number", "json"):
        try:
            return True, strict_json.loads(text.encode("utf-8", "replace"))
        except strict_json.MalformedJSON:
            return True, text
    return True, text


class _Maker:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions = schema.get("$defs", {})

    def make(self, name: str, schema: Mapping[str, Any], value: Any, *, is_required: bool, depth: int) -> Field:
        """One field for a schema, with `value` as its present content."""
        whole = self._resolve(schema)
        label = whole.get("title") or name.rpartition(".")[2].replace("_", " ")
        one = Field(name, label[:1].upper() + label[1:], _kind(whole), is_required, whole.get("description", ""))
        one.limits = {key: whole[key] for key in ("maxLength", "minLength", "minimum", "maximum", "pattern") if key in whole}
        if depth > _MAX_DEPTH:
            one.kind = "json"
        if one.kind == "group":
            inner = value if isinstance(value, dict) else {}
            for key, part in whole.get("properties", {}).items():
                path = f"{name}.{key}" if name else key
                given = inner.get(key, part.get("default"))
                one.children.append(
                    self.make(path, part, given, is_required=key in whole.get("required", ()), depth=depth + 1)
                )
            return one
        one.choices = [str(choice) for choice in whole.get("enum", ())] or _constants(whole)
        one.is_on = value is True
        one.value = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return one

    def _resolve(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema with references followed and "or null" taken off; what stands beside a reference wins."""
        whole = dict(schema)
        for _ in range(_MAX_DEPTH):
            if "$ref" in whole:
                target = self._definitions.get(whole.pop("$ref").rpartition("/")[2], {})
                whole = {**target, **whole}
            elif len(whole.get("allOf", ())) == 1:
                whole = {**whole.pop("allOf")[0], **whole}
            else:
                options = [option for option in whole.get("anyOf", ()) if option.get("type") != "null"]
                if len(options) != 1 or "anyOf" not in whole:
                    break
                del whole["anyOf"]
                whole = {**options[0], **whole}
        return whole


def _constants(schema: Mapping[str, Any]) -> list[str]:
    options = schema.get("anyOf") or schema.get("oneOf") or ()
    return [str(option["const"]) for option in options] if options and all("const" in option for option in options) else []


def _kind(schema: Mapping[str, Any]) -> str:
    if schema.get("enum") or _constants(schema):
        return "choice"
    types = {option.get("type") for option in schema.get("anyOf") or schema.get("oneOf") or ()} - {"null"}
    if types:
        return "decimal" if types <= {"integer", "string", "number"} and types & {"integer", "number"} else "json"
    match schema.get("type"):
        case "object":
            return "group" if schema.get("properties") else "json"
        case "string":
            return _INPUTS.get(schema.get("format", ""), "long" if schema.get("maxLength", 0) > 500 else "text")
        case "integer" | "number" as kind:
            return str(kind)
        case "boolean":
            return "flag"
        case _:
            return "json"
