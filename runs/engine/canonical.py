"""Canonical bytes (RFC 8785) and keyed digests of user and model data.

In the canonical form, a value has the same hash however it was written. Digests of arguments are keyed, because a
plain hash of a low-entropy argument could be guessed after erasure.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

import rfc8785
from pydantic import AliasChoices, BaseModel, Secret, SecretBytes, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

M = TypeVar("M", bound=BaseModel)
Hasher = Callable[[Any], str]
MAX_VALUE = 64 * 1024 * 1024  # bytes of JSON per value in a journal
_SAFE_INTEGER = 2**53 - 1
_ANYTHING = TypeAdapter(Any)
_PLAIN = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_DIGESTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class TooLarge(ValueError):
    """A value too large for a journal. `digest` is the digest of its JSON, which the error message quotes."""

    def __init__(self, size: int, digest: str) -> None:
        super().__init__(
            f"it can't be recorded: its JSON has {size} bytes, and a value may have {MAX_VALUE}: store it"
            " elsewhere (object storage, a file) and record where"
        )
        self.digest = digest


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a value.

    Raises ValueError for values that JSON can't represent: NaN, integers beyond 2^53, lone surrogates.
    """
    try:
        return _SORTED.encode(value).encode() if _is_simple(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"it has no canonical JSON form: {error}") from error


def parsed(data: bytes) -> Any:
    """Parse canonical bytes so that they encode to the same bytes again. Raises ValueError.

    Integers beyond 2^53 - 1 become floats, because they were floats before encoding.
    """
    try:
        return json.loads(data, parse_int=_whole)
    except RecursionError as error:
        raise ValueError(f"it is not readable JSON: {error}") from error


def as_hashed(stored: Any) -> Any:
    """Return a value read from jsonb in the form that was hashed: jsonb turns large whole floats into integers.

    Raises ValueError.
    """
    return parsed(json.dumps(stored).encode())


def _whole(text: str) -> int | float:
    number = int(text)
    return number if -_SAFE_INTEGER <= number <= _SAFE_INTEGER else float(text)


def _is_simple(value: Any) -> bool:
    """Return whether sorted compact JSON equals the RFC 8785 form.

    This holds for nearly all values, and compact JSON is five times as fast.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return bool(-_SAFE_INTEGER <= value <= _SAFE_INTEGER)
    if kind is dict:
        for name, each in value.items():
            if type(name) is not str or not name.isascii() or not _is_simple(each):
                return False
        return True
    return kind is list and all(map(_is_simple, value))


def digest_of(result: Any) -> str:
    """Return the digest of a result's sorted compact JSON.

    RFC 8785 is not used here, because it would refuse 64-bit integers although the effect has already happened.
    """
    return "sha256:" + hashlib.sha256(_DIGESTED.encode(result).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return the value as plain data, exactly as the journal will return it; models use their aliases.

    Raises ValueError for values that recording would change, and for sets: their order differs between processes, so a
    repeat would send other bytes.
    """
    if isinstance(value, BaseModel):
        return as_recorded(value, type(value))[0]
    recorded = _dumped(value)
    if recorded != value and (problem := difference(value, recorded, "it")):
        raise ValueError(f"it can't be recorded: {problem}")
    return recorded


def as_recorded(value: BaseModel, model: type[M]) -> tuple[Any, M]:
    """Return a value as plain data, and the `model` parsed back from it.

    Raises ValueError like `plain`, naming the field.
    """
    recorded = _dumped(value)
    try:
        loaded = model.model_validate(recorded)
    except ValueError as error:
        raise ValueError(f"it can't be recorded, because it can't be read back: {error}") from error
    if loaded != value and (problem := difference(value, loaded, type(value).__name__)):
        raise ValueError(f"it can't be recorded: {problem}")
    return recorded, loaded


def _dumped(value: Any) -> Any:
    try:
        if isinstance(value, BaseModel):
            if _may_hold_anything(type(value)):
                _refuse_sets(value.model_dump(by_alias=True))
            value = value.model_dump(mode="json", by_alias=True)  # `to_json` would turn NaN into null, or leave it
        text = _PLAIN.encode(value)
        size = len(data := text.encode())
        if size > MAX_VALUE:
            raise TooLarge(size, "sha256:" + hashlib.sha256(data).hexdigest())
        del data  # free up to 64 MiB before parsing
        return json.loads(text)
    except TooLarge:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it can't be recorded: {error}") from error


