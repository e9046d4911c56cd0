"""Field types for input from people and upstream systems. An error names the problem and the fix.

The messages appear unchanged in forms and in the API's problem details, so they say what is wrong with
the value and what would be valid. Every accepted value can be stored by PostgreSQL (no NUL, no
lone surrogate), put in a mail header (no line breaks outside `MultiLine`) and counted as money
(Decimal, never float).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from .countries import COUNTRIES

_AMOUNT = re.compile(r"(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,2})?")
_MAX_USD = Decimal("999999999.99")
_EMAIL_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_EMAIL_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_COUNTRY = re.compile(r"[A-Z]{2}")
_TAX_ID = re.compile(r"[A-Za-z0-9-]{4,20}")
_MAX_EMAIL_LENGTH = 254
_KINDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def _refuse(code: str, problem: str, fix: str) -> PydanticCustomError:
    # The text goes in as context: a brace in it must not be taken for a placeholder.
    return PydanticCustomError(code, "{problem}; {fix}", {"problem": problem, "fix": fix})


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


def _a_string(value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse("not_text", f"is {_kind(value)}, not text", "send a string")
    return value


def _storable(value: Any, *, longest: int, allowed: str = "") -> str:
    """Return the text without surrounding blanks. Refuse characters that a database, header or page can't hold."""
    text = _a_string(value)
    if "\n" in allowed:
        text = text.replace("\r\n", "\n")  # how a browser sends a line break
    if len(text) > longest:
        problem = f"has {len(text)} characters"
        raise _refuse("too_long", problem, f"use at most {longest}")
    for character in text:
        category = unicodedata.category(character)
        if category == "Cs":
            raise _refuse(
                "not_unicode",
                "has half a character (lone surrogate)",
                "send whole Unicode characters",
            )
        if category in ("Cc", "Zl", "Zp") and character not in allowed:
            problem = f"has the control character U+{ord(character):04X}"
            raise _refuse("control_character", problem, "take it out")
    stripped = text.strip()
    if all(unicodedata.category(character) == "Cf" for character in stripped):
        raise _refuse("blank", "is empty", "fill it in")
    return stripped


def _email(value: Any) -> str:
    text = _a_string(value)
    if len(text) > _MAX_EMAIL_LENGTH:
        raise _refuse("too_long", f"has {len(text)} characters", f"use at most {_MAX_EMAIL_LENGTH}")
    local, at, domain = text.rpartition("@")
    labels = domain.split(".")
    is_address = (
        at
        and len(local) <= 64
        and _EMAIL_LOCAL.fullmatch(local)
        and len(labels) >= 2
        and all(_EMAIL_LABEL.fullmatch(label) for label in labels)
        and not labels[-1].isdigit()
    )
    if not is_address:
        raise _refuse("not_an_email", "is not an e-mail address", "write it like name@company.example")
    return text


def _country(value: Any) -> str:
    text = _a_string(value)
    if text in COUNTRIES:
        return text
    if len(text) == 2 and text.upper() in COUNTRIES:
        raise _refuse("not_a_country", "is in small letters", f"write {text.upper()}")
    if _COUNTRY.fullmatch(text):
        problem = f"{text} is not a country code in ISO 3166"
    else:
        problem = "is not a country code"
    raise _refuse("not_a_country", problem, "give the two letters of ISO 3166, like DE")


def _tax_id(value: Any) -> str:
    text = _a_string(value)
    if not _TAX_ID.fullmatch(text):
        problem = "is not 4 to 20 letters, digits and hyphens"
        raise _refuse("not_a_tax_id", problem, "leave out blanks and other signs")
    return text


def _amount(value: Any) -> Decimal:
    """Return an amount in dollars. Floats are refused, because they don't keep the digits that were written."""
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        problem = f"is {'a floating-point number' if isinstance(value, float) else _kind(value)}"
        raise _refuse("not_an_amount", problem, 'send an integer or a string like "84000.00"')
    # Comparing first spares str() an integer beyond Python's limit on digits.
    if isinstance(value, int) and abs(value) > _MAX_USD:
        written = "-" if value < 0 else "too much"
    else:
        written = format(value, "f") if isinstance(value, Decimal) else str(value)
    if written.startswith("-"):
        raise _refuse("not_positive", "is below zero", "give an amount above zero")
    if written == "too much" or re.fullmatch(r"[1-9][0-9]{9,}(\.[0-9]{0,2})?", written, re.ASCII):
        raise _refuse("too_much", "is too large", f"give at most {_MAX_USD:,}")
    if not _AMOUNT.fullmatch(written):
        problem = "is not an amount in dollars"
        raise _refuse("not_an_amount", problem, 'use digits with at most two places, like "84000.00"')
    amount = Decimal(written).quantize(Decimal("0.01"))
    if amount == 0:
        raise _refuse("not_positive", "is zero", "give an amount above zero")
    return amount


@dataclass(frozen=True)
class _Checked:
    """Pydantic metadata: `check` validates a value, and `schema` is its JSON schema for forms and API documents."""

    check: Callable[[Any], Any]
    schema: tuple[tuple[str, Any], ...]
    write: Callable[[Any], str] | None = None

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written: core_schema.SerSchema = core_schema.to_string_ser_schema()
        if self.write is not None:
            written = core_schema.plain_serializer_function_ser_schema(self.write, when_used="json")
        return core_schema.no_info_plain_validator_function(self.check, serialization=written)

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(self.schema)


def _text(longest: int, allowed: str = "") -> _Checked:
    schema = (("type", "string"), ("minLength", 1), ("maxLength", longest))
    return _Checked(lambda value: _storable(value, longest=longest, allowed=allowed), schema)


_AMOUNT_TEXT = {"type": "string", "pattern": f"^{_AMOUNT.pattern}$"}
_AMOUNT_INTEGER = {"type": "integer", "exclusiveMinimum": 0, "maximum": int(_MAX_USD)}

Line = Annotated[str, _text(200)]
ShortLine = Annotated[str, _text(60)]
MultiLine = Annotated[str, _text(2000, allowed="\n\t")]
Email = Annotated[str, _Checked(_email, (("type", "string"), ("format", "email"), ("maxLength", _MAX_EMAIL_LENGTH)))]
Country = Annotated[
    str,
    _Checked(_country, (("type", "string"), ("enum", [*COUNTRIES]), ("enumNames", [*COUNTRIES.values()]))),
]
TaxId = Annotated[str, _Checked(_tax_id, (("type", "string"), ("pattern", f"^{_TAX_ID.pattern}$")))]
Usd = Annotated[
    Decimal,
    _Checked(
        _amount,
        (("anyOf", [_AMOUNT_TEXT, _AMOUNT_INTEGER]),),
        write=lambda value: f"{value:.2f}",
    ),
]
