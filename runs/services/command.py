"""Common parts of all actions on a run.
Locks are taken in this order: Head, Run, related runs (`related_runs.py`), Wait, Approval. The state of a run that a
worker drives is never changed here. Instead, a flag is set or a wait is resolved, and the worker acts on that at its
next step boundary."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
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
from ledger.erasure import erased
from ledger.errors import IllegalTransition, NewerRun
from ledger.models import Head
from ledger.protocol import PROTOCOL
from runs import features
from runs.engine.errors import JournalBroken
from runs.engine.journal import WaitSpec
from runs.engine.outcomes import waiting_state
from runs.journal import notify
from runs.journal.reader import tape_of
from runs.models import WAITING, Run, State, Wait
from runs.services import authority, wakeups
from runs.services.allowed import stand_of, why_not
from runs.services.undo import UNDO, by_policy

log = logging.getLogger("runs.services.command")


def locked(run_id: UUID, *, under: Actor) -> tuple[Head, Run]:
    """Lock and return head and run, in that order, for a named actor.
    Raises NotFound, NewerRun for a run that only newer code may change, and Erased for one whose content was erased, on
    which no action is possible any more. Neither of the last two applies to the system's own bookkeeping."""
    assert isinstance(under, Actor)
    head = locked_head(run_id)
    run = Run.objects.select_for_update().get(pk=run_id)
    if run.erased_at is not None and under.kind != "system":
        raise erased(run_id)
    if run.protocol > PROTOCOL and under.kind != "system":
        raise NewerRun(run_id)
    return head, run


def is_busy(run_id: UUID) -> bool:
    """Return whether another transaction has locked the run.
    If not, the run is locked until the caller's transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE SKIP LOCKED", [run_id])
        return cursor.fetchone() is None and Head.objects.filter(run_id=run_id).exists()


def journal(run_id: UUID, *events: e.Event, by: Actor, entries: Sequence[Entry] = ()) -> None:
    """Append events to the run's journal, and notify its watchers after the commit."""
    notify.ring(run_id, append(run_id, *events, by=by, entries=entries))


def redraw(run_id: UUID) -> None:
    """Make pages that watch the run reload after the commit. This is for changes that aren't in the run's journal."""
    notify.ring(run_id, 0)


def show_to(person: int) -> None:
    """Make an account's lists reload after the commit. This is for changes of a run that the account may not see."""
    notify.ring_for(person)


def save(run: Run, *fields: str, now: datetime) -> None:
    """Store the changes of a transition, and notify watchers of the run's parent."""
    run.updated_at = now
    run.save(update_fields=["state", "updated_at", *fields])
    notify.ring_above(run.parent)


def make_ready(run: Run, *, now: datetime) -> None:
    """Mark the run as ready, either now or at the time when it may begin.
    A wake-up is queued in the same transaction."""
    run.ready_at = due_at(run, now=now)
    wakeups.drive(run.id)


def due_at(run: Run, *, now: datetime) -> datetime | None:
    """Return when an unclaimed run should be driven; None while it is queued."""
    if run.state != State.PENDING or run.started_at is not None:
        return now
    return None if run.is_queued else max(now, run.start_at or now)


def wake(run: Run, *, now: datetime) -> None:
    """Wake a run after one of its waits was resolved.
    If the run is paused, this is recorded for its resumption. If the run is stopped for an operator, it isn't woken. If
    a worker drives it, the worker notices by itself."""
    if run.owner is not None:
        return
    if run.state == State.PAUSED:
        run.is_woken = True
    elif run.state in WAITING and not is_stopped(run):
        run.wake_to_undo() if run.is_undoing else run.wake()
        make_ready(run, now=now)
    save(run, "is_woken", "ready_at", now=now)


def is_stopped(run: Run) -> bool:
    """Return whether the run waits for an operator.
    After a cancel it doesn't, because such a run only proceeds to its end."""
    stops = run.waits.filter(kind="operator", resolved_at__isnull=True)
    return stops.exists() and not Head.objects.filter(run_id=run.pk, is_cancel_requested=True).exists()


