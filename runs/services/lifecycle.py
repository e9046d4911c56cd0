"""Starting, pausing, resuming, cancelling and retrying runs, authorized under the lock.
For locks and transactions see `command`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import uuid_utils
from django.db import IntegrityError, connection, transaction
from pydantic import ValidationError

from ledger import context
from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted, kept_bytes, lines
from ledger.contents import stored_text
from ledger.errors import IllegalTransition, InvalidInput, NotFound
from ledger.models import Head
from ledger.protocol import PROTOCOL
from ledger.web import misfit
from runs import features
from runs.engine.agents import Agent
from runs.engine.attributes import BadAttributes, setting
from runs.engine.budget import Budget
from runs.engine.canonical import TooLarge, has_at_most, plain
from runs.engine.errors import JournalBroken
from runs.engine.gating.fields import ABOUT_LENGTH, subject
from runs.fleet.agent_versions import note_use
from runs.fleet.members import FRESH_SECONDS
from runs.journal import notify
from runs.journal.reader import tape_of
from runs.models import TIME_TO_LIVE, Run, State, Wait
from runs.services import halted_time, related_runs, retrying, wakeups
from runs.services.budgets import starting
from runs.services.budgets.asked import note
from runs.services.budgets.starting import budget_for
from runs.services.command import (
    Act,
    due_at,
    end_as_cancelled,
    held_by,
    make_ready,
    open_waits,
    resolve,
    resolved,
    save,
    unpause,
    wake,
)
from runs.services.undo import UNDO, by_policy, chosen
from runs.services.version_choice import Key, choose

# --- starting ---------------------------------------------------------------------------------------------------------


NOTHING: Mapping[str, Any] = MappingProxyType({})
# The time limit is the column's default, counted from the statement's own time.
_START = (
    "SELECT *, statement_timestamp() + %s::interval"
    " FROM runs_start(%s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s, %s::text[], {lines}, %s)"
)
LARGE_INPUT = 1024 * 1024
# Packing a large input and writing it to the store may take longer than a transaction may be idle.
_PATIENCE = "SET LOCAL idle_in_transaction_session_timeout = '2min'"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a start: earliest and latest time, and the run ahead of it in the queue of its key
    (runs/services/starts)."""

    business_key: str = ""
    on_conflict: str = ""
    start_at: datetime | None = None
    start_before: datetime | None = None
    behind: UUID | None = None
    schedule: UUID | None = None
    planned_at: datetime | None = None

    def told(self) -> e.StartPlanned:
        return e.StartPlanned(
            business_key=self.business_key,
            on_conflict=self.on_conflict,
            start_at=_iso(self.start_at),
            start_before=_iso(self.start_before),
            behind=None if self.behind is None else str(self.behind),
            schedule="" if self.schedule is None else str(self.schedule),
            planned_at=_iso(self.planned_at),
        )

    def store(self, run: Run, *, has_time: bool) -> None:
        """Store the plan in the new run's row.
        Raises IntegrityError if another run of the key is active. The default time limit counts from when the run may
        begin; with `has_time`, the run has a limit of its own."""
        run.business_key, run.is_queued = self.business_key, self.behind is not None
        run.start_at, run.start_before = self.start_at, self.start_before
        run.ready_at = due_at(run, now=run.created_at)
        if not has_time and run.time_up_at is not None:
            run.time_up_at += run.counts_from - run.created_at
        fields = ("business_key", "is_queued", "start_at", "start_before", "ready_at", "time_up_at")
        Run.objects.filter(pk=run.pk).update(**{name: getattr(run, name) for name in fields})


def _iso(at: datetime | None) -> str:
    return "" if at is None else at.isoformat()


@dataclass(frozen=True, slots=True)
class Accepted:
    """A new run with its head, the versions that workers drive, and the halt that covers it.
    `found_by` and `assigned` are the events that set its search attributes and its version."""

    run: Run
    head: Head
    drivable: frozenset[str]
    found_by: list[e.AttributesSet]
    assigned: e.VersionAssigned | None = None
    halted: Mapping[str, Any] | None = None


@transaction.atomic
def start(
    agent: str,
    input: Any,
    *,
    by: Actor,
    tags: Iterable[str] | dict[str, str] = (),
    budget: Budget | None = None,
    attributes: Mapping[str, Any] = NOTHING,
) -> Run:
    """Accept a run of `name` (see version_choice.py) or `name@version`.
    Raises UnknownAgent, UnknownVersion, VersionClosed, VersionChanged, InvalidInput."""
    return accept(agent, input, by=by, tags=tags, budget=budget, attributes=attributes).run


