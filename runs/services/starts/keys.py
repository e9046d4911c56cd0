"""Starts under a business key: one run per agent and key is active, others are queued.
The lock of the key is taken before those of heads. Ends and retries don't take it, so the index `runs_run_one_of_key`
decides races with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, IllegalTransition, InvalidInput
from ledger.web.bodies import does_not_fit
from runs import seen
from runs.engine.agents import registry
from runs.engine.budget import Budget
from runs.models import ENDED, Run
from runs.services import command, lifecycle, signals
from runs.services.bodies import StartBody
from runs.services.lifecycle import Accepted, Plan

# Limit per key. Limit of queued runs; larger numbers need a queue instead of a key.
MAX_QUEUED = 1000
FARTHEST = timedelta(days=366)
_CHECKS = 5
_ONE = "runs_run_one_of_key"


class KeyTaken(DurableAgentsError):
    """Another run of the key is active."""

    status, code, title = 409, "business-key-taken", "The business key is in use"

    def __init__(self, run: Run) -> None:
        if not seen.among([run.id]):
            super().__init__(
                f"An active run of {run.agent} that you may not see has this key. "
                "Queue yours behind it, or wait until it ends."
            )
            return
        super().__init__(
            f"Run {run.id} of {run.agent} has the key {run.business_key} and is active. "
            "Use a conflict rule (join, replace, queue, debounce), or wait until it ends.",
            run=str(run.id),
        )


class KeyBusy(DurableAgentsError):
    """The key's runs changed during every attempt to start a run."""

    status, code, title = 409, "business-key-busy", "The business key is busy"

    def __init__(self) -> None:
        super().__init__(
            "Runs with this key are starting and ending right now. Nothing was started. Try again in a moment."
        )


@dataclass(frozen=True, slots=True)
class Delivery:
    """A signal that is sent with the start."""

    name: str
    payload: Any = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested start."""

    agent: str
    input: Any
    tags: Iterable[str] | dict[str, str] = ()
    budget: Budget | None = None
    business_key: str = ""
    on_conflict: str = "refuse"
    window: timedelta | None = None  # of a debounce
    start_at: datetime | None = None
    start_before: datetime | None = None
    deliver: Delivery | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    schedule: UUID | None = None
    planned_at: datetime | None = None
    request_key: str = ""  # the request's Idempotency-Key

    @classmethod
    def of(cls, body: StartBody, request_key: str = "") -> Self:
        """Return the start that a body requests. Raises InvalidInput if its parts contradict each other."""
        _check_rule(body)
        signal, seconds = body.signal, body.debounce_seconds
        return cls(
            body.agent,
            body.input,
            body.tags,
            body.budget,
            business_key=body.business_key or "",
            on_conflict=body.on_conflict or ("refuse" if signal is None else "join"),
            window=None if seconds is None else timedelta(seconds=seconds),
            start_at=body.start_at,
            start_before=body.start_before,
            deliver=None if signal is None else Delivery(signal.name, signal.payload, signal.id),
            attributes=body.attributes,
            request_key=request_key,
        )

    @property
    def is_plain(self) -> bool:
        return not (self.business_key or self.start_at or self.start_before or self.schedule)


@dataclass(frozen=True, slots=True)
class Begun:
    """The run that a start returns, and whether it is new.
    `accepted` is set only if the run is new and the start sent it no signal."""

    run: Run
    accepted: Accepted | None = None
    is_new: bool = True

    @classmethod
    def of(cls, accepted: Accepted) -> Self:
        return cls(accepted.run, accepted)


def start(wanted: Wanted, *, by: Actor, most: Budget | None = None) -> Begun:
    """Start a run in the caller's transaction.

    Raises KeyTaken, KeyBusy, and the errors of `lifecycle.accept`, `lifecycle.cancel` and `signals.signal`.
    """
    assert connection.in_atomic_block, "a start and its effects on other runs of its key must be one transaction"
    if not wanted.is_plain:
        _check_times(wanted, now=database_now())
    if not wanted.business_key:
        plan = None if wanted.is_plain else _plan(wanted)
        return _delivered(wanted, Begun.of(_accept(wanted, plan, by=by, most=most)), by=by)
    name = registry.find(wanted.agent).name
    lock(name, wanted.business_key)
    for _ in range(_CHECKS):
        try:
            with transaction.atomic():
                return _delivered(wanted, _start_keyed(wanted, name, by=by, most=most), by=by)
        except _Moved:
            continue
        except IntegrityError as error:
            if _ONE not in str(error):
                raise
    raise KeyBusy()


class _Moved(Exception):
    """The run that the start should have returned has ended or was continued meanwhile."""


def _start_keyed(wanted: Wanted, name: str, *, by: Actor, most: Budget | None) -> Begun:
    alive = living(name, wanted.business_key)
    if not alive:
        return Begun.of(_accept(wanted, _plan(wanted), by=by, most=most))
    # A queued run only waits. Any other rule would reveal or change another person's run.
    if wanted.on_conflict != "queue" and (hidden := _hidden(alive)) is not None:
        raise KeyTaken(hidden)
    return _RULES[wanted.on_conflict](wanted, alive, by, most)


def _hidden(runs: list[Run]) -> Run | None:
    known = seen.among(run.id for run in runs)
    return next((run for run in runs if run.id not in known), None)


Rule = Callable[[Wanted, list[Run], Actor, Budget | None], Begun]


def _refuse(wanted: Wanted, alive: list[Run], by: Actor, most: Budget | None) -> Begun:
    raise KeyTaken(alive[0])


def _join(wanted: Wanted, alive: list[Run], by: Actor, most: Budget | None) -> Begun:
    """Return the active run.
    The input is checked nevertheless, with that run's version if this process has it."""
    is_known = alive[0].graph_id in registry.graph_ids()
    which = alive[0].graph_id if is_known and "@" not in wanted.agent else wanted.agent
    lifecycle.checked(registry.find(which), wanted.input)
    return Begun(alive[0], is_new=False)