def open_waits(run: Run) -> list[Wait]:
    return list(run.waits.filter(resolved_at__isnull=True).order_by("opened_at"))


def open_wait(run: Run, spec: WaitSpec, *, now: datetime) -> None:
    """Store a wait that is opened outside the run's worker. The caller writes its event."""
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
    """Settle a locked wait. Raises IllegalTransition if the wait is already settled: the first resolution wins."""
    if wait.resolved_at is not None:
        raise IllegalTransition(
            "settle a wait",
            str(wait.resolution),
            f"This was already settled by {wait.resolved_by}, and the first outcome is final.",
        )
    wait.resolution, wait.resolved_by, wait.resolved_at = resolution, by, now
    wait.save(update_fields=["resolution", "resolved_by", "resolved_at", "grant_hash", "grant_expires_at"])


def withdraw_waits(run: Run, *, by: str, now: datetime) -> None:
    """Withdraw the open waits of a run that has ended."""
    run.waits.filter(resolved_at__isnull=True).update(resolution="withdrawn", resolved_by=by, resolved_at=now)
    with connection.cursor() as cursor:
        for statement in features.parts_of_all(lambda each: each.on_withdraw):
            cursor.execute(statement, [run.id])


def snapshot(run: Run, head: Head) -> dict[str, Any]:
    """Return a run's state before or after an action, for its override record."""
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
    """Move a paused run to the state that matches its open waits."""
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
    """Move a run to `cancelled`.
    If the run's journal is unreadable, a worker may still hold the run; that worker is fenced off."""
    run.cancel()
    run.ready_at, run.owner, run.ended_at, run.is_woken, run.end_seq = None, None, now, False, head.seq + 1
    save(run, "ready_at", "owner", "ended_at", "is_woken", "end_seq", now=now)
    head.lease, head.deaths, head.is_pause_requested, head.is_cancel_requested = None, 0, False, False
    head.save(update_fields=["lease", "deaths", "is_pause_requested", "is_cancel_requested"])
    withdraw_waits(run, by=by, now=now)


def end_as_cancelled(run: Run, head: Head, *, by: str, payload: dict[str, Any], now: datetime) -> e.Event:
    """Cancel a run: at once if no call is in progress or in doubt and nothing has to be undone.
    Returns the event to be written."""
    ending = payload | {"asked_by": by}
    try:
        tape = tape_of(run)
    except JournalBroken as broken:
        # A run with an unreadable journal can't be driven, but it can be ended.
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
    # Wait for people who have already been asked. If the upstream system has yet to be queried, its worker must do that
    # first.
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
    """Return who paused the run or requested a pause; None if nothing but its budget holds it."""
    return holders([run.pk]).get(run.pk)


_PAUSES = (e.PauseRequested.KIND, e.RunPaused.KIND, e.RunResumed.KIND, e.RunRetried.KIND)
_CANCELS = (e.CancelRequested.KIND, e.RunCancelled.KIND)
_LAST = """
    SELECT asked.id, last.clear FROM unnest(%s::uuid[]) AS asked(id) CROSS JOIN LATERAL (
        SELECT seq, clear FROM ledger_event WHERE run_id = asked.id AND kind = ANY(%s) ORDER BY seq DESC LIMIT 8
    ) AS last
    ORDER BY asked.id, last.seq DESC"""