def accept(
    agent: str,
    input: Any,
    *,
    by: Actor,
    tags: Iterable[str] | dict[str, str] = (),
    budget: Budget | None = None,
    most: Budget | None = None,
    plan: Plan | None = None,
    attributes: Mapping[str, Any] = NOTHING,
    request_key: str = "",
    forked: e.RunForked | None = None,
) -> Accepted:
    """Accept a run like `start`, in the caller's transaction, which must be rolled back if this raises.
    `most` is the highest budget that the caller may grant. `plan` tells when the run may begin, and needs the lock of
    its key. `request_key` is the Idempotency-Key, which identifies a start without a business key. If
    `forked` is given, this event is recorded too."""
    assert connection.in_atomic_block, "a run and the record of its starter must be written in one transaction"
    run_id = UUID(str(uuid_utils.uuid7()))
    assigned = choose(agent, tags=tags, key=_key_of(plan, request_key, run_id))
    version = assigned.agent
    payload = checked(version, input)
    if not has_at_most(payload, LARGE_INPUT):
        with connection.cursor() as cursor:
            cursor.execute(_PATIENCE)
    run = Run(
        id=run_id,
        agent=version.name,
        version=version.version,
        graph_id=version.graph_id,
        tags=dict(tags) if isinstance(tags, dict) else list(tags),
        trace_id=context.new_trace_id(),
        created_by=by.ref,
        creator=by.person,
        about=subject(payload)[:ABOUT_LENGTH],
    )
    created = e.RunCreated(agent=version.name, version=version.version, by=by.ref, protocol=PROTOCOL, payload=payload)
    limits = starting.Limits.of(
        budget_for(version, budget, tags=tags, most=most), by, not_before=plan.start_at if plan else None
    )
    found_by = _found_by(version, attributes, by)
    events: list[e.Event] = [created, *limits.events]
    events += [*([plan.told()] if plan else []), *([forked] if forked else []), *assigned.events, *found_by]
    with features.birth(run.id) as also:
        placeholders, values = lines(events, run.id, 0)
        about = stored_text(run.about, run.id)
    key = plan.business_key if plan else ""
    words = features.search_terms(run.id, by=run.created_by, tags=run.tags, input=payload, key=key)
    seq, chain, at, fingerprint, drivable, run.time_up_at = _insert(run, by, [about, words], placeholders, values, also)
    if fingerprint != version.fingerprint():
        note_use(version)
    run.ready_at = run.created_at = run.updated_at = at
    run._state.adding = False  # runs_start has stored it
    head = Head(run_id=run.id, seq=seq, chain=chain, bytes=kept_bytes(values))
    limits.store(run, head)
    if plan is not None:
        plan.store(run, has_time=limits.time_up_at is not None)
    assigned.store(run)
    acted("start", by=by, head=head, subject=run.graph_id, after={"state": str(run.state)}, at=at)
    wakeups.ring(run.id)
    notify.ring(run.id, seq)
    return Accepted(run, head, frozenset(drivable), found_by, assigned.event, assigned.halted)


def _insert(
    run: Run,
    by: Actor,
    found_by: list[Any],
    placeholders: str,
    values: list[Any],
    also: Iterable[tuple[str, list[Any]]],
) -> tuple[Any, ...]:
    fields: list[Any] = [run.id, run.agent, run.version, run.graph_id, json.dumps(run.tags), run.trace_id]
    with connection.cursor() as cursor:
        cursor.execute(
            _START.format(lines=placeholders),
            [f"{TIME_TO_LIVE.days} days", *fields, by.ref, by.person, *found_by, *values, FRESH_SECONDS],
        )
        row: tuple[Any, ...] = cursor.fetchone()
        for statement, parameters in also:
            cursor.execute(statement, parameters)
    return row


def _key_of(plan: Plan | None, request_key: str, run_id: UUID) -> Key:
    """Return the key with which the start's version is assigned.
    A business key takes precedence, because later starts share it."""
    if plan is not None and plan.schedule is not None:
        return Key("schedule", str(plan.schedule))
    if plan is not None and plan.business_key:
        return Key("business_key", plan.business_key)
    return Key("idempotency_key", request_key) if request_key else Key("run", str(run_id))


