"""Validation errors of an answer, field by field, worded for a form. Pure: no Django, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runs.services.answer_schema import misfits_of

if TYPE_CHECKING:
    from jsonschema import ValidationError

MAX_PROBLEMS = 20
_MAX_MESSAGE_LENGTH = 300
_KINDS = {
    "integer": "a whole number, such as 12",
    "number": "a number, such as 12.5",
    "string": "text",
    "boolean": "true or false",
    "array": 'a list, such as ["a", "b"]',
    "object": 'an object, such as {"name": "value"}',
    "null": "nothing",
}
_DECIMAL = {"integer", "number", "string"}


def misfits(schema: dict[str, Any], given: Any) -> list[dict[str, str]]:
    """Return at most twenty errors.
    Rules that only the tool's code can check are left to the node, which asks again if necessary."""
    errors = sorted(misfits_of(schema, given), key=lambda error: [str(part) for part in error.absolute_path])
    return [_misfit(error) for error in errors][:MAX_PROBLEMS]


def _misfit(error: ValidationError) -> dict[str, str]:
    error = _innermost(error)
    path = ["answer", *(str(part) for part in error.absolute_path)]
    if error.validator == "required":
        # Each missing property has an error of its own, and only the message names the property.
        path.append(next((name for name in error.validator_value if error.message.startswith(f"{name!r} ")), ""))
    problem, fix = _WORDS.get(str(error.validator), _plain)(error.validator_value, error.instance, error)
    return {"field": ".".join(path), "problem": problem, "fix": fix}


def _innermost(error: ValidationError) -> ValidationError:
    """Return the error within the option that fits the value's type, or within the only option that isn't null."""
    while error.validator in ("anyOf", "oneOf") and error.context:
        other = {inner.schema_path[0] for inner in error.context if inner.validator == "type" and not inner.path}
        options = {n: option for n, option in enumerate(error.validator_value) if option is not False}
        of_its_kind = [n for n in options if n not in other]
        real = [n for n, option in options.items() if _kinds_of(option) != ["null"]]
        meant = of_its_kind if len(of_its_kind) == 1 else real
        # A value that fits no option has an error without a path, which doesn't belong to any option.
        within = [one for one in error.context if one.schema_path and [one.schema_path[0]] == meant]
        if not within:
            break
        error = within[0]
    return error


def _kinds_of(option: Any) -> list[str]:
    kinds = option.get("type", []) if isinstance(option, dict) else []
    return [str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]


Words = Callable[[Any, Any, "ValidationError"], tuple[str, str]]


def _kind(wanted: Any, given: Any, error: ValidationError) -> tuple[str, str]:
    kinds = [_KINDS.get(str(name), str(name)) for name in (wanted if isinstance(wanted, list) else [wanted])]
    return _is_empty(
        given
    ) or f"is not {' or '.join(kind.partition(',')[0] for kind in kinds)}", f"give {' or '.join(kinds)}"


def _one_of(options: Any, given: Any, error: ValidationError) -> tuple[str, str]:
    if not all(map(_kinds_of, options)):
        return _plain(options, given, error)
    types = list(dict.fromkeys(kind for option in options for kind in _kinds_of(option)))
    if {"integer", "number"} & {*types} and {*types} - {"null"} <= _DECIMAL:
        return _kind("number", given, error)
    return _kind(types, given, error)


def _choice(choices: Any, given: Any, error: ValidationError) -> tuple[str, str]:
    named = ", ".join(str(choice) for choice in choices)
    return _is_empty(given) or "is not one of the choices", f"choose one of: {named}"[:_MAX_MESSAGE_LENGTH]


def _short(least: Any, given: Any, error: ValidationError) -> tuple[str, str]:
    if not given:
        return "is empty", "fill it in" if least == 1 else f"at least {least} characters"
    return f"too short: {len(given)} characters", f"at least {least}"


def _few(least: Any, given: Any, error: ValidationError) -> tuple[str, str]:
    return f"has {len(given)} entries" if given else "is empty", f"at least {least}"


def _is_empty(given: Any) -> str:
    return "is empty" if given is None or given == "" else ""


def _plain(value: Any, given: Any, error: ValidationError) -> tuple[str, str]:
    return error.message[:_MAX_MESSAGE_LENGTH], "see the question's schema"


_WORDS: dict[str, Words] = {
    "type": _kind,
    "anyOf": _one_of,
    "oneOf": _one_of,
    "enum": _choice,
    "const": lambda only, given, error: _choice([only], given, error),
    "required": lambda names, given, error: ("is missing", "fill it in"),
    "maximum": lambda most, given, error: (f"is more than {most}", f"at most {most}"),
    "minimum": lambda least, given, error: (f"is less than {least}", f"at least {least}"),
    "exclusiveMaximum": lambda most, given, error: (f"is not less than {most}", f"less than {most}"),
    "exclusiveMinimum": lambda least, given, error: (f"is not more than {least}", f"more than {least}"),
    "multipleOf": lambda unit, given, error: (f"is not a multiple of {unit}", f"give a multiple of {unit}"),
    "maxLength": lambda most, given, error: (f"too long: {len(given)} characters", f"at most {most}"),
    "minLength": _short,
    "pattern": lambda form, given, error: (
        _is_empty(given) or "does not have the required form",
        f"it must match {form}"[:_MAX_MESSAGE_LENGTH],
    ),
    "maxItems": lambda most, given, error: (f"has {len(given)} entries", f"at most {most}"),
    "minItems": _few,
    "uniqueItems": lambda value, given, error: ("contains duplicates", "name each once"),
    "additionalProperties": lambda value, given, error: (
        f"contains unknown names: {', '.join(sorted(given.keys() - error.schema.get('properties', {}).keys()))}"[
            :_MAX_MESSAGE_LENGTH
        ],
        "remove it",
    ),
}
