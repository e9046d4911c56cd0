"""Secrets by reference.

A tool declares which secrets it uses, and gets their values only during its calls. Records, logs and pages contain only
`secret://name`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ledger.scrubbing import scrubbed as scrubbed
from runs.engine.canonical import schemas_in
from runs.engine.errors import DefinitionError, NotBegun

if TYPE_CHECKING:
    from runs.engine.tools import Tool, ToolCall

SCHEME = "secret://"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WANTED = "small letters, digits, and . _ - within, at most 64"


class Secret(str):
    """A reference to a secret: the text `secret://name`, made from its `name`.

    As a field of a tool's input, it lets the caller choose the secret: `call.secret(args.token)` returns its value.
    Raises ValueError for an invalid name.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        bare = name.removeprefix(SCHEME)
        if not _NAME.fullmatch(bare):
            raise ValueError(
                f"this is not the name of a secret ({_WANTED})"
            )  # not quoted, because it may be a secret value
        return super().__new__(cls, SCHEME + bare)

    @property
    def name(self) -> str:
        """The secret's name, without `secret://`."""
        return self.removeprefix(SCHEME)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_referred, core_schema.str_schema())


def _referred(text: str) -> Secret:
    if not text.startswith(SCHEME):
        raise ValueError(f"a secret is given by reference, as {SCHEME}name")
    return Secret(text)


class SecretUnavailable(NotBegun):
    """A secret is not available now, so the call was not sent.

    The message names the secret and its source, but no value.
    """


class SecretStore(Protocol):
    """A source of the values of secrets."""

    async def values(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the values of these secrets by name. Raises SecretUnavailable."""


class NoSecrets:
    """The store of an installation without secrets."""

    async def values(self, names: Collection[str]) -> Mapping[str, str]:
        """Raise SecretUnavailable, because there are no secrets."""
        raise SecretUnavailable(f"{SCHEME}{min(names)}: durableagents.contrib.secrets is not installed: add the app")


def names_of(owner: str, given: object) -> tuple[str, ...]:
    """Return the names of secrets that a tool declares. Raises DefinitionError."""
    problem = f'{owner}: secrets={given!r}: give a list of names, such as ["bank-api-token"]'
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DefinitionError(problem)
    try:
        return tuple(dict.fromkeys(Secret(each).name for each in given))
    except (ValueError, AttributeError) as error:
        raise DefinitionError(f"{problem} ({error})") from None


def takes_secrets(model: type[BaseModel]) -> bool:
    """Return whether a field of the model, at any depth, is a `Secret`."""
    schema = getattr(model, "__pydantic_core_schema__", {})
    parts = (part.get("function") for _, part in schemas_in(schema, model.__name__))
    return any(isinstance(each, dict) and each.get("function") is _referred for each in parts)


async def with_secrets(store: SecretStore, tool: Tool, args: object, call: ToolCall) -> ToolCall:
    """Return the call with the values of the secrets that its tool declares or its `args` name.

    Raises SecretUnavailable.
    """
    names = {*tool.secrets, *(each.name for each in _named_in(args))}
    return replace(call, secrets=await store.values(names)) if names else call


def _named_in(value: Any) -> Iterator[Secret]:
    match value:
        case Secret():
            yield value
        case BaseModel():
            for name in type(value).model_fields:
                yield from _named_in(getattr(value, name))
            for each in (value.__pydantic_extra__ or {}).values():
                yield from _named_in(each)
        case dict():
            for name, each in value.items():
                yield from _named_in(name)
                yield from _named_in(each)
        case list() | tuple():
            for each in value:
                yield from _named_in(each)
