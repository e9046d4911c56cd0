"""Sets limits and circuit breakers at runtime, each change with an act record.

Workers apply a change within a second."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from django.db import connection, transaction
from pydantic import Field

from durableagents.contrib.limits.models import Limit
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from ledger.web.roles import OPERATOR
from runs.engine.limits import MAX_KEY_LENGTH, MAX_VALUES, InvalidRule, Rule, check
from runs.services.bodies import SteerBody

Key = Annotated[
    str, Field(min_length=1, max_length=MAX_KEY_LENGTH, description="For example tool:charge or tag:tenant:acme.")
]


class KeyBody(SteerBody):
    """A request body with the key of a limit."""

    key: Key


class LimitBody(KeyBody):
    """The complete limits of a key. A value that is null or missing means unlimited."""

    per_minute: Annotated[int, Field(ge=1, le=MAX_VALUES["per_minute"])] | None = Field(
        default=None, description="Calls per minute."
    )
    burst: Annotated[int, Field(ge=1, le=MAX_VALUES["burst"])] | None = Field(
        default=None, description="Calls that may be made at once before `per_minute` applies."
    )
    at_once: Annotated[int, Field(ge=1, le=MAX_VALUES["at_once"])] | None = Field(
        default=None,
        description="Calls in progress at the same time; for an agent or a tag: runs driven at the same time.",
    )
    breaker: Annotated[int, Field(ge=1, le=MAX_VALUES["breaker"])] | None = Field(
        default=None, description="Percentage of failed attempts that opens the circuit breaker."
    )
    rest: Annotated[int, Field(ge=1, le=MAX_VALUES["rest"])] | None = Field(
        default=None, description="Seconds that the breaker stays open before one attempt tests it; default 30."
    )
    weight: Annotated[int, Field(ge=1, le=MAX_VALUES["weight"])] | None = Field(
        default=None, description="Share of worker slots relative to other keys; default 1."
    )

    @property
    def rule(self) -> Rule:
        return Rule(self.per_minute, self.burst, self.at_once, self.breaker, self.rest, self.weight)


LANES_BATCH = 500  # number of runs updated at a time
KINDS_WITH_BREAKER = ("tool", "model", "provider")


class LimitUnchanged(DurableAgentsError):
    """The limit or circuit breaker is already in that state."""

    status, code, title = 409, "illegal-state", "The state does not allow this"


@two_person("limits", needs=OPERATOR)
def set_limit(key: str, rule: Rule, *, by: Actor, justification: str) -> Limit:
    """Set the complete rule of a key.

    It replaces the rules of settings and tools, including those limits that it leaves empty. Raises InvalidInput,
    JustificationRequired."""
    why = justified("limit", justification)
    try:
        check(key, rule)
    except InvalidRule as wrong:
        errors = [{"field": "key", "problem": str(wrong), "fix": "such as tool:charge with per_minute"}]
        raise InvalidInput(f"Invalid limit: {wrong}.", errors=errors) from None
    with transaction.atomic():
        limit = _lock(key)
        before, limit.given, limit.given_by, limit.given_at = _rule_of(limit), asdict(rule), by.ref, database_now()
        limit.save(update_fields=["given", "given_by", "given_at"])
        _record_rule("limit", limit, by=by, before=before, why=why)
    return limit


@two_person("limits", needs=OPERATOR)
def reset_limit(key: str, *, by: Actor, justification: str) -> Limit:
    """Remove the rule that was set at runtime, so that those of settings and tools apply again.

    Raises LimitUnchanged, JustificationRequired, NotFound."""
    why = justified("reset", justification)
    with transaction.atomic():
        limit = _lock_known(key)
        if limit.given is None:
            raise LimitUnchanged("The limit has no setting to reset.")
        before, limit.given, limit.given_by, limit.given_at = _rule_of(limit), None, by.ref, database_now()
        limit.save(update_fields=["given", "given_by", "given_at"])
        _record_rule("limit_reset", limit, by=by, before=before, why=why)
    return limit


@transaction.atomic
def open_breaker(key: str, *, by: Actor, justification: str) -> Limit:
    """Block all calls under a key until a person closes its breaker.

    Raises InvalidInput, LimitUnchanged, JustificationRequired."""
    why = justified("open", justification)
    if key.partition(":")[0] not in KINDS_WITH_BREAKER or key.endswith("*") or not key.partition(":")[2]:
        errors = [{"field": "key", "problem": "has no breaker", "fix": "a tool, a model or a provider, by its name"}]
        raise InvalidInput("Only a tool, model or provider has a circuit breaker.", errors=errors)
    limit = _lock(key)
    if limit.breaker == Limit.Breaker.OPEN and limit.is_by_hand:
        raise LimitUnchanged("The breaker was already opened by a person.")
    before = _snapshot(limit)
    limit.breaker, limit.is_by_hand, limit.opened_at, limit.rest_until = Limit.Breaker.OPEN, True, database_now(), None
    limit.save(update_fields=["breaker", "is_by_hand", "opened_at", "rest_until"])
    return _record_breaker("breaker_open", limit, by=by, before=before, why=why)


@transaction.atomic
def close_breaker(key: str, *, by: Actor, justification: str) -> Limit:
    """Close the breaker, so that calls are allowed again; further failures open it again.

    Raises LimitUnchanged, JustificationRequired, NotFound."""
    why = justified("close", justification)
    limit = _lock_known(key)
    if limit.breaker != Limit.Breaker.OPEN:
        raise LimitUnchanged("The breaker is already closed.")
    before = _snapshot(limit)
    limit.breaker, limit.is_by_hand, limit.rest_until, limit.openings = Limit.Breaker.CLOSED, False, None, 0
    limit.ok = limit.failed = limit.ok_before = limit.failed_before = 0
    limit.held_until = None
    limit.save()
    return _record_breaker("breaker_close", limit, by=by, before=before, why=why)


def _lock(key: str) -> Limit:
    Limit.objects.bulk_create([Limit(key=key)], ignore_conflicts=True)
    return Limit.objects.select_for_update().get(pk=key)


def _lock_known(key: str) -> Limit:
    limit = Limit.objects.select_for_update().filter(pk=key).first()
    if limit is None:
        raise NotFound("limit", key)
    return limit


def _snapshot(limit: Limit) -> dict[str, Any]:
    return {"given": limit.given, "breaker": limit.breaker, "is_by_hand": limit.is_by_hand}


def _rule_of(limit: Limit) -> dict[str, Any]:
    """Return the rule that a person set, without the circuit breaker, because a breaker also opens by itself."""
    return {"given": limit.given}


def _record_rule(action: str, limit: Limit, *, by: Actor, before: dict[str, Any], why: str) -> None:
    """Record the change, and update the lanes of runs after commit. A change that is only proposed affects no run."""
    acted(action, by=by, subject=f"limit {limit.key}", justification=why, before=before, after=_rule_of(limit))
    transaction.on_commit(lambda: _update_lanes(limit.key))


def _record_breaker(action: str, limit: Limit, *, by: Actor, before: dict[str, Any], why: str) -> Limit:
    acted(action, by=by, subject=f"limit {limit.key}", justification=why, before=before, after=_snapshot(limit))
    return limit


def _update_lanes(key: str) -> None:
    """Update the lanes of active runs to the current limits of tags, in batches."""
    while key.startswith("tag:"):
        with connection.cursor() as cursor:
            cursor.execute("SELECT runs_line_up(%s)", [LANES_BATCH])
            (moved,) = cursor.fetchone()
        if moved < LANES_BATCH:
            return
