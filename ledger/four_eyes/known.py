"""Which acts change rules, what such an act would do, and which of them two people do.

A trial runs the service itself, in a savepoint that is rolled back: what it refuses is refused to whoever proposes it,
at once and in its own words, and what it would put on record is the difference that the second person reads.
"""

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
    """Each act of the changes of rules that somebody has put in force since then, as its record has it: `action`,
    `subject`, `queue`, `before`, `after`."""
    own = ActRecord.objects.filter(action="rule_change_apply", person=person, at__gte=since)
    named = [_id_in(subject) for subject in own.values_list("subject", flat=True)] if person is not None else []
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
# What can be under four eyes, in the words of a page.
FAMILIES: Mapping[str, str] = {
    "policies": "policies: which calls may leave, and whose yes they need",
    "queues": "queues, up to how much whom may approve, and who stands in for somebody else",
    "roles": "roles, and what accounts and roles may do besides",
    "limits": "limits of calls at runtime, and pools",
    "prices": "prices of models",
    "releases": "which version of an agent takes new starts",
    OUTCOMES: "what became of a call whose outcome nobody knows",
}
# Of those whose acts are no changes of a rule, and are not proposed as such: what an account must hold to be one of the
# two.
BESIDES: Mapping[str, str] = {OUTCOMES: OPERATOR}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A service that changes a rule. `needs` is what an account must hold for it: a role, a permission, or `superuser`;
    `moving` are parts of what it puts on record that are another each time it runs: names of what is so after it, or of
    one act that it puts on record (`absence.deputy`), and NUMBER where its subject ends in a number that is drawn for
    it."""

    name: str
    family: str
    needs: str
    act: Callable[..., Any]
    moving: frozenset[str]

    def packed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What it was given, without the actor, as JSON that `given` makes the same of again."""
        bound = inspect.signature(self.act).bind(*args, **kwargs).arguments
        kept = {
            name: self._adapter(name).dump_python(value, mode="json") for name, value in bound.items() if name != "by"
        }
        assert self.given(kept) == {name: value for name, value in bound.items() if name != "by"}, "comes back the same"
        return kept

    def given(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._adapter(name).validate_json(json.dumps(value)) for name, value in kept.items()}

    def done(self, given: Mapping[str, Any], by: Actor) -> tuple[Any, list[dict[str, Any]]]:
        """Do it: its result, and what it put on record."""
        with beneath(), hearing() as told:
            result = self.act(**given, by=by)
        return result, [self._settled(each) for each in told]

    def tried(self, given: Mapping[str, Any], by: Actor) -> list[dict[str, Any]]:
        """What it would put on record, and nothing of it stays. Raises as it does."""
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
    """The trial is over."""


# Every service that is marked, by its name.
acts: dict[str, Guarded] = {}
# Whoever says which rules two people change holds it alone, whoever acts by that holds it with others.
_LOCK = "hashtextextended('four eyes', 72)"
is_beneath: ContextVar[bool] = ContextVar("under four eyes", default=False)


@contextmanager
def beneath() -> Iterator[None]:
    """Inside, a service does what it says, whoever has to agree to that has."""
    token = is_beneath.set(True)
    try:
        yield
    finally:
        is_beneath.reset(token)


def standing() -> FourEyes | None:
    return FourEyes.objects.order_by("-n").first()


def guarded_families() -> frozenset[str]:
    """What two people change now. Where the row that says so is not one of ours, everything: whoever writes past us
    must not loosen it."""
    row = standing()
    if row is None:
        return frozenset()
    return frozenset(row.families if row.is_genuine else FAMILIES)


def is_guarded(family: str) -> bool:
    """Whether two people change rules of a family. What says so is one itself as soon as there is any."""
    families = guarded_families()
    return bool(families) if family == GUARDS else family in families


def needs_of(family: str) -> list[str]:
    """What an account must hold to be one of the two people of a family."""
    needs = {each.needs for each in acts.values() if each.family in (family, GUARDS)}
    return sorted(needs | {needed for of, needed in BESIDES.items() if of == family})


def hold(*, is_alone: bool) -> None:
    """Until this transaction ends nobody else says which rules two people change: so what is done by what counts now
    comes before what is said next, by the clock of the record too. `is_alone` is for whoever says it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock{'' if is_alone else '_shared'}({_LOCK})")
