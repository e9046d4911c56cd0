"""Compare accounts, memberships, keys and apps' additions with their records.

Decisions are compared with the rights at their time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q

from ledger.models import AccountRecord
from ledger.verification.registers import Listed
from ledger.verification.runs import SLACK

# SQL for what each account has now, by kind: the account, and the name used in records. Apps add kinds of their own;
# kinds of apps that aren't installed are not compared.
held_now = {
    "role": "SELECT m.user_id, g.name FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id",
    "API key": "SELECT user_id, name FROM durableagents_apikey WHERE revoked_at IS NULL",
    "revoked API key": "SELECT user_id, name FROM durableagents_apikey WHERE revoked_at IS NOT NULL",
}
_FIELDS = ("username", "email", "is_active", "is_staff", "is_superuser")
_NEVER = datetime.max.replace(tzinfo=UTC)


class _Replay:
    """The state of all accounts that results from replaying their records."""

    def __init__(self) -> None:
        self.accounts: dict[int, dict[str, Any]] = {}
        self.held: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
        self.ends: dict[tuple[int, str], datetime] = {}  # when keys expire, by account and name

    def has_key(self, person: int, at: datetime) -> bool:
        """Return whether an account has a key that is neither revoked nor expired at that time."""
        keys = [name for (kind, name), n in self.held[person].items() if kind == "API key" and n > 0]
        return any(self.ends.get((person, name), _NEVER) > at for name in keys)

    def see(self, record: AccountRecord) -> None:
        person, before, after = record.subject_person, record.before, record.after
        if record.action == "role_renamed":
            for held in self.held.values():
                held["role", after["name"]] += held.pop(("role", before["name"]), 0)
        if person is None:
            return
        match record.action:
            case "account_added" | "account_changed":
                self.accounts.setdefault(person, {}).update(after)
            case "account_removed":
                self.accounts.pop(person, None)
            case "role_given" | "role_taken":
                self._move(record, "role", "role", before.get("role"), after.get("role"))
            case "factor_added" | "factor_removed" | "factor_changed":
                self._move(
                    record, "second factor", "second factor", record.before.get("factor"), record.after.get("factor")
                )
            case "key_issued" | "key_revoked" | "key_changed" | "key_removed":
                self._key(record, person)

    def _key(self, record: AccountRecord, person: int) -> None:
        """Apply a record about a key, identified by its names before and after, because records have no key ids."""
        before, after, name = record.before, record.after, record.subject.partition("/")[2]
        was_named = before.get("name", name)
        held = self.held[before.get("user_id") or person]
        was = "revoked API key" if before.get("revoked_at") else "API key"
        if "revoked_at" not in before and not held["API key", was_named] and held["revoked API key", was_named]:
            was = "revoked API key"
        now = was if "revoked_at" not in after else "revoked API key" if after["revoked_at"] else "API key"
        is_there = record.action != "key_issued", record.action != "key_removed"
        self._move(record, was, now, was_named if is_there[0] else None, name if is_there[1] else None)
        owner = after.get("user_id") or person
        end = self.ends.get((before.get("user_id") or person, was_named), _NEVER)
        if "expires_at" in after:
            end = datetime.fromisoformat(after["expires_at"]) if after["expires_at"] else _NEVER
        has_twin = (
            self.held[owner]["API key", name] > 1
        )  # records can't distinguish the two, so the later expiry applies
        self.ends[owner, name] = max(end, self.ends.get((owner, name), end)) if has_twin else end

    def _move(self, record: AccountRecord, was: str, now: str, old: str | None, new: str | None) -> None:
        """Remove an entry under the old name and account, and add one under the new."""
        person = record.subject_person or 0
        if old is not None:
            self.held[record.before.get("user_id") or person][was, old] -= 1
        if new is not None:
            self.held[record.after.get("user_id") or person][now, new] += 1


def every_account() -> Listed:
    """Check that accounts match their records."""
    replay, count = _Replay(), 0
    for record in AccountRecord.objects.filter(n__isnull=False).order_by("n").iterator():
        replay.see(record)
        count += 1
    return Listed("accounts as recorded", count, "", [*_accounts(replay), *_roles_held(replay)])


def rights_problems(person: int, holder: int, role: str, at: datetime, *, by_key: bool) -> Iterator[str]:
    """Yield reasons why `person` could not act at that time in a role of `holder` (the person or their principal)."""
    replay, given, has_key = _Replay(), None, False
    since = at - SLACK  # a key is checked when a request arrives, and not locked after that
    for record in AccountRecord.objects.filter(
        Q(subject_person__in=(person, holder)) | Q(action="role_renamed"), n__isnull=False, at__lte=at
    ).order_by("n"):
        has_key |= record.at > since and replay.has_key(person, since)
        if record.action != "key_issued" or record.is_signed:
            replay.see(record)
        if (record.subject_person, record.action, record.after.get("role")) == (holder, "role_given", role):
            given = record
    for each in sorted({person, holder}):
        if not replay.accounts.get(each, {}).get("is_active"):
            yield f"account {each} was closed"
    if replay.held[holder]["role", role] < 1:
        yield f"account {holder} did not have the role {role}"
    elif given is not None and not given.is_signed:
        yield f"account {holder} was given the role {role} outside the application, in the name of {given.by}"
    if by_key and not (has_key or replay.has_key(person, since)):
        yield f"account {person} had no valid API key"


def _accounts(replay: _Replay) -> Iterator[str]:
    there = {user.pk: user for user in User.objects.order_by("pk")}
    for person in sorted({*there, *replay.accounts}):
        user, last = there.get(person), replay.accounts.get(person)
        if user is None or last is None:
            name = f"account {last['username']!r}" if last else f"account {user.username!r}" if user else ""
            yield f"{name} ({person}) is {'there' if user else 'gone'}, and no record says so"
        elif wrong := [name for name in _FIELDS if name in last and last[name] != getattr(user, name)]:
            yield f"account {user.username!r} ({person}): {', '.join(wrong)} differ from the last record"


def _roles_held(replay: _Replay) -> Iterator[str]:
    now: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    with connection.cursor() as cursor:
        for kind, statement in held_now.items():
            cursor.execute(statement)
            for person, name in cursor.fetchall():
                now[person][kind, name] += 1
    for person in sorted({*now, *replay.held}):
        for kind, name in sorted({*now[person], *replay.held[person]}):
            has, last = now[person][kind, name], replay.held[person][kind, name]
            if has != last and kind in held_now:
                yield f"account {person} has the {kind} {name!r} {has} time(s), but its records say {last}"