def _queue(wanted: Wanted, alive: list[Run], by: Actor, most: Budget | None) -> Begun:
    if len(alive) > MAX_QUEUED:
        problem = f"{MAX_QUEUED} runs are queued"
        errors = [{"field": "business_key", "problem": problem, "fix": "wait for some to end"}]
        raise InvalidInput(f"Limit reached for this key: {problem}.", errors=errors)
    return Begun.of(_accept(wanted, replace(_plan(wanted), behind=alive[-1].id), by=by, most=most))


def _replace(wanted: Wanted, alive: list[Run], by: Actor, most: Budget | None) -> Begun:
    """Cancel all runs of the key, and begin or queue the new one.
    The newest is cancelled first, so that no queued run starts because an earlier one ends."""
    for run in reversed(alive):
        _cancel(run, by=by, why=f"replaced by a new run of its key {wanted.business_key}")
    return _begin_or_queue(wanted, alive[0].agent, by=by, most=most)


def _debounce(wanted: Wanted, alive: list[Run], by: Actor, most: Budget | None) -> Begun:
    """Replace the last run of the key if it hasn't begun; otherwise queue the new run behind it."""
    _, last = command.locked(alive[-1].id, under=by)
    if last.state in ENDED:
        raise _Moved
    if not last.has_begun:
        _cancel(last, by=by, why=f"a later start of its key {wanted.business_key} replaced it")
    return _begin_or_queue(wanted, last.agent, by=by, most=most)


def _begin_or_queue(wanted: Wanted, agent: str, *, by: Actor, most: Budget | None) -> Begun:
    left = living(agent, wanted.business_key)
    return _queue(wanted, left, by, most) if left else Begun.of(_accept(wanted, _plan(wanted), by=by, most=most))


_RULES: dict[str, Rule] = {
    "refuse": _refuse,
    "join": _join,
    "queue": _queue,
    "replace": _replace,
    "debounce": _debounce,
}


def _cancel(run: Run, *, by: Actor, why: str) -> None:
    """Cancel a run unless it has ended or is ending.
    Raises Forbidden, and _Moved if it was continued as another run."""
    try:
        with transaction.atomic():
            lifecycle.cancel(run.id, by=by, justification=why, by_rule=True)
    except IllegalTransition as past:
        if Run.objects.filter(pk=run.pk, goes_on_as__isnull=False).exists():
            raise _Moved from past


