"""Reading what a client sent: JSON that can be trusted to be stored and shown, and one check per kind of field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from .problems import malformed, wrong

DEEPEST = 32
LONGEST_NAME = 300
LONGEST_DESCRIPTION = 2000
LONGEST_URL = 2000

_COUNTRY = re.compile(r"[A-Za-z]{2}")
_TAX_ID = re.compile(r"[A-Za-z0-9-]{4,20}")
_EMAIL = re.compile(r"[^\s@<>,;]+@[^\s@<>,;]+")
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,2})?")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``. Raises Problem 400 for what isn't one, 422 for text or numbers nobody could store."""
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
    if "\x00" in value:
        raise wrong(path, "a NUL character can't be stored")
    if _SURROGATE.search(value):
        raise wrong(path, "a lone surrogate is not text")


def text(given: Mapping[str, Any], name: str, *, longest: int = LONGEST_NAME) -> str:
    """Required, not blank. Raises Problem 422 naming the field, as all checks below."""
    value = given.get(name)
    if value is None:
        raise wrong(name, "is required")
    if not isinstance(value, str):
        raise wrong(name, "must be text")
    if not value.strip():
        raise wrong(name, "must not be blank")
    if len(value) > longest:
        raise wrong(name, f"has {len(value)} characters; at most {longest} are allowed")
    _refuse_unstorable_text(
        value, name
    )  # query strings come here without having been through read_object
    return value


def country(given: Mapping[str, Any], name: str = "country") -> str:
    value = text(given, name)
    if not _COUNTRY.fullmatch(value):
        raise wrong(name, "must be an ISO 3166 code of two letters")
    return value.upper()


def tax_id(given: Mapping[str, Any], name: str = "tax_id") -> str:
    value = text(given, name)
    if not _TAX_ID.fullmatch(value):
        raise wrong(name, "must be 4 to 20 letters, digits and hyphens")
    return value


def email(given: Mapping[str, Any], name: str = "contact_email") -> str:
    value = text(given, name, longest=254)
    if not _EMAIL.fullmatch(value):
        raise wrong(name, "must be an e-mail address")
    return value


def amount(given: Mapping[str, Any], name: str = "amount_usd") -> str:
    """Money as text with two places, never a float."""
    value = given.get(name)
    if value is None:
        raise wrong(name, "is required")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong(name, "must be a decimal string or an integer")
    # The length test spares str() an integer beyond Python's limit on digits.
    written = (
        value if isinstance(value, str) else str(value) if value.bit_length() <= 64 else "too long"
    )
    if not _AMOUNT.fullmatch(written):
        raise wrong(name, "must have at most 12 digits and 2 decimal places, and no sign")
    if Decimal(written) <= 0:
        raise wrong(name, "must be above zero")
    return f"{Decimal(written):.2f}"


def url(given: Mapping[str, Any], name: str = "callback_url") -> str:
    value = text(given, name, longest=LONGEST_URL)
    try:
        parts = urlsplit(value)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not value.isascii() or not value.isprintable() or " " in value:
        raise wrong(name, "must be an http or https URL")
    return value


def numbered(given: Mapping[str, Any], name: str, prefix: str) -> int:
    """The number in an id such as VND-000017; 0, which is nobody's, when it is not of that form."""
    value = text(given, name)
    found = re.fullmatch(rf"{prefix}-([0-9]{{6,12}})", value, re.ASCII)
    return int(found[1]) if found else 0
