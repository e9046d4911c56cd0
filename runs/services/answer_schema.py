"""JSON Schema validation in linear time.
Patterns use Pydantic's regex engine instead of `re`, which patterns like `^(a+)+$` could block. Patterns with
lookaround, which that engine can't parse, are left to the tool's own code. Pure: no Django, no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

if TYPE_CHECKING:
    from jsonschema import ValidationError as Misfit

Rule = Callable[[Any, Any, Any, Any], "Iterator[Misfit]"]


def misfits_of(schema: dict[str, Any], given: Any) -> Iterator[Misfit]:
    """Yield every validation error."""
    yield from _validator()(schema).iter_errors(given)


def matches(pattern: str, text: str) -> bool | None:
    """Return whether the pattern is found in the text; None if the engine can't parse the pattern."""
    known = _compiled(pattern)
    if known is None:
        return None
    try:
        known.validate_python(text)
    except (ValidationError, UnicodeError):
        return False
    return True


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except (SchemaError, TypeError, UnicodeError):
        return None


@lru_cache(maxsize=1)
def _validator() -> Any:
    from jsonschema import Draft202012Validator, validators

    rules: dict[str, Rule] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional,
        "unevaluatedProperties": _unevaluated,
        "uniqueItems": _unique,
    }
    return validators.extend(Draft202012Validator, rules)


def _pattern(validator: Any, pattern: Any, given: Any, schema: Any) -> Iterator[Misfit]:
    if validator.is_type(given, "string") and matches(pattern, given) is False:
        yield _misfit(f"{given!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, given: Any, schema: Any) -> Iterator[Misfit]:
    if not validator.is_type(given, "object"):
        return
    for pattern, inner in patterns.items():
        for name, value in given.items():
            if matches(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional(validator: Any, allowed: Any, given: Any, schema: Any) -> Iterator[Misfit]:
    if not validator.is_type(given, "object"):
        return
    patterns = schema.get("patternProperties", {})
    names = [
        name
        for name in given
        if name not in schema.get("properties", {}) and all(matches(each, name) is False for each in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in names:
            yield from validator.descend(given[name], allowed, path=name)
    elif not allowed and names:
        yield _misfit(f"Additional properties are not allowed ({', '.join(map(repr, names))})")


def _unevaluated(validator: Any, allowed: Any, given: Any, schema: Any) -> Iterator[Misfit]:
    """Apply `jsonschema`'s own rule, unless that would evaluate patterns."""
    from jsonschema import Draft202012Validator

    if not any(word in json.dumps(schema) for word in ('"patternProperties"', '"$ref"', '"$dynamicRef"')):
        yield from Draft202012Validator.VALIDATORS["unevaluatedProperties"](validator, allowed, given, schema)


def _unique(validator: Any, is_wanted: Any, given: Any, schema: Any) -> Iterator[Misfit]:
    if is_wanted and validator.is_type(given, "array"):
        seen = {json.dumps(_as_number(each), sort_keys=True) for each in given}
        if len(seen) < len(given):
            yield _misfit("has duplicate elements")


def _as_number(value: Any) -> Any:
    """Return integral floats as integers, so that 1.0 equals 1. Unlike in Python, true doesn't equal 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _misfit(message: str) -> Misfit:
    from jsonschema import ValidationError as Misfit

    return Misfit(message)