def _found_by(agent: Agent, attributes: Mapping[str, Any], by: Actor) -> list[e.AttributesSet]:
    """Return the event that sets the run's search attributes, if any.
    Raises InvalidInput, which names each invalid attribute."""
    given = {name: value for name, value in attributes.items() if value is not None}
    try:
        return [setting(agent.attributes, given, by=by.ref)] if given else []
    except BadAttributes as error:
        problems = [{"field": f"attributes.{n}", "problem": p, "fix": fix} for n, p, fix in error.problems]
        raise InvalidInput(f"The attributes do not fit {agent.graph_id}: {error}.", errors=problems) from error


def checked(agent: Agent, input: Any) -> Any:
    """Return the validated input. Raises InvalidInput."""
    try:
        fitting = agent.input.model_validate(input)
        agent.begin(fitting)
        return plain(fitting)
    except TooLarge as error:
        raise InvalidInput(
            f"The input of {agent.graph_id} is too large: {error}.",
            errors=[
                {"field": "input", "problem": str(error), "fix": "store large data elsewhere and send its location"}
            ],
        ) from error
    except ValidationError as error:
        problems = [_problem(p) for p in error.errors(include_url=False)]
        raise InvalidInput(
            f"The input does not fit {agent.graph_id}: {problems[0]['field']}: {problems[0]['problem']}.",
            errors=problems,
        ) from error


def _problem(error: Any) -> dict[str, str]:
    """Return a validation error as field, problem and fix. A type may supply its own fix."""
    return {
        "field": misfit.path(["input", *error["loc"]]),
        "problem": misfit.problem(error),
        "fix": misfit.fix(error),
    }


# --- steering ---------------------------------------------------------------------------------------------------------


@transaction.atomic
def pause(run_id: UUID, *, by: Actor, justification: str) -> Run:
    """Pause at the next step boundary, or at once if no worker drives the run. Raises IllegalTransition,
    JustificationRequired, NotFound."""
    act = Act("pause", run_id, by=by, justification=justification)
    run = act.run
    requested = _asked_for_budget(run)
    act.must_be_allowed(kinds=[Wait.Kind.BUDGET] if requested else [], is_held=requested is not None and _is_held(run))
    if requested is not None:
        # The run waits for its budget. A raise must not resume it before a person does.
        note(requested, {"held_by": act.by.ref})
        return act.done(e.RunPaused(by=by.ref, payload=act.payload))
    if run.owner is not None:
        act.flag(pause=True)
        return act.done(e.PauseRequested(by=by.ref, payload=act.payload))
    run.pause()
    run.is_woken, run.ready_at = run.ready_at is not None, None
    save(run, "is_woken", "ready_at", now=act.now)
    return act.done(e.RunPaused(by=by.ref, payload=act.payload))


def _asked_for_budget(run: Run) -> Wait | None:
    if run.state != State.PAUSED or run.is_undoing:
        return None
    return run.waits.select_for_update().filter(kind=Wait.Kind.BUDGET, resolved_at__isnull=True).first()


def _is_held(run: Run) -> bool:
    return held_by(run) is not None


@transaction.atomic
def resume(run_id: UUID, *, by: Actor, justification: str) -> Run:
    """Resume a paused run: it returns to its waits, or to a worker if one was resolved meanwhile.
    Raises what `pause` raises."""
    act = Act("resume", run_id, by=by, justification=justification)
    run = act.run
    is_asking = run.waits.filter(kind=Wait.Kind.BUDGET, resolved_at__isnull=True).exists()
    act.must_be_allowed(kinds=[Wait.Kind.BUDGET] if is_asking else [], is_held=is_asking and _is_held(run))
    _must_be_alone(act)
    if run.state != State.PAUSED:
        act.flag(pause=False)  # The worker has not reached the step boundary yet.
        return act.done(e.RunResumed(by=by.ref, state=str(run.state), payload=act.payload))
    unpause(run, act.head, now=act.now)
    return act.done(e.RunResumed(by=by.ref, state=str(run.state), payload=act.payload))


def _must_be_alone(act: Act) -> None:
    """Check that no related run does the same work. Locks related runs. Raises IllegalTransition."""
    related_runs.lock(act.run.pk)
    if (other := related_runs.find_competing_run(act.run)) is not None:
        raise act.refuse(related_runs.why_not(other))