def as_json(value: Any) -> Any:
    """Return any value as JSON for display only. Raises ValueError."""
    try:
        _refuse_sets(_ANYTHING.dump_python(value, by_alias=True))
        return _ANYTHING.dump_python(value, mode="json", by_alias=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it can't be recorded: {error}") from error


def difference(value: Any, loaded: Any, where: str) -> str:
    """Describe the first difference between a value and the value loaded back; empty if there is none.

    Tuples may become lists, and private attributes are ignored.
    """
    if isinstance(value, tuple) and isinstance(loaded, list):
        value = list(value)
    if isinstance(value, BaseModel) and isinstance(loaded, BaseModel):
        return _difference_of_models(value, loaded, where)
    if type(value) is not type(loaded):
        same = value == loaded
        return (
            "" if same else f"{where} is a {type(value).__name__} but would be read back as a {type(loaded).__name__}"
        )
    if isinstance(value, dict):
        if missing := [key for key in value if key not in loaded]:
            return f"{where} has the key {missing[0]!r}, a {type(missing[0]).__name__}, which would become a string"
        pairs = [(each, loaded[key], f"{where}.{key}") for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        pairs = [(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(value, loaded, strict=False))]
    else:
        kind: Any = type(value)
        same = kind.__eq__ is object.__eq__ or value == loaded
        return "" if same else f"{where}, a {type(value).__name__}, would be read back as a different value"
    found = next(filter(None, (difference(*each) for each in pairs)), "")
    return found or ("" if len(value) == len(loaded) else f"{where} would be read back with different entries")


def _difference_of_models(value: BaseModel, loaded: BaseModel, where: str) -> str:
    fields, declared = _fields_of(value), _fields_of(loaded)
    if lost := sorted(fields.keys() - declared.keys()):
        return (
            f"{where} is a {type(value).__name__} and would come back as a {type(loaded).__name__}, without"
            f" {', '.join(lost)}: declare {type(value).__name__}, or a union of the models that it may be"
        )
    pairs = ((each, declared[name], f"{where}.{name}") for name, each in fields.items())
    return next(filter(None, (difference(*each) for each in pairs)), "")


def _fields_of(value: BaseModel) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    return fields | (value.__pydantic_extra__ or {})


def _refuse_sets(value: Any) -> None:
    match value:
        case set() | frozenset():
            raise TypeError(f"a {type(value).__name__} has no defined order: use a list and sort it where you fill it")
        case dict():
            for each in value.values():
                _refuse_sets(each)
        case list() | tuple():
            for each in value:
                _refuse_sets(each)


@lru_cache(maxsize=1024)
def _may_hold_anything(model: type[BaseModel]) -> bool:
    """Return whether some field has a type so open that `unordered` can't know which values it will contain."""
    schemas = (schema for _, schema in schemas_in(model.__pydantic_core_schema__, ""))
    return any(s["type"] in _OPEN or getattr(s.get("cls"), "model_config", {}).get("extra") == "allow" for s in schemas)


def unordered(model: type[Any]) -> str | None:
    """Return the first field that contains a set, at any depth, as `Model.field`; None if there is none."""
    _complete(model)
    schema = getattr(model, "__pydantic_core_schema__", {})
    return next((where for where, part in schemas_in(schema, model.__name__) if part["type"] in _UNORDERED), None)


def _complete(model: type[Any]) -> bool:
    """Rebuild a model whose annotations name classes defined after it. Return whether it is complete."""
    if getattr(model, "__pydantic_complete__", True) is False:
        model.model_rebuild(raise_errors=False)
    return bool(getattr(model, "__pydantic_complete__", True))


# These are pydantic-core's type names. A set in a model has one of these names, whatever its annotation is: Set,
# AbstractSet, frozenset.
_UNORDERED = frozenset({"set", "frozenset"})
_OPEN = frozenset({"any", "set", "frozenset", "is-instance", "custom-error", "function-plain", "generator"})
# These parts of a schema contain the author's values and functions instead of types.
_NO_TYPES = frozenset({"metadata", "config", "default", "expected", "members", "serialization"})


def unstable(model: Any) -> str:
    """Return why a recorded value of this model might be read back differently; empty if it never is."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return f"{model!r} is not a Pydantic model: declare one, such as `class Answer(BaseModel): text: str`"
    return _problem_in(model, _complete(model))


@lru_cache(maxsize=1024)
def _problem_in(model: type[BaseModel], is_complete: bool) -> str:
    """Return the problem that `unstable` reports.

    The result is cached, because every visit checks the models of its calls; a model that is completed later is
    checked again.
    """
    if (where := unordered(model)) is not None:
        return (
            f"{where} contains a set, whose order differs between processes, so that a repeat would not be the same "
            "call: use a tuple, or a list that you sort where you fill it"
        )
    return next(_lossy_fields(model), "")


def _lossy_fields(model: type[BaseModel]) -> Iterator[str]:
    """Yield the problem and fix of each field, at any depth, whose values would be lost when recorded."""
    for _, part in schemas_in(model.__pydantic_core_schema__, model.__name__):
        if part["type"] in ("model", "dataclass"):
            kind = part["cls"]
            for name, field in getattr(kind, "__pydantic_fields__", {}).items():
                if problem := _problem_of(kind, name, field):
                    yield f"{kind.__name__}.{name} {problem}"


def _problem_of(kind: type[Any], name: str, field: FieldInfo) -> str:
    if field.exclude:
        if kind.__pydantic_decorators__.computed_fields.keys() & set(_names_read(kind, name, field)):
            return ""  # a computed field records the value under the name that is read, as in Pydantic AI's file types
        return "is excluded from what is recorded, so it would come back as its default: leave out `exclude=True`"
    stored = field.serialization_alias or name
    if stored not in (accepted := _names_read(kind, name, field)):
        return (
            f"is recorded as {stored!r} and read as {' or '.join(map(repr, accepted))}, so its value would be lost:"
            " give it one `alias`, or a `validation_alias` that also accepts that name"
        )
    decorators = kind.__pydantic_decorators__
    is_own = bool(decorators.model_serializers) or any(
        name in each.info.fields or "*" in each.info.fields for each in decorators.field_serializers.values()
    )
    if not is_own and _holds_secret(field.annotation):
        return (
            "is a secret, of which only asterisks would be recorded: pass the secret's location as text and read it in "
            "the tool, or give the field a `field_serializer` for JSON, which records its value"
        )
    return ""


def _names_read(kind: type[Any], name: str, field: FieldInfo) -> list[str]:
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    alias = field.validation_alias
    if alias is None or config.get("validate_by_alias") is False:
        return [name]
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    paths = [[each] if isinstance(each, str) else each.path for each in choices]
    by_name = [name] if config.get("populate_by_name") or config.get("validate_by_name") else []
    return [str(path[0]) for path in paths if len(path) == 1] + by_name


def _holds_secret(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, (SecretStr, SecretBytes, Secret)):
        return True
    return any(_holds_secret(each) for each in get_args(annotation))


def schemas_in(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema within a model's pydantic schema, with the model and field that contain it."""
    if isinstance(schema, (list, tuple)):
        for each in schema:
            yield from schemas_in(each, where)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("type"), str):
        yield where, schema
        if schema["type"] in ("model", "dataclass"):
            where = schema["cls"].__name__
    for name, part in schema.items():
        if name in ("fields", "computed_fields") and isinstance(part, dict):
            for field, each in part.items():
                yield from schemas_in(each, f"{where}.{field}")
        elif name in ("fields", "computed_fields"):
            for each in (
                each for each in part if isinstance(each, dict)
            ):  # a dataclass schema lists field names as well
                yield from schemas_in(each, f"{where}.{each.get('name') or each.get('property_name')}")
        elif name not in _NO_TYPES:
            yield from schemas_in(part, where)


def has_at_most(value: Any, characters: int) -> bool:
    """Return whether the JSON of plain data has at most this many characters.

    Values that are obviously much shorter, such as most arguments, are not encoded.
    """
    if type(value) is dict and len(value) <= 64:
        for name, each in value.items():
            is_small = len(each) < 1000 if type(each) is str else isinstance(each, (int, float, NoneType))
            if not is_small or len(name) >= 1000:
                break
        else:
            return True
    return len(value if isinstance(value, str) else _PLAIN.encode(value)) <= characters


def on_one_line(text: str) -> str:
    """Escape line breaks and invisible characters for a log line."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable(value: Any) -> Any:
    """Escape NUL and lone surrogates at any depth, so that any database column can hold the value."""
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
    """Return a function from a JSON value to the `hmac-sha256` of its canonical bytes, as 64 hex digits."""
    keyed = hmac.new(key, digestmod="sha256")

    def digest(value: Any) -> str:
        mac = keyed.copy()  # takes a third of the time of `hmac.digest`
        mac.update(canonical(value))
        return mac.hexdigest()

    return digest


def idempotency_key(run_id: str, slot: str, attempt: int, secret: bytes | None) -> str:
    """Return the idempotency key of one attempt.

    It depends only on these arguments, so it never changes, and it can't be guessed without the secret. `secret` is
    None for runs created before secrets existed.
    """
    call = f"{run_id}|{slot}|{attempt}".encode()
    if secret is None:
        digest = hashlib.sha256(call).digest()
    else:
        digest = hmac.digest(secret, b"idempotency key\x00" + call, "sha256")
    return f"da-{digest.hex()[:40]}"


def callback_token(run_id: str, slot: str, attempt: int, secret: bytes) -> str:
    """Return the token with which the upstream system answers an attempt later.

    The token is derived instead of stored: see `idempotency_key`.
    """
    return hmac.digest(secret, f"callback token\x00{run_id}|{slot}|{attempt}".encode(), "sha256").hex()


def token_digest(token: str) -> bytes:
    """Return the digest by which the wait for a callback is found."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
