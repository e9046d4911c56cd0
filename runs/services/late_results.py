"""Late results: outcomes of calls that the sending worker can't record itself.
That worker has lost the run, or another outcome of the call was recorded first. Late results settle an unknown outcome
unless the run's worker may repeat the call; otherwise they are recorded without effect."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.events import decode
from ledger.models import Event, Head
from runs.engine import unknown
from runs.engine.journal import Intent
from runs.engine.outcomes import LateAnswer
from runs.engine.tape import Attempt, Tape, payload_of
from runs.models import ENDED, Run
from runs.services.calls import close_others, tool_here
from runs.services.command import journal, locked, resolve, wake

log = logging.getLogger("runs.services.late_results")


def lost_worker(incarnation: UUID) -> Actor:
    """Return the actor for a worker without a lease."""
    return Actor(kind="worker", name=str(incarnation), role="lost", auth="system")


@transaction.atomic
def record_late_result(late: LateAnswer, by: Actor) -> bool:
    """Record a late result. Returns whether that settled the call or its acceptance. Idempotent."""
    head, run = locked(UUID(late.run_id), under=by)
    on_record = _on_record(run, late)
    attempt = Tape(on_record).slot(late.slot).at(late.attempt)
    if not isinstance(attempt.intent, e.ToolInvoked) or any(_is_the_same(event, late, by) for event in on_record):
        return False
    if late.accepted is not None and payload_of(attempt.accepted) == late.accepted:
        return False
    if late.failure is None and _may_settle(run, head, attempt, late):
        if late.accepted is not None:
            _accept(head, run, late, by)
        else:
            _settle(run, late, attempt, attempt.intent, by)
        return True
    outcome, payload = _testimony(late)
    contradicts = _note(run, late, on_record, outcome, payload, by)
    level = logging.ERROR if contradicts else logging.WARNING
    consequence = f"; recorded was {contradicts!r}" if contradicts else "; recorded, without effect"
    log.log(
        level,
        "run %s: %s of slot %s %s, says the worker that sent it%s",
        run.id,
        late.tool,
        late.slot,
        outcome,
        consequence,
    )
    return False


@transaction.atomic
def note_unrecorded(late: LateAnswer, by: Actor, problem: str) -> None:
    """Record that a result arrived, and why its content can't be recorded.
    People then know where to look for it."""
    _, run = locked(UUID(late.run_id), under=by)
    on_record = _on_record(run, late)
    payload = {"problem": problem, "external_id": late.external_id}
    _note(run, late, on_record, _testimony(late)[0], payload, by)


def _note(run: Run, late: LateAnswer, on_record: list[e.Event], outcome: str, payload: Any, by: Actor) -> str:
    """Record a late result without effect. Returns the recorded outcome that the result contradicts; "" if none."""
    contradicts = Tape(on_record).slot(late.slot).at(late.attempt).finding.contradicted_by(outcome)
    event = e.ToolAnsweredLate(
        slot=late.slot,
        attempt=late.attempt,
        tool=late.tool,
        by=by.ref,
        outcome=outcome,
        contradicts=contradicts,
        n=sum(isinstance(each, e.ToolAnsweredLate) for each in on_record),
        payload=payload,
    )
    journal(run.id, event, by=by)
    return contradicts


def _testimony(late: LateAnswer) -> tuple[str, Any]:
    if late.failure is not None:
        return "refused", late.failure
    return ("accepted", late.accepted) if late.accepted is not None else ("happened", {"result": late.result})


def _is_the_same(event: e.Event, late: LateAnswer, by: Actor) -> bool:
    """Return whether the event records the same result from this worker.
    A worker may first report an acceptance and later a result."""
    match event:
        case e.ToolAnsweredLate(by=by.ref):
            return (event.outcome, event.payload) == _testimony(late)
        case e.ToolReconciled(by=by.ref):
            return late.result is not None and payload_of(event).get("result") == late.result
        case _:
            return False


def _on_record(run: Run, late: LateAnswer) -> list[e.Event]:
    rows = (
        Event.objects.filter(run_id=run.id, slot=late.slot, attempt=late.attempt)
        .order_by("seq")
        .values_list("clear", "sealed")
    )
    return [decode(clear, unpack(sealed)) for clear, sealed in rows]


def _may_settle(run: Run, head: Head, attempt: Attempt, late: LateAnswer) -> bool:
    """Return whether the outcome is unknown, and the run's worker won't learn it by repeating the keyed call.
    If a worker has the run, an acceptance doesn't settle the call. Otherwise the call's sender would count as finished,
    although it may still be sending while the current worker asks a person or sends the call again."""
    if run.state in ENDED or attempt.result is not None or attempt.accepted is not None:
        return False
    if attempt.reconciled is not None and attempt.open_wait("reconcile") is None:
        return False
    if run.owner is None:
        return True
    return late.accepted is None and not _is_repeated(run, head, attempt, late)


def _is_repeated(run: Run, head: Head, attempt: Attempt, late: LateAnswer) -> bool:
    """Return whether the run's worker may send the call again without asking, or has done so."""
    intent, tool = attempt.intent, tool_here(run, late.tool)
    assert isinstance(intent, e.ToolInvoked)
    key, at = payload_of(intent).get("key"), unknown.intended_at(intent)
    is_spent = tool is not None and tool.has_forgotten(key, at, database_now())
    if unknown.may_repeat(intent.replay_class, is_key_expired=is_spent):
        return True
    announced = Event.objects.filter(run_id=run.id, slot=late.slot, attempt=late.attempt, kind="ToolRedispatched")
    return announced.filter(epoch=head.epoch).exists()


