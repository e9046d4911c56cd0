"""Preview of one run's migration: its journal is read as for a claim, and its visit replayed with the new code."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import connection, transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.codec import unpack
from ledger.errors import DurableAgentsError, NotFound
from ledger.models import Event, Head
from runs.engine.checkpoints.position import Position, position_of
from runs.engine.errors import JournalBroken, brief
from runs.engine.journal import Snapshot
from runs.engine.migrating import Found, Moving, refused, tried
from runs.engine.tape import payload_of
from runs.engine.undoing.ending import asked_of
from runs.journal.digests import hasher
from runs.journal.reader import EVENTS, STANDING, cut_of, earlier_of, newest_sound, read
from runs.models import ENDED, Run, State, Wait
from runs.services import lifecycle, related_runs
from runs.services.migrating.asked import number_of
from runs.services.migrating.outcomes import SECONDS, NotDone, aside

LOOKING = Actor(kind="system", name="migrating")


@dataclass(frozen=True, slots=True)
class Look:
    """The preview, its journal position, and whether a failed run is retried with the move."""

    run: Run | None
    seq: int
    found: Found
    is_retried: bool = False


def look(run_id: UUID, moving: Moving, *, waits: bool = True) -> Look:
    """Preview a run's migration, a failed one as retried; `waits` for its lock or raises OperationalError."""
    with transaction.atomic():
        run = Run.objects.filter(pk=run_id).first()
        if run is None:
            return Look(None, 0, refused("not_found", NotFound("run", run_id).detail))
        head = Head.objects.filter(pk=run_id).first()
        if head is None:
            return Look(run, 0, refused("damaged", "its head is gone"))
        if (no := in_the_way(run, head, moving)) is not None:
            return Look(run, head.seq, no)
        seq, is_retried = head.seq, run.state == State.FAILED
        try:
            if is_retried:
                head = _as_retried(run, head, waits=waits)
            created, stands, earlier, at, is_asked = standing_of(run, head.seq)
            if is_asked:
                return Look(run, seq, refused("undoing", "it will undo its effects and then end"))
        except JournalBroken as broken:
            return Look(run, seq, refused("damaged", f"its journal can't be trusted: {broken}"))
        except DurableAgentsError as error:
            return Look(run, seq, refused(error.code, error.detail))
        finally:
            if is_retried:
                transaction.set_rollback(True)
    moving = replace(moving, number=number_of(run.graph_id, stands.at.fingerprint))
    found = _in_time(moving, run, created, stands, earlier)
    return Look(run, seq if is_retried else at, beside_another(run, found) or found, is_retried)


def _as_retried(run: Run, head: Head, *, waits: bool) -> Head:
    """Write the retry for the caller to read and roll back. Raises what `retry` raises, and NewsUntold."""
    seq = head.seq
    if not waits:
        Head.objects.select_for_update(nowait=True).filter(pk=run.pk).first()
    lifecycle.retry(run.pk, by=LOOKING, justification="a look")
    head.refresh_from_db()
    since = Event.objects.filter(run_id=run.pk, seq__gt=seq, kind=e.RunRetried.KIND).first()
    if since is not None and "late" in payload_of(e.decode(since.clear, unpack(since.sealed))):
        raise NewsUntold()
    return head


def in_the_way(run: Run, head: Head, moving: Moving) -> Found | None:
    """Return the refusal by the run's rows; None if there is none. Checked again under its lock."""
    if run.graph_id == moving.to.graph_id:
        return refused("already", f"it is one of {run.graph_id} already")
    if run.graph_id != moving.of:
        return refused("other_version", f"it is one of {run.graph_id}")
    if run.state == State.FAILED and not moving.retry:
        return refused("ended", "it is failed: it can be retried with the move (`retry`)")
    if run.state in ENDED and run.state != State.FAILED:
        return refused("ended", f"it is {run.state}")
    if run.owner is not None or head.lease is not None:
        return refused("driven", "a worker drives it: pause it first, and wait until it stands still")
    if run.is_undoing and run.state != State.FAILED:
        return refused("undoing", "it undoes its effects: no other version may take that over")
    if head.is_cancel_requested:
        return refused("cancelled", "somebody asked that it be cancelled")
    return None


def beside_another(run: Run, found: Found) -> Found | None:
    """Return a refusal if the move would answer an operator stop while a related run does the same work."""
    is_stopped = any(kind == Wait.Kind.OPERATOR for _, _, kind, _ in found.closes)
    if found.is_refused or not is_stopped or (other := related_runs.in_the_way(run)) is None:
        return None
    return refused("beside", related_runs.why_not(other))


def standing_of(run: Run, at_least: int) -> tuple[e.RunCreated, Position, list[e.Event], int, bool]:
    """Return first event, position, earlier events for its calls, journal's end, and if undo is requested."""
    with connection.cursor() as cursor:
        cursor.execute(STANDING, [run.pk])
        cuts = [stored for row in cursor.fetchall() if (stored := cut_of(row)) is not None]
        cut = newest_sound(str(run.pk), cuts)
        cursor.execute(EVENTS, [run.pk, cut.seq])
        rows = cursor.fetchall()
    created, tail = read(run.pk, rows, cut, at_least=at_least, said=(run.graph_id, run.generation))
    assert isinstance(created, e.RunCreated)
    start = cut.snapshot or Snapshot("", 0, run.generation, "", None)
    return created, position_of(start, tail), earlier_of(run.pk, cut.seq), rows[-1][0], asked_of(tail) is not None


def _in_time(moving: Moving, run: Run, created: e.RunCreated, stands: Position, earlier: list[e.Event]) -> Found:
    def work() -> Found:
        return asyncio.run(tried(moving, str(run.pk), created, stands, earlier, depth=run.depth, hasher=hasher()))

    try:
        return aside(work, f"trying run {run.pk}")
    except NotDone as no:
        to = moving.to.graph_id
        if no.code == "busy":
            return refused("busy", f"another run was tried for more than {SECONDS:g} s: ask again")
        if no.broke is None:
            return refused("too_slow", f"{to} took more than {SECONDS:g} s to do its visit again")
        return refused("broke", f"{to} broke when it did the visit again: {brief(no.broke)}")


class NewsUntold(DurableAgentsError):
    """News came after the run had failed that no operator has seen."""

    status, code, title = 409, "late_news", "Unseen late result"

    def __init__(self) -> None:
        super().__init__(
            "news came after it had failed, which an operator has to look at: retry it where it is, and see to that"
        )
