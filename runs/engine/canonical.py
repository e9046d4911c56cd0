"""Canonical bytes and keyed digests of what people and models supply.

User-supplied JSON is put into RFC 8785's form before hashing, so that key order and number spelling can't make two
hashes of one value. Digests of arguments are keyed: a plain hash of a low-entropy argument could be guessed after its
content was erased.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import rfc8785
from pydantic import BaseModel

Hasher = Callable[[Any], str]
MOST_BYTES = 16 * 1024 * 1024  # of one value in a journal
_SAFE_INTEGER = 2**53 - 1
_PLAIN = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_DIGESTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class TooLarge(ValueError):
    """A value that no journal takes. `digest` is of its JSON, for whoever has to say where it is kept."""

    def __init__(self, size: int, digest: str) -> None:
        super().__init__(f"it can't be put on record: {size} bytes are too many: keep them elsewhere and give where")
        self.digest = digest


def canonical(value: Any) -> bytes:
    """RFC 8785 bytes. Raises ValueError for what JSON can't carry: NaN, integers beyond 2^53, lone surrogates."""
    try:
        return _SORTED.encode(value).encode() if _is_simple(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"no canonical JSON form: {error}") from error


def parsed(data: bytes) -> Any:
    """The value of canonical bytes, whose canonical bytes are the same again. RFC 8785 writes a float that is whole
    without its point, up to 10^21, and no integer beyond 2^53 - 1 at all: what is longer than that was a float. Raises
    ValueError."""
    try:
        return json.loads(data, parse_int=_whole)
    except RecursionError as error:
        raise ValueError(f"no JSON that can be read: {error}") from error


def as_hashed(stored: Any) -> Any:
    """What jsonb gives back, as it was when it was hashed: of a float that is whole, however large, it makes an
    integer. Raises ValueError for what is nested too deep."""
    return parsed(json.dumps(stored).encode())


def _whole(text: str) -> int | float:
    number = int(text)
    return number if -_SAFE_INTEGER <= number <= _SAFE_INTEGER else float(text)


def _is_simple(value: Any) -> bool:
    """Whether sorted compact JSON is RFC 8785's form of it: no floats, no integer out of range, keys that sort the same
    in both.

    True for nearly all arguments, and five times as fast. Exact types only: what a subclass makes of itself is its own
    business.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return bool(-_SAFE_INTEGER <= value <= _SAFE_INTEGER)
    if kind is dict:
        return all(type(name) is str and name.isascii() and _is_simple(each) for name, each in value.items())
    return kind is list and all(map(_is_simple, value))


def digest_of(result: Any) -> str:
    """Of sorted compact JSON: RFC 8785's form would refuse a 64-bit id, after the effect."""
    return "sha256:" + hashlib.sha256(_DIGESTED.encode(result).encode()).hexdigest()


def plain(value: Any) -> Any:
    """The value as the journal will give it back; a model by its aliases, so that it validates into itself again.

    Raises ValueError for what can't be put on record as JSON, and for a set: its order is another one in each process,
    so a repeat would send other bytes than those on record.
    """
    try:
        if isinstance(value, BaseModel):
            if _may_hold_anything(type(value)):
                _refuse_sets(value.model_dump(by_alias=True))
            value = value.model_dump(mode="json", by_alias=True)
        text = _PLAIN.encode(value)
        size = len(text.encode())
        if size > MOST_BYTES:
            raise TooLarge(size, "sha256:" + hashlib.sha256(text.encode()).hexdigest())
        return json.loads(text)
    except TooLarge:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it can't be put on record: {error}") from error


def _refuse_sets(value: Any) -> None:
    match value:
        case set() | frozenset():
            raise TypeError(f"a {type(value).__name__} has no order of its own: use a list, sorted where you fill it")
        case dict():
            for each in value.values():
                _refuse_sets(each)
        case list() | tuple():
            for each in value:
                _refuse_sets(each)


@lru_cache(maxsize=1024)
def _may_hold_anything(model: type[BaseModel]) -> bool:
    """Whether a field says too little for `unordered` to have seen what will be in it."""
    schemas = (schema for _, schema in _schemas(model.__pydantic_core_schema__, ""))
    return any(s["type"] in _OPEN or getattr(s.get("cls"), "model_config", {}).get("extra") == "allow" for s in schemas)


def unordered(model: type[Any]) -> str | None:
    """The first field, however deep, whose type has no order of its own, as `Model.field`; None if there is none."""
    if getattr(model, "__pydantic_complete__", True) is False:
        model.model_rebuild(raise_errors=False)  # its annotations name what was defined after it
    schema = getattr(model, "__pydantic_core_schema__", {})
    return next((where for where, part in _schemas(schema, model.__name__) if part["type"] in _UNORDERED), None)


# As pydantic-core names them. A `set` in a model is one of these whatever it was annotated as: Set, AbstractSet,
# frozenset.
_UNORDERED = frozenset({"set", "frozenset"})
_OPEN = frozenset({"any", "set", "frozenset", "is-instance", "custom-error", "function-plain", "generator"})
# Parts of a schema that hold values and functions of the author's, not types.
_NO_TYPES = frozenset({"metadata", "config", "default", "expected", "members", "serialization"})


def unstable(model: Any) -> str:
    """Why what is on record of this would not read the same in every process; empty for a model that does."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return f"{model!r} is not a Pydantic model: declare one, such as `class Answer(BaseModel): text: str`"
    where = unordered(model)
    return (
        ""
        if where is None
        else (
            f"{where} holds a set, whose order is another one in each process, "
            "so that a repeat would not be the same call: use a list (sorted where you fill it) or a tuple"
        )
    )


def _schemas(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within pydantic's own schema of a model, with the model and the field that it is found in."""
    if isinstance(schema, (list, tuple)):
        for each in schema:
            yield from _schemas(each, where)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("type"), str):
        yield where, schema
        if schema["type"] in ("model", "dataclass"):
            where = schema["cls"].__name__
    for name, part in schema.items():
        if name in ("fields", "computed_fields") and isinstance(part, dict):
            for field, each in part.items():
                yield from _schemas(each, f"{where}.{field}")
        elif name in ("fields", "computed_fields"):
            for each in (each for each in part if isinstance(each, dict)):  # a dataclass also lists their bare names
                yield from _schemas(each, f"{where}.{each.get('name') or each.get('property_name')}")
        elif name not in _NO_TYPES:
            yield from _schemas(part, where)


def on_one_line(text: str) -> str:
    """Words of others as a log may hold them: what ends a line, or can't be seen, by its name."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable(value: Any) -> Any:
    """Words of others, such as an error's, as every column can hold them: without NUL and half surrogate pairs. Any
    depth."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
        case list() | tuple():
            return [printable(each) for each in value]
        case dict():
            return {printable(name): printable(each) for name, each in value.items()}
        case _:
            return value


def keyed_hasher(key: bytes) -> Hasher:
    """A function from a JSON value to `hmac-sha256` of its canonical bytes, as 64 hex digits."""

    def digest(value: Any) -> str:
        return hmac.digest(key, canonical(value), "sha256").hex()

    return digest


def idempotency_key(run_id: str, slot: str, attempt: int) -> str:
    """The key of one attempt at a logical call: a function of run, slot and attempt alone, so that it is the same for
    ever, and another one when people have decided to make the call anew."""
    digest = hashlib.sha256(f"{run_id}|{slot}|{attempt}".encode()).hexdigest()
    return f"da-{digest[:40]}"
