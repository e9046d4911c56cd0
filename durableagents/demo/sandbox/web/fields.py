"""Parse what a client sent: JSON that is safe to store and to show, and a type for each kind of field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, ValidationError

from .wire import malformed, wrong

DEEPEST = 32

_SURROGATE = re.compile("[\ud800-\udfff]")


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``.

    Raises Problem 400 if it isn't one, 422 for text or numbers that can't be stored.
    """
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError:
        raise malformed("the body is not UTF-8") from None
    except RecursionError:
        raise malformed(f"the body is nested more than {DEEPEST} levels deep") from None
    except ValueError as error:  # bad JSON, and integers longer than Python's limit on digits
        raise malformed(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise malformed("the body must be a JSON object")
    _refuse_unstorable(value, "", 0)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _refuse_unstorable(value: Any, path: str, depth: int) -> None:
    if depth > DEEPEST:
        raise malformed(f"the body is nested more than {DEEPEST} levels deep")
    match value:
        case str():
            _refuse_unstorable_text(value, path)
        case float() if not math.isfinite(value):
            raise wrong(path, "NaN and infinity are not numbers here")
        case dict():
            for name, item in value.items():
                _refuse_unstorable_text(name, path or "body")
                _refuse_unstorable(item, f"{path}.{name}" if path else name, depth + 1)
        case list():
            for index, item in enumerate(value):
                _refuse_unstorable(item, f"{path}[{index}]", depth + 1)


def _refuse_unstorable_text(value: str, path: str) -> None:
    if said := _unstorable(value):
        raise wrong(path, said)


def _unstorable(value: str) -> str | None:
    if "\x00" in value:
        return "a NUL character can't be stored"
    return "a lone surrogate is not text" if _SURROGATE.search(value) else None


class Fields(BaseModel):
    """Fields of a request. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Raises Problem 422 naming the first field that is wrong."""
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = str(first["ctx"]["error"]) if first["type"] == "value_error" else "must be text"
            is_absent = first["type"] == "missing" or first["input"] is None
            raise wrong(str(first["loc"][0]), "is required" if is_absent else said) from None


def _text(longest: int, pattern: str = r"(?s:.*)", meant: str = "") -> AfterValidator:
    def check(value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        if len(value) > longest:
            raise ValueError(f"has {len(value)} characters; at most {longest} are allowed")
        if said := _unstorable(value):  # query strings come here without having been through read_object
            raise ValueError(said)
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {meant}")
        return value

    return AfterValidator(check)


def _cents(value: Any) -> str:
    """Return an amount of money as text with two decimal places. Floats are refused."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a decimal string or an integer")
    # The length test spares str() an integer beyond Python's limit on digits.
    written = value if isinstance(value, str) else str(value) if value.bit_length() <= 64 else "too long"
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,2})?", written):
        raise ValueError("must have at most 12 digits and 2 decimal places, and no sign")
    if Decimal(written) <= 0:
        raise ValueError("must be above zero")
    return f"{Decimal(written):.2f}"


def _http(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("must be an http or https URL")
    return value


Name = Annotated[str, _text(300)]
Description = Annotated[str, _text(2000)]
Scope = Annotated[str, _text(200)]
Text = Annotated[str, _text(200_000)]
Digest = Annotated[str, _text(64, "[0-9a-f]{64}", "a SHA-256 digest in small hexadecimal letters")]
Key = Annotated[str, _text(255)]
Country = Annotated[str, _text(300, "[A-Za-z]{2}", "an ISO 3166 code of two letters"), AfterValidator(str.upper)]
TaxId = Annotated[str, _text(300, "[A-Za-z0-9-]{4,20}", "4 to 20 letters, digits and hyphens")]
Email = Annotated[str, _text(254, r"[^\s@<>,;]+@[^\s@<>,;]+", "an e-mail address")]
Url = Annotated[str, _text(2000), AfterValidator(_http)]
OrderNumber = Annotated[str, _text(300, "SO-[0-9]{6}", "SO- and six digits")]
Amount = Annotated[str, PlainValidator(_cents)]