def _accept(wanted: Wanted, plan: Plan | None, *, by: Actor, most: Budget | None) -> Accepted:
    return lifecycle.accept(
        wanted.agent,
        wanted.input,
        by=by,
        tags=wanted.tags,
        budget=wanted.budget,
        most=most,
        plan=plan,
        attributes=wanted.attributes,
        request_key=wanted.request_key,
    )


def _plan(wanted: Wanted) -> Plan:
    start_at = wanted.start_at
    if wanted.on_conflict == "debounce" and wanted.window is not None:
        start_at = database_now() + wanted.window
    return Plan(
        business_key=wanted.business_key,
        on_conflict=wanted.on_conflict if wanted.business_key else "",
        start_at=start_at,
        start_before=wanted.start_before,
        schedule=wanted.schedule,
        planned_at=wanted.planned_at,
    )


def _delivered(wanted: Wanted, begun: Begun, *, by: Actor) -> Begun:
    """Send the signal that comes with the start to the run that the start returns.
    Raises _Moved if that run has ended."""
    if wanted.deliver is None:
        return begun
    signal = wanted.deliver
    _, run = command.locked(begun.run.id, under=by)
    if run.state in ENDED:
        raise _Moved
    signals.signal(begun.run.id, signal.name, signal.payload, by=by, sender_id=signal.id)
    return Begun(begun.run, is_new=begun.is_new)


def _check_rule(body: StartBody) -> None:
    """Check that the conflict rule, the key, the window and the start time fit together. Raises InvalidInput.
    A conflict rule needs a key. Only "debounce" has a window, which it needs instead of a start time."""
    errors = []
    is_debounced = body.on_conflict == "debounce"
    if body.on_conflict is not None and body.business_key is None:
        errors.append({"field": "on_conflict", "problem": "needs a business key", "fix": "give business_key"})
    if is_debounced and body.debounce_seconds is None:
        errors.append({"field": "debounce_seconds", "problem": "is missing", "fix": "give a number of seconds"})
    if body.debounce_seconds is not None and not is_debounced:
        fix = 'set on_conflict to "debounce", or leave it out'
        errors.append({"field": "debounce_seconds", "problem": 'requires on_conflict "debounce"', "fix": fix})
    if is_debounced and body.start_at is not None:
        problem = "the window determines when a debounced run starts"
        errors.append({"field": "start_at", "problem": problem, "fix": "leave it out"})
    if errors:
        raise does_not_fit(errors)


def _check_times(wanted: Wanted, *, now: datetime) -> None:
    """Check that the times leave enough time to begin, and aren't too far in the future. Raises InvalidInput."""
    errors = []
    if wanted.start_at is not None and abs(wanted.start_at - now) > FARTHEST:
        fix = "an earlier time" if wanted.start_at > now else "a future time, or none"
        errors.append({"field": "start_at", "problem": f"more than {FARTHEST.days} days away", "fix": fix})
    if wanted.start_before is not None and wanted.start_before <= max(now, wanted.start_at or now):
        problem = "has passed" if wanted.start_before <= now else "is not after start_at"
        errors.append({"field": "start_before", "problem": problem, "fix": "a later time"})
    if errors:
        raise InvalidInput(f"The run could never start: {errors[0]['field']} {errors[0]['problem']}.", errors=errors)


# --- the key ----------------------------------------------------------------------------------------------------------


def lock(agent: str, key: str) -> None:
    """Lock the key until the transaction ends. The caller must not have locked a head before."""
    named = hashlib.sha256(f"business key\n{agent}\n{key}".encode()).digest()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(named[:8], "big", signed=True)])


def living(agent: str, key: str) -> list[Run]:
    """Return the runs of a key that have not ended: the active one, then the queued ones in order."""
    rows = Run.objects.filter(agent=agent, business_key=key, ended_at__isnull=True).exclude(business_key="")
    return sorted(rows.order_by("created_at", "id")[: MAX_QUEUED + 1], key=lambda run: run.is_queued)