def holders(run_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return who paused each of these runs. Runs that nobody paused are left out."""
    found: dict[UUID, str | None] = {}
    for run_id, clear in _last(run_ids, _PAUSES):
        if run_id in found:
            continue
        event = e.decode(clear)
        if isinstance(event, (e.RunResumed, e.RunRetried)):
            found[run_id] = None
        elif isinstance(event, e.PauseRequested) or (isinstance(event, e.RunPaused) and ":" in event.by):
            found[run_id] = event.by
    return {run_id: by for run_id, by in found.items() if by is not None}


def cancellers(run_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return who cancelled each of these runs.
    The cancel request is also read, because the event of the end may name only a role."""
    found: dict[UUID, str] = {}
    for run_id, clear in _last(run_ids, _CANCELS):
        try:
            event = e.decode(clear)
        except (ValueError, KeyError, TypeError):  # `verify` reports it
            continue
        if isinstance(event, (e.CancelRequested, e.RunCancelled)) and ":" in event.by:
            found.setdefault(run_id, event.by)
    return found


def _last(run_ids: Iterable[UUID], kinds: Sequence[str]) -> list[tuple[UUID, bytes]]:
    """Return the content of each run's last events of these kinds, newest first."""
    ids = list(run_ids)
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_LAST, [ids, list(kinds)])
        rows: list[tuple[UUID, bytes]] = cursor.fetchall()
    return rows


def resolved(wait: Wait, resolution: str, *, by: str) -> e.WaitResolved:
    return e.WaitResolved(slot=wait.slot, attempt=wait.attempt, wait=wait.kind, n=wait.n, resolution=resolution, by=by)


def end_unserved(head: Head, run: Run, wait: Wait, now: datetime, by: Actor, *, payload: dict[str, Any]) -> None:
    """End a run whose wait timed out, with `payload` as the reason.
    A cancelled or undoing run is only woken, because it ends anyway."""
    resolve(wait, "timed_out", by=by.ref, now=now)
    journal(run.id, resolved(wait, "timed_out", by=by.ref), by=by)
    if head.is_cancel_requested or run.is_undoing:
        wake(run, now=now)
        return
    head.refresh_from_db(fields=["seq", "chain"])
    payload = payload | by_policy(run)
    journal(run.id, end_as_cancelled(run, head, by=by.ref, payload=payload, now=now), by=by)


def mark_overdue(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """Mark a wait as overdue. This is for waits that only a person can settle."""
    wait.is_overdue = True
    wait.save(update_fields=["is_overdue"])
    notify.ring(run.id, head.seq)
    log.warning("run %s: its wait for %s is overdue since %s", run.id, wait.kind, wait.deadline.isoformat())


def refusal(action: str, run: Run, hint: str) -> IllegalTransition:
    if run.goes_on_as is not None:
        newest = run.successors().last() or run
        hint = f"The run continues as run {newest.id}: send the request to that run."
    return IllegalTransition(_IN_WORDS.get(action, action), str(run.state), hint)


_IN_WORDS = {"budget": "use more", "priority": "change priority"}


class Act:
    """A person's action on one run: locks, justification, and record."""

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
        """Return the IllegalTransition to raise. If the run was continued as another, the error names that one."""
        return refusal(self.action, self.run, hint)

    def must_be_allowed(self, *, kinds: Iterable[str] = (), is_held: bool = False) -> None:
        """Check that the run's state allows the action.
        Raises IllegalTransition. `kinds` are the kinds of its open waits."""
        condition = stand_of(
            self.run,
            pause_asked=self.head.is_pause_requested,
            cancel_asked=self.head.is_cancel_requested,
            kinds=kinds,
            is_held=is_held,
        )
        if (hint := why_not(self.action, condition)) is not None:
            raise self.refuse(hint)

    def flag(self, *, pause: bool | None = None, cancel: bool | None = None) -> None:
        """Set or clear the pause and cancel requests that the run's worker obeys."""
        self.head.is_pause_requested = self.head.is_pause_requested if pause is None else pause
        self.head.is_cancel_requested = self.head.is_cancel_requested if cancel is None else cancel
        self.head.save(update_fields=["is_pause_requested", "is_cancel_requested"])

    def done(
        self, *events: e.Event, entries: Sequence[Entry] = (), after: Mapping[str, Any] = MappingProxyType({})
    ) -> Run:
        """Append the events and the person's override record, and notify watchers.
        `after` adds to the state after the action, as the override record shows it. System actions on a child are
        recorded for its parent only; the child's journal has the reason."""
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
        for follow in features.parts_of_all(lambda each: each.on_action):
            follow(self.action, self.run)
        return self.run
