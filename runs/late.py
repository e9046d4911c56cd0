"""News from a worker that lost its run while its call was under way: the answer, which it may not record under its lease any more.

It is the best witness there is: its answer settles a call that is in doubt or unknown, whoever was going to be asked. Where the outcome
is settled already it is recorded without effect, and loudly if it belies what a person said.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import append
from ledger.clock import database_now
from ledger.events import decode, unseal
from ledger.models import Event, Head
from runs import live
from runs.acts import locked, resolve, wake
from runs.engine.dispatch import digest_of
from runs.engine.journal import Entry
from runs.engine.outcomes import LateAnswer
from runs.engine.tape import Attempt, Tape, payload_of
from runs.models import ENDED, Run
from runs.settle import close_others

log = logging.getLogger("runs.late")


def lost_worker(incarnation: UUID) -> Actor:
    """The worker as an outside witness: it acts without a lease."""
    return Actor(kind="worker", name=str(incarnation), role="lost", auth="system")


@transaction.atomic
def hand_in(late: LateAnswer, by: Actor) -> bool:
    """Take the answer. True if it settled the call. Handing it in again changes nothing."""
    head, run = locked(UUID(late.run_id), under=by)
    told = _told_of(run, late)
    attempt = Tape(told).slot(late.slot).at(late.attempt)
    if not isinstance(attempt.intent, e.ToolInvoked) or any(getattr(x, "by", None) == by.ref for x in told):
        return False
    if late.accepted is not None and payload_of(attempt.accepted) == late.accepted:
        return False
    if late.failure is None and _may_settle(run, attempt):
        if late.accepted is not None:
            _accept(head, run, late, by)
        else:
            _settle(run, late, attempt, attempt.intent, by)
        return True
    contradicts = _contradicted(late, attempt)
    n = sum(isinstance(x, e.ToolAnsweredLate) for x in told)
    outcome, said = _told_by(late)
    event = e.ToolAnsweredLate(
        slot=late.slot, attempt=late.attempt, tool=late.tool, by=by.ref, outcome=outcome, contradicts=contradicts, n=n,
        payload=said,
    )  # fmt: skip
    live.ring(run.id, append(run.id, event, by=by))
    level = logging.ERROR if contradicts else logging.WARNING
    log.log(level, "run %s: %s of slot %s %s, says the worker that sent it%s", run.id, late.tool, late.slot, outcome,
            f"; the verdict on record was {contradicts!r}" if contradicts else "; recorded, without effect")  # fmt: skip
    return False


@transaction.atomic
def note_unrecorded(late: LateAnswer, by: Actor, problem: str) -> None:
    """The answer itself can't be recorded: that it came, and why it isn't here, so that people know where to look."""
    _, run = locked(UUID(late.run_id), under=by)
    n = sum(isinstance(x, e.ToolAnsweredLate) for x in _told_of(run, late))
    event = e.ToolAnsweredLate(
        slot=late.slot, attempt=late.attempt, tool=late.tool, by=by.ref, outcome="refused" if late.result is None else "happened", contradicts="",
        n=n, payload={"problem": problem, "external_id": late.external_id},
    )  # fmt: skip
    live.ring(run.id, append(run.id, event, by=by))


def _told_by(late: LateAnswer) -> tuple[str, Any]:
    """The outcome that it tells of, and what it says."""
    if late.failure is not None:
        return "refused", late.failure
    return ("accepted", late.accepted) if late.accepted is not None else ("happened", {"result": late.result})


def _told_of(run: Run, late: LateAnswer) -> list[e.Event]:
    rows = Event.objects.filter(run_id=run.id, slot=late.slot, attempt=late.attempt).order_by("seq").values_list("clear", "sealed")
    return [decode(clear, unseal(sealed)) for clear, sealed in rows]


def _may_settle(run: Run, attempt: Attempt) -> bool:
    """Whether nobody knows the outcome, and nobody is about to: a worker that repeats a keyed call gets the answer itself."""
    if run.state in ENDED or attempt.result is not None or attempt.accepted is not None:
        return False
    if attempt.reconciled is not None and attempt.open_wait("reconcile") is None:
        return False
    assert isinstance(attempt.intent, e.ToolInvoked)
    return run.owner is None or attempt.intent.replay_class == "unsafe_on_replay"


def _settle(run: Run, late: LateAnswer, attempt: Attempt, intent: e.ToolInvoked, by: Actor) -> None:
    now = database_now()
    n = attempt.open_wait("reconcile")
    event = e.ToolReconciled(
        slot=late.slot, attempt=late.attempt, tool=late.tool, verdict="happened", by=by.ref, n=n or 0,
        payload={"result": late.result, "receipt": {"from": "the worker that sent the call, after it had lost the run"}},
    )  # fmt: skip
    entry = Entry(
        late.slot, late.attempt, "reconciled", late.tool, intent.replay_class, key=payload_of(intent).get("key"),
        input_hash=intent.requested_hash, external_id=late.external_id, digest=digest_of(late.result),
    )  # fmt: skip
    told = _resolve_waits(run, late, by, now)
    wake(run, now=now)
    live.ring(run.id, append(run.id, event, *told, by=by, entries=[entry]))
    log.warning("run %s: the worker that had sent %s handed its answer in: settled", run.id, late.tool)


def _accept(head: Head, run: Run, late: LateAnswer, by: Actor) -> None:
    """The other side took the call: nobody needs to be asked, and its callback is waited for, in the time that it gave."""
    assert late.accepted is not None
    now = database_now()
    own = run.waits.filter(slot=late.slot, attempt=late.attempt, kind="webhook", resolved_at__isnull=True)
    own.update(deadline=datetime.fromisoformat(late.accepted["deadline"]), is_overdue=False)
    told = close_others(run, late.slot, late.attempt, by=by, now=now, kind="webhook")
    head.steps, head.tool_calls = head.steps + 1, head.tool_calls + 1  # as if the worker had recorded it itself
    head.save(update_fields=["steps", "tool_calls"])
    wake(run, now=now)
    event = e.ToolAccepted(slot=late.slot, attempt=late.attempt, tool=late.tool, payload=late.accepted)
    live.ring(run.id, append(run.id, event, *told, by=by))
    log.warning("run %s: the worker that had sent %s handed in that it was taken: its callback is waited for", run.id, late.tool)


def _resolve_waits(run: Run, late: LateAnswer, by: Actor, now: datetime) -> list[e.Event]:
    """Whatever is waited for because of this call: a person's verdict, which the event itself closes, or a timer to send it again."""
    for wait in run.waits.select_for_update().filter(slot=late.slot, attempt=late.attempt, resolved_at__isnull=True, kind__in=_CLOSED_BY_IT):
        resolve(wait, _CLOSED_BY_IT[wait.kind], by=by.ref, now=now)
    return close_others(run, late.slot, late.attempt, by=by, now=now)


# What the event of the answer itself closes, and how.
_CLOSED_BY_IT = {"reconcile": "happened", "webhook": "settled"}


def _contradicted(late: LateAnswer, attempt: Attempt) -> str:
    """The verdict on record that the answer belies."""
    verdict = attempt.reconciled.verdict if attempt.reconciled is not None else ""
    if late.failure is not None:
        return verdict if verdict == "happened" else ""
    return verdict if verdict in ("did_not", "fail") else ""
