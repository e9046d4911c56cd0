"""Setting limits, breakers and priorities at runtime, each with an act record; workers follow within a second."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from pydantic import Field

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from ledger.four_eyes.guards import second
from ledger.web.roles import OPERATOR
from runs.engine.limits import LONGEST_KEY, MOST, BadRule, Rule, check
from runs.models import ENDED, Limit, Run
from runs.services import wakeups
from runs.services.allowed import OVER
from runs.services.bodies import SteerBody

Key = Annotated[
    str, Field(min_length=1, max_length=LONGEST_KEY, description="For example tool:charge or tag:tenant:acme.")
]


class KeyBody(SteerBody):
    """Names a limit's key."""

    key: Key


class LimitBody(KeyBody):
    """The complete limits for a key. A value that is null or missing means unlimited."""

    per_minute: Annotated[int, Field(ge=1, le=MOST["per_minute"])] | None = Field(
        default=None, description="Calls per minute."
    )
    burst: Annotated[int, Field(ge=1, le=MOST["burst"])] | None = Field(
        default=None, description="Calls that may be made at once before `per_minute` applies."
    )
    at_once: Annotated[int, Field(ge=1, le=MOST["at_once"])] | None = Field(
        default=None,
        description="Calls in progress at the same time; for an agent or a tag: runs driven at the same time.",
    )
    breaker: Annotated[int, Field(ge=1, le=MOST["breaker"])] | None = Field(
        default=None, description="Percentage of failed attempts that opens the circuit breaker."
    )
    rest: Annotated[int, Field(ge=1, le=MOST["rest"])] | None = Field(
        default=None, description="Seconds that the breaker stays open before one attempt tests it; default 30."
    )
    weight: Annotated[int, Field(ge=1, le=MOST["weight"])] | None = Field(
        default=None, description="Share of worker slots relative to others; default 1."
    )

    @property
    def rule(self) -> Rule:
        return Rule(self.per_minute, self.burst, self.at_once, self.breaker, self.rest, self.weight)


class PriorityBody(SteerBody):
    """A run's priority; default 0."""

    priority: Annotated[int, Field(ge=-100, le=100)] = Field(
        description="Runs with a higher priority are claimed first."
    )


_LINED_UP = 500  # runs at a time
_WITH_BREAKER = ("tool", "model", "provider")
HIGHEST, LOWEST = 100, -100


class NotInThisState(DurableAgentsError):
    """It is in that state already, or can't be."""

    status, code, title = 409, "illegal-state", "The state does not allow this"


@second("limits", needs=OPERATOR)
def set_limit(key: str, rule: Rule, *, by: Actor, justification: str) -> Limit:
    """Set the whole rule of a key; what is left out isn't limited, whatever settings or tools say.
    Raises InvalidInput, JustificationRequired."""
    why = justified("limit", justification)
    try:
        check(key, rule)
    except BadRule as wrong:
        errors = [{"field": "key", "problem": str(wrong), "fix": "such as tool:charge with per_minute"}]
        raise InvalidInput(f"Invalid limit: {wrong}.", errors=errors) from None
    with transaction.atomic():
        limit = _locked(key)
        before, limit.given, limit.given_by, limit.given_at = _given(limit), asdict(rule), by.ref, database_now()
        limit.save(update_fields=["given", "given_by", "given_at"])
        _said("limit", limit, by=by, before=before, why=why)
    return limit


@second("limits", needs=OPERATOR)
def reset_limit(key: str, *, by: Actor, justification: str) -> Limit:
    """Drop the runtime rule, so that settings and tools apply again.
    Raises NotInThisState, JustificationRequired, NotFound."""
    why = justified("reset", justification)
    with transaction.atomic():
        limit = _known(key)
        if limit.given is None:
            raise NotInThisState("The limit has no setting to reset.")
        before, limit.given, limit.given_by, limit.given_at = _given(limit), None, by.ref, database_now()
        limit.save(update_fields=["given", "given_by", "given_at"])
        _said("limit_reset", limit, by=by, before=before, why=why)
    return limit


