"""What every act on a run is made of: the locks, the justification, waking, withdrawing, and the record it leaves.

Lock order: Head, Run, the line of what was begun again (`related_runs.py`), Wait, Approval. A run that a worker drives
is never moved here: its flag is set, or its wait resolved, and the worker sees it at its next step boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db import connection

from ledger import events as e
from ledger.actors import Actor
from ledger.append import append, justified, locked_head, override
from ledger.clock import database_now
from ledger.entries import Entry
from ledger.errors import IllegalTransition
from ledger.models import Head
from runs.engine.errors import JournalBroken
from runs.engine.journal import WaitSpec
from runs.engine.outcomes import waiting_state
from runs.journal import notify, wait_hooks
from runs.journal.reader import tape_of
from runs.models import WAITING, Run, State, Wait
from runs.services import authority, wakeups
from runs.services.allowed import stand_of, why_not
from runs.services.undo import UNDO, by_policy


def locked(run_id: UUID, *, under: Actor) -> tuple[Head, Run]:
    """Head and run, locked in that order, for a named actor. Raises NotFound."""
    assert isinstance(under, Actor)
    head = locked_head(run_id)
    return head, Run.objects.select_for_update().get(pk=run_id)


def is_busy(run_id: UUID) -> bool:
    """Whether somebody holds the run just now; if not, it is the caller's until their transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE SKIP LOCKED", [run_id])
        return cursor.fetchone() is None and Head.objects.filter(run_id=run_id).exists()


def journal(run_id: UUID, *events: e.Event, by: Actor, entries: Sequence[Entry] = ()) -> None:
    """Append events, and let those who watch the run know once they are committed."""
    notify.ring(run_id, append(run_id, *events, by=by, entries=entries))


def show_anew(run_id: UUID) -> None:
    """Let those who watch the run read again, once this is committed: of what moved its journal says nothing."""
    notify.ring(run_id, 0)


def show_to(person: int) -> None:
    """Let an account's lists read again, once this is committed: something is theirs, or no longer, of a run that they
    may not see."""
    notify.ring_for(person)


def save(run: Run, *fields: str, now: datetime) -> None:
    """Store what a transition changed. Who watches the run's parent sees it there, too."""
    run.updated_at = now
    run.save(update_fields=["state", "updated_at", *fields])
    notify.ring_above(run.parent)


def make_ready(run: Run, *, now: datetime) -> None:
    """The run wants driving: said in the row, and by a queue message in the same transaction. It calls a worker after
    the commit. One that is not to be begun yet is ready when it may be."""
    run.ready_at = due_at(run, now=now)
    wakeups.drive(run.id)


def due_at(run: Run, *, now: datetime) -> datetime | None:
    """When a run that nothing else holds wants driving; None: not before its turn comes."""
    if run.state != State.PENDING or run.started_at is not None:
        return now
    return None if run.is_queued else max(now, run.start_at or now)


def wake(run: Run, *, now: datetime) -> None:
    """Something that the run waits for was resolved. Under a pause it is kept for later, and so it is while the run
    stands still for an operator; a driven run's worker sees it itself."""
    if run.owner is not None:
        return
    if run.state == State.PAUSED:
        run.is_woken = True
    elif run.state in WAITING and not is_stopped(run):
        run.wake_to_undo() if run.is_undoing else run.wake()
        make_ready(run, now=now)
    save(run, "is_woken", "ready_at", now=now)


def is_stopped(run: Run) -> bool:
    """Whether nothing executes before an operator has looked. Whoever cancels has: then it only goes on to its end."""
    stops = run.waits.filter(kind="operator", resolved_at__isnull=True)
    return stops.exists() and not Head.objects.filter(run_id=run.pk, is_cancel_requested=True).exists()


def open_waits(run: Run) -> list[Wait]:
    return list(run.waits.filter(resolved_at__isnull=True).order_by("opened_at"))


def open_wait(run: Run, spec: WaitSpec, *, now: datetime) -> None:
    """Store the row of a wait that somebody else than the run's worker opens. Its event is the caller's to write."""
    Wait.objects.create(
        id=spec.id,
        run=run,
        slot=spec.slot,
        attempt=spec.attempt,
        kind=spec.kind,
        n=spec.n,
        opened_at=now,
        deadline=spec.deadline,
        detail=spec.detail,
    )


def resolve(wait: Wait, resolution: str, *, by: str, now: datetime) -> None:
    """Settle a locked wait. The caller has checked that it is open: the first resolution wins, also against a caller
    that hasn't."""
    if wait.resolved_at is not None:
        raise IllegalTransition(
            "settle a wait", str(wait.resolution), f"It was settled by {wait.resolved_by}: what came first stands."
        )
    wait.resolution, wait.resolved_by, wait.resolved_at = resolution, by, now
    wait.save(update_fields=["resolution", "resolved_by", "resolved_at", "grant_hash", "grant_expires_at"])


