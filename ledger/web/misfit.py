"""Translate Pydantic's errors for senders of JSON. Pure: no Django, no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

# Pydantic names Python's types.
_WORDS = [
    (re.compile(r" after validation| or instance of \w+"), ""),
    (re.compile(r"\bdictionary\b"), "object"),
    (re.compile(r"\b(valid )?list\b(?= should|$)"), r"\1array"),
    (re.compile(r"\bstring(?= should)"), "text"),
]


_OBJECT, _ARRAY = ("is not an object", "give an object"), ("is not an array", "give an array")
_WHOLE, _NUMBER = ("is not a whole number", "give one such as 12"), ("is not a number", "give one such as 900.00")
# Problem and fix for Pydantic's most frequent errors.
_PLAIN = {
    "missing": ("is missing", "fill it in"),
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "decimal_parsing": _NUMBER,
    "decimal_type": _NUMBER,
    "string_type": ("is not text", "give text"),
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "list_type": _ARRAY,
    "extra_forbidden": ("is not known here", "remove it"),
    "greater_than": ("is not more than {gt}", "more than {gt}"),
    "greater_than_equal": ("is less than {ge}", "at least {ge}"),
    "less_than": ("is not less than {lt}", "less than {lt}"),
    "less_than_equal": ("is more than {le}", "at most {le}"),
    "string_too_long": ("is longer than {max_length} characters", "at most {max_length} characters"),
}
# An empty form field arrives as text, and Pydantic reports the expected type.
_NUMBERS = ("int_parsing", "float_parsing", "decimal_parsing")


def is_empty(error: Mapping[str, Any]) -> bool:
    """Return whether a number was expected but the input was empty; `error` must include its `input`."""
    return error["type"] in _NUMBERS and isinstance(error.get("input"), str) and not error["input"].strip()


def problem(error: Mapping[str, Any]) -> str:
    """Return the problem of one item of `ValidationError.errors()`; a type may provide it in the error's context."""
    context = error.get("ctx") or {}
    if context.get("problem") is not None:
        return str(context["problem"])
    if is_empty(error):
        return "is empty"
    if error["type"] == "string_too_long" and isinstance(error.get("input"), str):
        return f"has {len(error['input'])} characters"
    if error["type"] in _PLAIN:
        return _PLAIN[error["type"]][0].format_map(context)
    message: str = error["msg"][:1].lower() + error["msg"][1:]
    for pythons, ours in _WORDS:
        message = pythons.sub(ours, message)
    return message


def fix(error: Mapping[str, Any]) -> str:
    """Return how to fix the problem; empty if its text already says that."""
    context = error.get("ctx") or {}
    if context.get("fix") is not None:
        return str(context["fix"])
    if is_empty(error):
        return "fill it in"
    return _PLAIN.get(error["type"], ("", ""))[1].format_map(context)


def problems(error: ValidationError) -> list[tuple[str, str]]:
    """Return each problem with its path (empty for the whole), without repeating any input."""
    found = error.errors(include_url=False, include_input=False)
    return [(path(each["loc"]), problem(each)) for each in found]


def path(loc: Sequence[int | str], *, unsent: Collection[str] = ()) -> str:
    """Return the path of an error in the input: without the names in `unsent` and Pydantic's mark for a wrong key."""
    if len(loc) > 1 and loc[-1] == "[key]" and loc[-2] not in unsent:
        loc = loc[:-1]
    return ".".join(str(part) or '""' for part in loc if part not in unsent)
