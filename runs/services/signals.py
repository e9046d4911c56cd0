"""Signals to runs.
A signal is kept until a call waits for it. Signals of the same name are received in order of arrival. For locks and
transactions see `command`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max

from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted, append
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.errors import DurableAgentsError, IllegalTransition, InvalidInput
from ledger.models import Event
from runs.engine.agents import SIGNAL_NAME, registry
from runs.engine.canonical import canonical
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.journal import notify
from runs.models import ENDED, Run, Signal
from runs.services.command import locked, snapshot, wake
from runs.services.continuation import check_not_continued, for_newest, is_of_chain
from runs.services.messages.sending import NotTaken


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal's number among those with its name, and whether this request created it."""

    n: int
    is_new: bool
    run: UUID | None = field(default=None, compare=False)


class OtherSignal(DurableAgentsError):
    """The id was used for another signal."""

    status, code, title = 422, "signal-mismatch", "Signal id used for something else"

    def __init__(self, name: str) -> None:
        super().__init__(f"A signal {name} with this id was sent with a different payload. Use a new id.")


@transaction.atomic
def signal(run_id: UUID, name: str, payload: Any = None, *, by: Actor, sender_id: str | None = None) -> Sent:
    """Send a signal to a run or its newest continuation.
    With `sender_id`, repeated sending yields the same signal. Raises NotFound, InvalidInput (the name), NotTaken,
    IllegalTransition (the run has ended), OtherSignal."""
    if not SIGNAL_NAME.fullmatch(name):
        fix = "lower case letters, digits, dots, dashes and underscores, at most 64, a letter first"
        problem = {"field": "name", "problem": "not a signal's name", "fix": fix}
        raise InvalidInput("Invalid signal name.", errors=[problem])
    return for_newest(run_id, lambda newest: _signal(newest, name, payload, by, sender_id))


def _signal(run_id: UUID, name: str, payload: Any, by: Actor, sender_id: str | None) -> Sent:
    head, run = locked(run_id, under=by)
    check_not_continued(run)
    known = _earlier_signal(run, name, sender_id)
    if known is not None:
        if canonical(_payload(known)) != canonical(payload):
            raise OtherSignal(name)
        return Sent(known.n, False, known.run_id)
    _must_be_taken(run, name)
    if run.state in ENDED:
        raise IllegalTransition("signal", str(run.state), "A run that has ended accepts no signals.")
    before = snapshot(run, head)
    n = 1 + (run.signals.filter(name=name).aggregate(last=Max("n"))["last"] or 0)
    seq = append(run.id, e.SignalReceived(name=name, n=n, by=by.ref, payload=payload), by=by)
    Signal.objects.create(run=run, name=name, n=n, seq=seq, sender_id=sender_id)
    is_taken = _hand_over(run, name)
    acted("signal", by=by, head=head, subject=f"{name} {n}", before=before, after=snapshot(run, head))
    notify.ring(run.id, seq + is_taken)
    return Sent(n, True, run.id)


def _earlier_signal(run: Run, name: str, sender_id: str | None) -> Signal | None:
    if sender_id is None:
        return None
    return Signal.objects.filter(is_of_chain(run), name=name, sender_id=sender_id).order_by("-id").first()


def _must_be_taken(run: Run, name: str) -> None:
    """Check that the run's version declares the signal; a process without that version accepts any.
    Raises NotTaken."""
    try:
        declared = registry.find(run.graph_id).signals
    except (UnknownAgent, UnknownVersion):
        return
    if declared is not None and name not in declared:
        raise NotTaken(run.graph_id, "signal", name, sorted(declared))


def _hand_over(run: Run, name: str) -> bool:
    """Give the signal to the call that has waited longest, if any.
    Uses the same SQL function as the engine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_hand_over(%s, %s)", [run.id, name])
        is_taken = bool(cursor.fetchone()[0])
    if is_taken:
        wake(run, now=database_now())
    return is_taken


def _payload(known: Signal) -> Any:
    return unpack(Event.objects.values_list("sealed", flat=True).get(run_id=known.run_id, seq=known.seq))