def withdraw_waits(run: Run, *, by: str, now: datetime) -> None:
    """The run ended: nothing is waited for any more, and nobody is asked."""
    run.waits.filter(resolved_at__isnull=True).update(resolution="withdrawn", resolved_by=by, resolved_at=now)
    with connection.cursor() as cursor:
        for statement in wait_hooks.on_withdraw:
            cursor.execute(statement, [run.id])


def snapshot(run: Run, head: Head) -> dict[str, Any]:
    """What an override record says of a run before and after."""
    return {
        "state": str(run.state),
        "node": run.node,
        "visit": run.visit,
        "epoch": head.epoch,
        "is_owned": run.owner is not None,
        "is_pause_requested": head.is_pause_requested,
        "is_cancel_requested": head.is_cancel_requested,
    }


def unpause(run: Run, head: Head, *, now: datetime) -> None:
    """The legal move out of `paused` for what the run was about."""
    kinds = {w.kind for w in open_waits(run)} - {Wait.Kind.BUDGET}
    if kinds and (not run.is_woken or is_stopped(run)):
        match waiting_state(kinds):
            case "waiting_human":
                run.resume_waiting_human()
            case "waiting_tool":
                run.resume_waiting_tool()
            case _:
                run.resume_waiting_event()
    else:
        if run.is_undoing:
            run.resume_undoing()
        else:
            run.resume_running() if head.epoch else run.resume_unstarted()
        make_ready(run, now=now)
    run.is_woken = False
    save(run, "is_woken", "ready_at", now=now)


def finish_cancelled(run: Run, head: Head, *, by: str, now: datetime) -> None:
    """The final move of a cancelled run. A worker that still holds it (its journal can't be read) is fenced off."""
    run.cancel()
    run.ready_at, run.owner, run.ended_at, run.is_woken, run.end_seq = None, None, now, False, head.seq + 1
    save(run, "ready_at", "owner", "ended_at", "is_woken", "end_seq", now=now)
    head.lease, head.deaths, head.is_pause_requested, head.is_cancel_requested = None, 0, False, False
    head.save(update_fields=["lease", "deaths", "is_pause_requested", "is_cancel_requested"])
    withdraw_waits(run, by=by, now=now)


def end_as_cancelled(run: Run, head: Head, *, by: str, payload: dict[str, Any], now: datetime) -> e.Event:
    """End a run from outside: at once, where nothing is under way, nothing in doubt and nothing to undo; else its
    worker does it, once that is seen to. Returns the event that tells of it."""
    ending = payload | {"asked_by": by}
    try:
        tape = tape_of(run)
    except JournalBroken as broken:
        # Nothing can be driven from a journal that can't be read; ending the run is all that is left, and stays
        # possible.
        finish_cancelled(run, head, by=by, now=now)
        return e.RunCancelled(by=by, in_flight=[f"unknown: the journal can't be read ({broken})"], payload=ending)
    in_doubt = [
        s for _, s in tape.in_doubt() if s.now.reconciled is None and (s.now.unknown is not None or s.now.is_in_doubt)
    ]
    is_undone = payload.get("effects") == UNDO
    if run.owner is None and not in_doubt and not tape.lost_requests() and not is_undone:
        finish_cancelled(run, head, by=by, now=now)
        return e.RunCancelled(by=by, in_flight=tape.outstanding(), payload=ending)
    head.is_cancel_requested, head.is_pause_requested = True, False
    head.save(update_fields=["is_pause_requested", "is_cancel_requested"])
    # Who is asked already is waited for, unless the other side is to be asked besides, which its worker does.
    is_asked = bool(in_doubt) and all(
        s.now.open_wait("reconcile") is not None and s.now.asked is None for s in in_doubt
    )
    if run.owner is None and run.state == State.PAUSED:
        run.is_woken = not is_asked
        unpause(run, head, now=now)
    elif run.owner is None and run.state in WAITING and (not is_asked or is_undone):
        wake(run, now=now)
    return e.CancelRequested(by=by, payload=payload)


def held_by(run: Run) -> str | None:
    """Who holds a paused run, or asked for its pause; None where nobody does but its budget."""
    return holders([run.pk]).get(run.pk)


_PAUSES = (e.PauseRequested.KIND, e.RunPaused.KIND, e.RunResumed.KIND, e.RunRetried.KIND)
_LAST_PAUSES = """
    SELECT asked.id, last.clear FROM unnest(%s::uuid[]) AS asked(id) CROSS JOIN LATERAL (
        SELECT seq, clear FROM ledger_event WHERE run_id = asked.id AND kind = ANY(%s) ORDER BY seq DESC LIMIT 8
    ) AS last
    ORDER BY asked.id, last.seq DESC"""


