"""Validate input, with one rule for API bodies and console forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from ledger.append import MAX_JUSTIFICATION
from ledger.codes import plain_zero
from ledger.errors import InvalidInput
from ledger.web import misfit, strict_json

Body = TypeVar("Body", bound=BaseModel)


def _no_flag(given: Any) -> Any:
    """Refuse booleans where numbers are expected, including where numbers may be given as text."""
    if isinstance(given, bool):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return given


NoFlag = BeforeValidator(_no_flag)
PlainZero = AfterValidator(plain_zero)


class Strict(BaseModel):
    """Base of request bodies: no unknown names, no conversions between types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NoBody(Strict):
    """An empty body."""


Justification = Annotated[str, Field(max_length=MAX_JUSTIFICATION, description="Reason for the act, recorded with it.")]


def _require_justification(schema: dict[str, Any]) -> None:
    del schema["properties"]["justification"]["default"]
    schema["required"] = [*schema.get("required", []), "justification"]


class Justified(Strict):
    """Base of bodies that must give a justification.

    The service checks it, so that every interface gives the same error.
    """

    model_config = ConfigDict(json_schema_extra=_require_justification)

    justification: Justification = ""


def fit(shape: type[Body], data: dict[str, Any], what: str = "body") -> Body:
    """Return the data as `shape`. Raises InvalidInput naming every wrong field."""
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        raise does_not_fit([_explain(item, shape) for item in error.errors(include_url=False)], what) from None


def does_not_fit(errors: list[dict[str, str]], what: str = "body") -> InvalidInput:
    fields = ", ".join(dict.fromkeys(item["field"] for item in errors if item["field"]))
    if not fields:
        return InvalidInput(f"The {what} is not valid: see errors.", errors=errors)
    is_incomplete = all(item["problem"] in ("is missing", "is empty") for item in errors)
    return InvalidInput(f"{'Fill in' if is_incomplete else 'Check these fields'}: {fields}.", errors=errors)


def unstorable(data: Any, *, has_to_be_exact: bool = True) -> list[dict[str, str]]:
    """Return errors for the first twenty names and values that can't be stored.

    Such a name or value contains NUL or, with `has_to_be_exact`, is an integer outside ±(2^53 - 1).
    """
    errors: list[dict[str, str]] = []
    for path, leaf in strict_json.walk(data):
        if len(errors) == 20:
            break
        if not isinstance(leaf, (str, int)):
            continue
        field = ".".join(str(part) for part in path).replace("\x00", "\\u0000")[:200]
        if isinstance(leaf, str) and "\x00" in leaf:
            errors.append({"field": field, "problem": "contains a NUL character", "fix": "remove it"})
        elif has_to_be_exact and isinstance(leaf, int) and abs(leaf) > strict_json.MAX_EXACT_INTEGER:
            errors.append(
                {
                    "field": field,
                    "problem": "is an integer outside ±(2^53 - 1), which many JSON readers would round",
                    "fix": "send it as a string",
                }
            )
    return errors


# Names of a union's alternatives in the shape of a body. They are not in the input, and are removed from error paths.
ARRAY, OBJECT = "<array>", "<object>"

_FIXES = {
    "tags_type": "send an array or an object",
    "string_too_short": "lengthen it",
    "moment_type": "send a time with its zone, such as 2026-11-22T09:00:00Z",
    "datetime_from_date_parsing": "send a time with its zone, such as 2026-11-22T09:00:00Z",
    "datetime_parsing": "send a time with its zone, such as 2026-11-22T09:00:00Z",
    "timezone_aware": "add the time zone, such as 2026-11-22T09:00:00Z",
    "uuid_parsing": "send a UUID",
    "uuid_type": "send a UUID",
    "too_long": "send fewer",
}


def _explain(item: Any, shape: type[BaseModel]) -> dict[str, str]:
    context = item.get("ctx", {})
    fix = misfit.fix(item) or _FIXES.get(item["type"], "")
    if item["type"] == "extra_forbidden":
        fix += f"; known names: {', '.join(_at(shape, item['loc'][:-1]).model_fields)}"
    elif item["type"] == "literal_error":
        fix = f"send {context['expected']}"
    return {
        "field": misfit.path(item["loc"], unsent=(ARRAY, OBJECT))[:200],
        "problem": misfit.problem(item),
        "fix": fix,
    }


def _at(shape: type[BaseModel], loc: Sequence[int | str]) -> type[BaseModel]:
    """Return the shape at a location, or the nearest enclosing one."""
    for name in loc:
        field = shape.model_fields.get(str(name))
        forms = (field.annotation, *get_args(field.annotation)) if field else ()
        shape = next((form for form in forms if isinstance(form, type) and issubclass(form, BaseModel)), shape)
    return shape
