"""Describe changes of accounts, roles and keys in words, from the columns and values of their records."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from approvals.queues.listed import asked_in_words
from ledger.models import AccountRecord
from ledger.web.roles import name_of
from runs import features
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import threshold_in

_LABELS = {
    "proof": "extra verification",
    "within_seconds": "within",
}


def label_of(name: str) -> str:
    """Return the label of a value in the record of a change."""
    labels = features.handler(lambda each: each.change_labels, name)
    return labels or _LABELS.get(name, name.replace("_", " "))


def was_and_is(name: str, before: Any, after: Any) -> tuple[str, str]:
    """Return the old and new value as text. Different values never give the same text, except two empty ones."""
    was, now = value_text(name, before), value_text(name, after)
    return (was, now) if was != now or not (before or after) else (_plainly(before), _plainly(after))


def value_text(name: str, value: Any) -> str:
    """Return a value as text; empty if there is none."""
    if (describe := _WORDS.get(name) or features.handler(lambda each: each.change_texts, name)) is not None:
        # Recorded acts may contain invalid values; only values of the current shape are put into words.
        with suppress(DefinitionError, TypeError, ValueError):
            return describe(value)
    return _plainly(value)


def _plainly(value: Any) -> str:
    if value is None or value == "" or value == []:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "; ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def hours_of(minutes: Any) -> str:
    """Return a number of minutes as text: in hours if tenths are exact, else in hours and minutes; empty for 0 or no
    number."""
    if not isinstance(minutes, int) or not minutes:
        return ""
    if minutes >= 60 and minutes % 6 == 0:
        return f"{hours_typed(minutes)} hour{'' if minutes == 60 else 's'}"
    counts = [(minutes // 60, "hour"), (minutes % 60, "minute")]
    return " ".join(f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in counts if n)


def hours_typed(minutes: int) -> str:
    """Return minutes as hours for a form field, exact enough to convert back."""
    return f"{minutes / 60:.8f}".rstrip("0").rstrip(".")


def _proof(value: Any) -> str:
    return asked_in_words(threshold_in(value))


_WORDS: dict[str, Callable[[Any], str]] = {
    "proof": _proof,
    "within_seconds": lambda seconds: hours_of((seconds or 0) // 60),
}


# Page labels of a record's columns. A missing column is labelled by its name.
LABELS = {
    "username": "name",
    "email": "e-mail",
    "first_name": "first name",
    "last_name": "last name",
    "is_active": "may sign in",
    "is_staff": "may open the administration",
    "is_superuser": "has every right",
    "name": "name",
    "prefix": "begins with",
    "user_id": "account number",
    "expires_at": "expires",
    "revoked_at": "revoked",
    "kind": "kept by",
    "role": "role",
    "permission": "may",
    "tag": "own tag",
    "reason": "reason",
    "is_other_key": "another key",
    "factor": "second factor",
    "key": "key",
    "is_other_secret": "another secret",
    "codes_left": "recovery codes left",
    "issuer": "signs in by",
    "subject": "known there as",
}
_FACTORS = {"totp": "codes of a device", "recovery_codes": "recovery codes", "webauthn": "a passkey"}
# Texts for empty values that have a meaning of their own.
_NEVER = {"expires_at": "never", "revoked_at": "no"}
# Acts that added or removed the whole object.
_WHOLE = ("_added", "_issued", "_removed", "_linked", "_unlinked")
_MOMENTS = ("expires_at", "revoked_at")


@dataclass(frozen=True, slots=True)
class Change:
    """One changed value. `was` is empty for a new one, `now` for a removed one."""

    label: str
    was: str
    now: str


def changes(record: AccountRecord) -> list[Change]:
    """Return a record's changes. For a new or removed object, only the non-empty values are included."""
    before, after = _readable_values(record.before), _readable_values(record.after)
    is_whole = not before or not after or record.action.endswith(_WHOLE)
    found = []
    for name in dict.fromkeys([*LABELS, *before, *after]):
        was, now = before.get(name), after.get(name)
        if (name not in before and name not in after) or (is_whole and not _says(was) and not _says(now)):
            continue
        label = LABELS.get(name, name.replace("_", " "))
        texts = [_text(name, was) if name in before else "", _text(name, now) if name in after else ""]
        if is_whole:
            texts = [text if _says(value) else "" for text, value in zip(texts, (was, now), strict=True)]
        found.append(Change(label, *texts) if texts[0] != texts[1] else Change(label, "", texts[1]))
    return found


def _readable_values(values: Any) -> dict[str, Any]:
    return values if isinstance(values, dict) else {}


def _says(value: Any) -> bool:
    return value not in (None, "", False)


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return _NEVER.get(name, "none")
    if name == "role":
        return name_of(str(value))
    if name == "factor":
        return _FACTORS.get(str(value), str(value))
    if name in _MOMENTS:
        try:
            return f"{datetime.fromisoformat(str(value)).astimezone(UTC):%-d %b %Y %H:%M:%S} UTC"
        except ValueError:
            return str(value)
    return str(value)
