"""Reads one recorded visit, and verifies every event as a claim does."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import connection
from psycopg.rows import TupleRow

from durableagents.contrib.replay.declared_secrets import declared_secrets
from durableagents.contrib.replay.files import FULL, InvalidRecording
from durableagents.contrib.replay.redaction import Redaction, remove_keys
from durableagents.contrib.replay.scripts import RecordedRun, proven_source_of_test, without_moves
from ledger import events as e
from ledger.erasure import erased
from ledger.errors import NotFound
from runs import features
from runs.engine.agents import registry
from runs.engine.checkpoints.position import REENTERED, position_of, version_of
from runs.engine.errors import JournalBroken, UnknownAgent, UnknownVersion
from runs.engine.journal import Snapshot
from runs.engine.recordings.recording import Recording, needed
from runs.journal.reader import EVENTS, Cut, checked, earlier_of, newest_sound, read
from runs.models import Run

_CUT = """
    SELECT seq, generation, node, visit, fingerprint, state, checksum, schema_version FROM runs_checkpoint
    WHERE run_id = %s AND seq >= %s ORDER BY seq LIMIT 2"""
# Events whose payloads are needed to answer calls from the record.
_HOLDS = (
    e.RunCreated,
    e.ToolInvoked,
    e.ToolRead,
    e.ToolReturned,
    e.ModelResponded,
    e.InputAnswered,
    e.ApprovalRequested,
    e.ToolFailed,
    e.ChildStarted,
    e.AnswerTakenOver,
)
MAX_EVENTS = 5_000  # limit per visit; a larger recording is too large to keep in a code repository


def read_visit(run_id: UUID, seq: int) -> Recording:
    """Return the visit that begins with this event. Raises InvalidRecording if it is incomplete or can't be trusted."""
    run = Run.objects.get(pk=run_id)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_CUT, [run_id, seq])
            cuts = cursor.fetchall()
            if not cuts or cuts[0][0] != seq:
                expired = features.expired_checkpoints(run_id)
                is_gone = expired is not None and seq <= expired.last_seq
                raise InvalidRecording(str(expired) if is_gone else f"the checkpoint at event {seq} no longer exists")
            cut = newest_sound(str(run_id), cuts[:1])
            following = cuts[1] if len(cuts) > 1 else None
            rows = _rows(run_id, seq, None if following is None else following[0])
            created, tail = verified_events(run, rows, cut, is_last=following is None)
            entered = [checked(run_id, row)[1] for row in rows if row[0] == seq]
            earlier = earlier_of(run_id, seq)
        after = None if following is None else _state(str(run_id), following)
    except JournalBroken as error:
        raise InvalidRecording(str(error)) from None
    assert cut.snapshot is not None and isinstance(created, e.RunCreated)
    times = [row[2].isoformat() for row in rows if row[0] > seq]
    graph_id, at, tail = _of_one_version(created, entered[0], cut.snapshot, tail)
    return Recording(
        run_id=str(run_id),
        graph_id=graph_id,
        fingerprint=at.fingerprint,
        created=created,
        node=at.node,
        visit=at.visit,
        generation=at.generation,
        state=at.state,
        events=tuple(tail),
        before=needed(earlier, tail),
        after=after,
        depth=run.depth,
        times=tuple(times[: len(tail)]),
    )


def _of_one_version(
    created: e.RunCreated, entered: e.Event, at: Snapshot, tail: list[e.Event]
) -> tuple[str, Snapshot, list[e.Event]]:
    """Return the version, start and events of a visit, even if the run was migrated during it.

    If the newer version replayed the visit, the result is that version's visit, with the state that it was given.
    Otherwise the result is the older version's visit, up to the migration."""
    left = next((i for i, x in enumerate(tail) if isinstance(x, e.RunMigrated) and x.how == REENTERED), len(tail))
    tail = tail[:left]
    graph_id, _ = version_of(created, entered, tail)
    return graph_id, position_of(at, tail).at, tail


def _rows(run_id: UUID, first: int, last: int | None) -> list[TupleRow]:
    """Return the first event, and those in a range. Raises InvalidRecording if there are too many."""
    until = "" if last is None else " AND seq <= %s"
    statement = EVENTS.replace(" ORDER BY", f"{until} ORDER BY") + " LIMIT %s"
    with connection.cursor() as cursor:
        cursor.execute(statement, [run_id, first, *([] if last is None else [last]), MAX_EVENTS + 1])
        rows = cursor.fetchall()
    if len(rows) > MAX_EVENTS:
        raise InvalidRecording(f"the visit has more than {MAX_EVENTS} events")
    return rows


def verified_events(
    run: Run, rows: Sequence[TupleRow], cut: Cut, *, is_last: bool = True
) -> tuple[e.Event, list[e.Event]]:
    """Verify the rows of a journal; return its events with payloads. Raises JournalBroken, InvalidRecording."""
    if run.erased_at is not None:
        raise InvalidRecording(erased(run.pk).detail)
    position = (run.graph_id, run.generation) if is_last else None  # earlier visits may have run on another version
    created, tail = read(run.pk, rows, cut, at_least=cut.seq, version=position)
    for event in (created, *tail):
        if isinstance(event, _HOLDS) and event.payload is None:
            raise InvalidRecording(f"the payload of its {event.KIND} is missing")
    return created, tail


def _state(run_id: str, row: TupleRow) -> object:
    snapshot = newest_sound(run_id, [row]).snapshot
    return None if snapshot is None else snapshot.state


def make_test(run_id: UUID, *, paths: Sequence[str], salt: bytes, payloads: str) -> str:
    """Return the source of a test generated from a run. Raises NotFound, InvalidRecording."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    if run.erased_at is not None:
        raise InvalidRecording(erased(run_id).detail)
    try:
        agent = registry.find(run.graph_id)
    except (UnknownAgent, UnknownVersion):
        raise InvalidRecording(f"{run.graph_id} is not installed here") from None
    with connection.cursor() as cursor:
        cursor.execute(f"{EVENTS} LIMIT %s", [run_id, 1, MAX_EVENTS + 1])
        rows = cursor.fetchall()
    if len(rows) > MAX_EVENTS:
        raise InvalidRecording(f"it has more than {MAX_EVENTS} events")
    try:
        created, tail = verified_events(run, rows, Cut())
    except JournalBroken as error:
        raise InvalidRecording(f"its record is damaged: {error}") from None
    events, times = without_moves(tail, [row[2] for row in rows])
    whole = Recording(
        run_id=str(run_id),
        graph_id=run.graph_id,
        fingerprint="",
        created=created,  # type: ignore[arg-type]
        node="",
        visit=0,
        generation=0,
        state=None,
        events=tuple(events[1:]),
    )
    whole = remove_keys(whole)
    if payloads != FULL:
        own = Redaction(paths, salt, declared_secrets(whole))
        kept = [i for i, event in enumerate(whole.events) if own.keeps(event)]
        times = [times[0], *(times[i + 1] for i in kept)]
        whole = own.redact(whole)
    recorded = RecordedRun(str(run_id), agent, whole.created, whole.events, times, str(run.state))
    try:
        return proven_source_of_test(recorded)
    except InvalidRecording as error:
        moved = next((x for x in tail if isinstance(x, e.RunMigrated)), None)
        if moved is None:
            raise
        raise InvalidRecording(f"it was migrated from {moved.of} to {moved.to}, and {error}") from None