@transaction.atomic
def open_breaker(key: str, *, by: Actor, justification: str) -> Limit:
    """Block all calls under a key until a person closes its breaker.
    Raises InvalidInput, NotInThisState, JustificationRequired."""
    why = justified("open", justification)
    if key.partition(":")[0] not in _WITH_BREAKER or key.endswith("*") or not key.partition(":")[2]:
        errors = [{"field": "key", "problem": "has no breaker", "fix": "a tool, a model or a provider, by its name"}]
        raise InvalidInput("Only a tool, model or provider has a circuit breaker.", errors=errors)
    limit = _locked(key)
    if limit.breaker == Limit.Breaker.OPEN and limit.is_by_hand:
        raise NotInThisState("The breaker was already opened by a person.")
    before = _shown(limit)
    limit.breaker, limit.is_by_hand, limit.opened_at, limit.rest_until = Limit.Breaker.OPEN, True, database_now(), None
    limit.save(update_fields=["breaker", "is_by_hand", "opened_at", "rest_until"])
    return _done("breaker_open", limit, by=by, before=before, why=why)


@transaction.atomic
def close_breaker(key: str, *, by: Actor, justification: str) -> Limit:
    """Allow calls again; on further failures the breaker opens by itself.
    Raises NotInThisState, JustificationRequired, NotFound."""
    why = justified("close", justification)
    limit = _known(key)
    if limit.breaker != Limit.Breaker.OPEN:
        raise NotInThisState("The breaker is already closed.")
    before = _shown(limit)
    limit.breaker, limit.is_by_hand, limit.rest_until, limit.openings = Limit.Breaker.CLOSED, False, None, 0
    limit.ok = limit.failed = limit.ok_before = limit.failed_before = 0
    limit.held_until = None
    limit.save()
    return _done("breaker_close", limit, by=by, before=before, why=why)


@transaction.atomic
def set_priority(run_id: UUID, priority: int, *, by: Actor, justification: str) -> Run:
    """Set a run's priority: it is claimed before those of a lower one.
    Raises InvalidInput, NotInThisState, JustificationRequired, NotFound."""
    why = justified("priority", justification)
    run = Run.objects.select_for_update().filter(pk=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    if run.state in ENDED:
        raise NotInThisState(OVER)
    _check_priority(priority, most=HIGHEST)
    return _give(run, priority, by=by, why=why)


def start_with(run: Run, priority: int, *, by: Actor) -> None:
    """Set the priority requested by a start, in its transaction. Raises InvalidInput above the caller's maximum."""
    if priority:
        _check_priority(priority, most=HIGHEST if by.role == OPERATOR else settings.DURABLEAGENTS.priority)
        _give(run, priority, by=by, why="")


def _check_priority(priority: int, *, most: int) -> None:
    if not LOWEST <= priority <= most:
        errors = [{"field": "priority", "problem": f"is {priority}", "fix": f"from {LOWEST} to {most}"}]
        raise InvalidInput(f"Priority {priority} is out of range: you may set {LOWEST} to {most}.", errors=errors)


def _give(run: Run, priority: int, *, by: Actor, why: str) -> Run:
    before, run.priority = {"priority": run.priority}, priority
    Run.objects.filter(pk=run.pk).update(priority=priority)
    acted("priority", by=by, subject=f"run {run.pk}", justification=why, before=before, after={"priority": priority})
    wakeups.ring(run.pk)
    return run


def _locked(key: str) -> Limit:
    Limit.objects.bulk_create([Limit(key=key)], ignore_conflicts=True)
    return Limit.objects.select_for_update().get(pk=key)


def _known(key: str) -> Limit:
    limit = Limit.objects.select_for_update().filter(pk=key).first()
    if limit is None:
        raise NotFound("limit", key)
    return limit


def _shown(limit: Limit) -> dict[str, Any]:
    return {"given": limit.given, "breaker": limit.breaker, "is_by_hand": limit.is_by_hand}


def _given(limit: Limit) -> dict[str, Any]:
    """Return what people set; the breaker, which moves by itself, is no part of it."""
    return {"given": limit.given}


def _said(action: str, limit: Limit, *, by: Actor, before: dict[str, Any], why: str) -> None:
    """Record the change, and update runs' lanes once it is in force, not while it is only proposed."""
    acted(action, by=by, subject=f"limit {limit.key}", justification=why, before=before, after=_given(limit))
    transaction.on_commit(lambda: _line_up(limit.key))


def _done(action: str, limit: Limit, *, by: Actor, before: dict[str, Any], why: str) -> Limit:
    acted(action, by=by, subject=f"limit {limit.key}", justification=why, before=before, after=_shown(limit))
    return limit


def _line_up(key: str) -> None:
    """Update the lanes of active runs to the current limits of tags, in batches."""
    while key.startswith("tag:"):
        with connection.cursor() as cursor:
            cursor.execute("SELECT runs_line_up(%s)", [_LINED_UP])
            (moved,) = cursor.fetchone()
        if moved < _LINED_UP:
            return