def holders(run_ids: Iterable[UUID]) -> dict[UUID, str]:
    """The same of many: who holds each that somebody does."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST_PAUSES, [list(run_ids), list(_PAUSES)])
        rows: list[tuple[UUID, bytes]] = cursor.fetchall()
    found: dict[UUID, str | None] = {}
    for run_id, clear in rows:
        if run_id in found:
            continue
        event = e.decode(clear)
        if isinstance(event, (e.RunResumed, e.RunRetried)):
            found[run_id] = None
        elif isinstance(event, e.PauseRequested) or (isinstance(event, e.RunPaused) and ":" in event.by):
            found[run_id] = event.by
    return {run_id: by for run_id, by in found.items() if by is not None}


def resolved(wait: Wait, resolution: str, *, by: str) -> e.WaitResolved:
    return e.WaitResolved(slot=wait.slot, attempt=wait.attempt, wait=wait.kind, n=wait.n, resolution=resolution, by=by)


def end_unserved(head: Head, run: Run, wait: Wait, now: datetime, by: Actor, *, payload: dict[str, Any]) -> None:
    """Nobody gave a run what it waited for before the deadline: it ends, and `payload` says why. A call in doubt is
    settled first. One that somebody has cancelled ends by that."""
    resolve(wait, "timed_out", by=by.ref, now=now)
    journal(run.id, resolved(wait, "timed_out", by=by.ref), by=by)
    if head.is_cancel_requested or run.is_undoing:
        wake(run, now=now)
        return
    head.refresh_from_db(fields=["seq", "chain"])
    payload = payload | by_policy(run)
    journal(run.id, end_as_cancelled(run, head, by=by.ref, payload=payload, now=now), by=by)


def refusal(action: str, run: Run, hint: str) -> IllegalTransition:
    if run.goes_on_as is not None:
        newest = run.heirs().last() or run
        hint = f"It goes on as run {newest.id}: that is the one to ask."
    return IllegalTransition(_IN_WORDS.get(action, action), str(run.state), hint)


_IN_WORDS = {"budget": "use more", "priority": "go before or behind others"}


# What follows an act besides: called in its transaction with the action's name and the run.
on_act: list[Callable[[str, Run], None]] = []


class Act:
    """One person's act on one run: the locks, the justification, and the record that it leaves."""

    def __init__(self, action: str, run_id: UUID, *, by: Actor, justification: object) -> None:
        self.action, self.by, self.justification = action, by, justified(action, justification)
        self.head, self.run = locked(run_id, under=by)
        authority.check(action, self.run, by)
        self.now = database_now()
        self.before = snapshot(self.run, self.head)

    @property
    def payload(self) -> dict[str, str]:
        return {"justification": self.justification}

    def refuse(self, hint: str = "") -> IllegalTransition:
        """The state does not allow it; to be raised. Of a run that goes on as another it says as which."""
        return refusal(self.action, self.run, hint)

    def must_be_allowed(self, *, kinds: Iterable[str] = (), is_held: bool = False) -> None:
        """Raises IllegalTransition where the state does not allow it; `kinds` are what the run waits for, as far as it
        counts for this act."""
        stand = stand_of(
            self.run,
            pause_asked=self.head.is_pause_requested,
            cancel_asked=self.head.is_cancel_requested,
            kinds=kinds,
            is_held=is_held,
        )
        if (hint := why_not(self.action, stand)) is not None:
            raise self.refuse(hint)

    def flag(self, *, pause: bool | None = None, cancel: bool | None = None) -> None:
        """Set or clear what the owner is asked for."""
        self.head.is_pause_requested = self.head.is_pause_requested if pause is None else pause
        self.head.is_cancel_requested = self.head.is_cancel_requested if cancel is None else cancel
        self.head.save(update_fields=["is_pause_requested", "is_cancel_requested"])

    def done(
        self, *events: e.Event, entries: Sequence[Entry] = (), after: Mapping[str, Any] = MappingProxyType({})
    ) -> Run:
        """Append the events, and the override record of whoever acts for themselves, and ring. `after` is what the
        record says besides of what became of the run. What the system does to a child has its parent's record, and its
        reason on its own journal."""
        if self.by.kind != "system":
            override(
                self.head,
                self.action,
                by=self.by,
                justification=self.justification,
                before=self.before,
                after=snapshot(self.run, self.head) | dict(after),
            )
        journal(self.run.id, *events, by=self.by, entries=entries)
        for follow in on_act:
            follow(self.action, self.run)
        return self.run
