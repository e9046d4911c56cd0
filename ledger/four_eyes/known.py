"""The acts that change rules, what each would do, and which of them need two people."""

# A trial runs the service itself in a savepoint that is rolled back: its refusals reach the author at once, and the
# records it would write are the difference that the second person reads.

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID

from django.db import connection, transaction
from pydantic import TypeAdapter

from ledger.actors import Actor
from ledger.append import hearing
from ledger.models import ActRecord, FourEyes, RuleChange
from ledger.web.roles import OPERATOR


def agreed_to(person: int | None, since: datetime) -> Iterator[dict[str, Any]]:
    """Yield the acts (`action`, `subject`, `queue`, `before`, `after`) of rule changes the person applied since."""
    own = ActRecord.objects.filter(action="rule_change_apply", person=person, at__gte=since)
    named = [_id_in(act.subject) for act in own.only("subject", "run_id")] if person is not None else []
    for told in RuleChange.objects.filter(pk__in=[each for each in named if each]).values_list("told", flat=True):
        yield from (each for each in told if isinstance(each, dict)) if isinstance(told, list) else ()


def _id_in(subject: str) -> UUID | None:
    try:
        return UUID(subject.partition(" ")[2])
    except ValueError:
        return None


GUARDS = "guards"
NUMBER = "its number"
SUPERUSER = "superuser"
OUTCOMES = "outcomes"
# Families that can need two people, with their text on pages.
FAMILIES: dict[str, str] = {
    "queues": "queues, approval limits and deputies",
    "roles": "roles, and other rights of accounts and roles",
    "prices": "prices of models",
    OUTCOMES: "outcomes of uncertain calls",
}


def declare_family(name: str, words: str) -> None:
    """Add a family of an app outside the core, with its text on pages. Idempotent."""
    FAMILIES[name] = words


# Families whose acts aren't rule changes and aren't proposed as such: what an account must hold to be one of the two.
BESIDES: Mapping[str, str] = {OUTCOMES: OPERATOR}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A service that changes a rule. `needs` is what an account must hold: a role, a permission, or `superuser`.
    `moving` are the parts of its records that differ on each run: names in `after`, optionally of one act
    (`absence.deputy`), and NUMBER if its subject ends in a generated number.
    `trial` is the name of the address that shows what a change would do, from its body as a form."""

    name: str
    family: str
    needs: str
    act: Callable[..., Any]
    moving: frozenset[str]
    trial: str = ""

    def packed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments without the actor, as JSON that `given` turns back into the same."""
        bound = inspect.signature(self.act).bind(*args, **kwargs).arguments
        kept = {
            name: self._adapter(name).dump_python(value, mode="json") for name, value in bound.items() if name != "by"
        }
        assert self.given(kept) == {name: value for name, value in bound.items() if name != "by"}, "comes back the same"
        return kept

    def given(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._adapter(name).validate_json(json.dumps(value)) for name, value in kept.items()}

    def done(self, given: Mapping[str, Any], by: Actor) -> tuple[Any, list[dict[str, Any]]]:
        """Perform the act; return its result and its records."""
        with beneath(), hearing() as told:
            result = self.act(**given, by=by)
        return result, [self._settled(each) for each in told]

    def tried(self, given: Mapping[str, Any], by: Actor) -> list[dict[str, Any]]:
        """Return the records the act would write, and roll it back. Raises what the act raises."""
        told: list[dict[str, Any]] = []
        try:
            with transaction.atomic():
                told = self.done(given, by)[1]
                raise _Undone
        except _Undone:
            return told

    def _settled(self, told: dict[str, Any]) -> dict[str, Any]:
        of = told["action"]
        after = {name: value for name, value in told["after"].items() if self.moving.isdisjoint((name, f"{of}.{name}"))}
        what, _, last = told["subject"].rpartition(" ")
        subject = f"{what} (new)" if NUMBER in self.moving and last.isdecimal() else told["subject"]
        settled: dict[str, Any] = json.loads(json.dumps({**told, "subject": subject, "after": after}))
        return settled

    def _adapter(self, name: str) -> TypeAdapter[Any]:
        return TypeAdapter(get_type_hints(self.act)[name])


class _Undone(Exception):
    pass


# Every marked service, by name.
acts: dict[str, Guarded] = {}
# Held exclusively to set which rules need two people, shared to act on that setting.
_LOCK = "hashtextextended('four eyes', 72)"
is_beneath: ContextVar[bool] = ContextVar("under four eyes", default=False)


@contextmanager
def beneath() -> Iterator[None]:
    """Let services act directly inside the block: everybody who has to agree has done so."""
    token = is_beneath.set(True)
    try:
        yield
    finally:
        is_beneath.reset(token)


def standing() -> FourEyes | None:
    return FourEyes.objects.order_by("-n").first()


def guarded_families() -> frozenset[str]:
    """Return the families that need two people now: all of them if the row was forged, so forging can't loosen it."""
    row = standing()
    if row is None:
        return frozenset()
    return frozenset(row.families if row.is_authentic else FAMILIES)


def is_guarded(family: str) -> bool:
    """Return whether two people must change rules of a family. The setting itself is one as soon as any family is."""
    families = guarded_families()
    return bool(families) if family == GUARDS else family in families


def needs_of(family: str) -> list[str]:
    """Return what an account must hold to be one of the two people of a family."""
    needs = {each.needs for each in acts.values() if each.family in (family, GUARDS)}
    return sorted(needs | {needed for of, needed in BESIDES.items() if of == family})


def hold(*, is_alone: bool) -> None:
    """Block changes of the two-person setting until the transaction ends, so that records are ordered by the clock.
    `is_alone` is for the transaction that changes the setting."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock{'' if is_alone else '_shared'}({_LOCK})")