def _settle(run: Run, late: LateAnswer, attempt: Attempt, intent: e.ToolInvoked, by: Actor) -> None:
    now = database_now()
    n = attempt.open_wait("reconcile")
    event, entry = unknown.late_result(
        Intent.of(intent), late.result, by=by.ref, n=n or 0, when="it had lost the run", external_id=late.external_id
    )
    closing = _resolve_waits(run, late, by, now)
    wake(run, now=now)
    journal(run.id, event, *closing, by=by, entries=[entry])
    log.warning("run %s: the worker that had sent %s reported its answer late: settled", run.id, late.tool)


def _accept(head: Head, run: Run, late: LateAnswer, by: Actor) -> None:
    """Record that the upstream accepted the call, and wait for its callback until the given deadline."""
    assert late.accepted is not None
    now = database_now()
    own = run.waits.filter(slot=late.slot, attempt=late.attempt, kind="webhook", resolved_at__isnull=True)
    own.update(deadline=datetime.fromisoformat(late.accepted["deadline"]), is_overdue=False)
    closing = close_others(run, late.slot, late.attempt, by=by, now=now, kind="webhook")
    head.steps, head.tool_calls = head.steps + 1, head.tool_calls + 1  # as if the worker had recorded it itself
    head.save(update_fields=["steps", "tool_calls"])
    wake(run, now=now)
    event = e.ToolAccepted(slot=late.slot, attempt=late.attempt, tool=late.tool, payload=late.accepted)
    journal(run.id, event, *closing, by=by)
    log.warning(
        "run %s: the worker that had sent %s reported late that it was accepted: waiting for its callback",
        run.id,
        late.tool,
    )


def _resolve_waits(run: Run, late: LateAnswer, by: Actor, now: datetime) -> list[e.Event]:
    """Resolve the waits that this call left open: verdict, callback or retry timer.
    Returns the events to be written."""
    for wait in run.waits.select_for_update().filter(
        slot=late.slot, attempt=late.attempt, resolved_at__isnull=True, kind__in=_CLOSED_BY_IT
    ):
        resolve(wait, _CLOSED_BY_IT[wait.kind], by=by.ref, now=now)
    return close_others(run, late.slot, late.attempt, by=by, now=now)


# Kinds of waits that the result's own event closes, with their resolutions.
_CLOSED_BY_IT = {"reconcile": "happened", "webhook": "settled"}
