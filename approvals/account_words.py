"""What changed about an account, a role or a key, in words: the record itself keeps columns and values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ledger.models import AccountRecord
from ledger.web.roles import name_of

# A column of a record, and what a page calls it. One that is missing here is called as the column is.
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
# What nothing means there, where that is more than nothing.
_NEVER = {"expires_at": "never", "revoked_at": "no"}
# Acts by which all of it came or went.
_WHOLE = ("_added", "_issued", "_removed", "_linked", "_unlinked")
_MOMENTS = ("expires_at", "revoked_at")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is otherwise now. `was` is empty for what is new, `now` for what is gone."""

    label: str
    was: str
    now: str


def changes(record: AccountRecord) -> list[Change]:
    """What a record tells, one thing after the other. Of what is new or gone only what says something: an account
    without an e-mail address had none before either."""
    before, after = _known(record.before), _known(record.after)
    is_whole = not before or not after or record.action.endswith(_WHOLE)
    found = []
    for name in dict.fromkeys([*LABELS, *before, *after]):
        was, now = before.get(name), after.get(name)
        if (name not in before and name not in after) or (is_whole and not _says(was) and not _says(now)):
            continue
        label = LABELS.get(name, name.replace("_", " "))
        shown = [_text(name, was) if name in before else "", _text(name, now) if name in after else ""]
        if is_whole:
            shown = [text if _says(value) else "" for text, value in zip(shown, (was, now), strict=True)]
        found.append(Change(label, *shown) if shown[0] != shown[1] else Change(label, "", shown[1]))
    return found


def _known(values: Any) -> dict[str, Any]:
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