@transaction.atomic
def cancel(run_id: UUID, *, by: Actor, justification: str, effects: str | None = None, by_rule: bool = False) -> Run:
    """Cancel a run: nothing more is dispatched, and calls in doubt are settled first.
    Raises InvalidInput, and the errors of `pause`. `effects` must be "undo" or "leave" if there are any to undo. If the
    system or a rule (`by_rule`, a later start of its key) ends the run, its agent decides that."""
    act = Act("cancel", run_id, by=by, justification=justification)
    run = act.run
    act.must_be_allowed(kinds=[w.kind for w in open_waits(run) if w.kind in (Wait.Kind.OPERATOR, Wait.Kind.RECONCILE)])
    is_policys = (by_rule or by.kind == "system") and effects is None and not run.is_undoing
    payload = act.payload | (by_policy(run) if is_policys else chosen(run, effects))
    event = end_as_cancelled(run, act.head, by=act.by.ref, payload=payload, now=act.now)
    return act.done(event, *_looked_at(act, payload))


def _stops_of(run: Run) -> list[str]:
    is_stopped = run.waits.filter(kind=Wait.Kind.OPERATOR, resolved_at__isnull=True).exists()
    return [Wait.Kind.OPERATOR] if is_stopped else []


def _looked_at(act: Act, payload: dict[str, Any]) -> list[e.Event]:
    """Withdraw the operator and budget waits of a run that will undo its effects.
    Returns the events to be written."""
    if payload.get("effects") != UNDO:
        return []
    stops = list(act.run.waits.select_for_update().filter(kind__in=("operator", "budget"), resolved_at__isnull=True))
    for stop in stops:
        resolve(stop, "withdrawn", by=act.by.ref, now=act.now)
    return [resolved(stop, "withdrawn", by=act.by.ref) for stop in stops]


@transaction.atomic
def retry(run_id: UUID, *, by: Actor, justification: str) -> Run:
    """Re-enter the visit of a failed run, or of one that stopped for an operator. Raises what `pause` raises.

    Committed calls are answered from the journal. Only definite failures that the node didn't continue from are tried
    again, under an approval that is still valid or a new one. The run waits again for callbacks that didn't arrive. A
    waiting run that undoes its effects, and its children, check their waits again.
    """
    act = Act("retry", run_id, by=by, justification=justification)
    run, head = act.run, act.head
    act.must_be_allowed(kinds=_stops_of(run))
    _must_be_alone(act)
    stops = list(run.waits.select_for_update().filter(kind="operator", resolved_at__isnull=True))
    if run.state != State.FAILED and not stops:
        wake(run, now=act.now)
        return act.done(e.RunRequeued(by=by.ref, role=by.role, worker="", payload=act.payload))
    head.deaths = 0
    head.save(update_fields=["deaths"])
    if run.state == State.FAILED:
        try:
            tape = tape_of(run)
        except JournalBroken as broken:
            raise act.refuse(f"The run's journal is damaged: {broken}.") from broken
        reopened, late = tape.to_reopen(), _unheard(act)
        settled, entries = retrying.settle_by_witnesses(run, tape)
        over = retrying.over(run, now=act.now)
        questions = retrying.reopen(run, tape, over=over)
        opened = retrying.await_again(run, tape, now=act.now)
        taken = act.refuse(retrying.KEY_LIVES.format(run.business_key))
        run.retry()
        run.ended_at, run.end_seq, run.error_code, run.is_passed_on = None, None, "", False
        make_ready(run, now=act.now)
        _live_again(act, taken)
        payload = act.payload | late | {"over": [at.isoformat() for at in over]}
        retried = e.RunRetried(by=by.ref, reopened=reopened, payload=payload)
        act.done(retried, *settled, *opened, entries=entries)
        for question in questions:
            halted_time.follow_deadline(question.pk)
        return run
    payload = act.payload | _unheard(act)
    resolved = [
        e.WaitResolved(
            slot=w.slot, attempt=w.attempt, wait=w.kind, n=w.n, resolution="retried", by=by.ref, payload=payload
        )
        for w in stops
    ]
    for stop in stops:
        resolve(stop, "retried", by=by.ref, now=act.now)
    wake(run, now=act.now)
    return act.done(*resolved)


def _live_again(act: Act, taken: IllegalTransition) -> None:
    """Store a retried run. Raises `taken` if another run of its key is active."""
    try:
        with transaction.atomic():
            save(act.run, "ended_at", "end_seq", "error_code", "is_passed_on", "ready_at", now=act.now)
    except IntegrityError as error:
        raise taken from error


def _unheard(act: Act) -> dict[str, Any]:
    """Return the late results since the last retry, which the run's worker first reports to an operator."""
    try:
        late = retrying.unheard_of(act.run)
    except (ValueError, KeyError) as broken:
        raise act.refuse(f"The run's journal is damaged: {broken}.") from broken
    return {"late": late} if late else {}


def find(run_id: UUID) -> Run:
    """Return a run without locking it. Raises NotFound."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    return run
