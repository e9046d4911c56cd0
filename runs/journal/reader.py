"""Reads a journal's rows for the worker that claims the run.
Each event is checked against its hash, columns and authentication code, so that a row forged with the application's own
rights stops its run instead of being trusted."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg.rows import TupleRow

from ledger.chain import Link, body_hash, link_hash
from ledger.codec import pack, size_of, unpack
from ledger.codes import is_authentic, may_lack_code
from ledger.events import (
    ApprovalDecided,
    Event,
    RunCancelled,
    RunCarriedOn,
    RunCompleted,
    RunCreated,
    RunFailed,
    RunForked,
    VisitEntered,
    decode,
)
from ledger.keys import code_key
from ledger.models import Head
from runs.engine.budget import RESOURCES, Caps, Usage
from runs.engine.checkpoints.position import version_of
from runs.engine.errors import JournalBroken
from runs.engine.forks import Place, Undoing
from runs.engine.journal import Effects, Snapshot
from runs.engine.migration import STATES, UnknownFormat
from runs.engine.tape import Tape
from runs.engine.undoing.plan import KINDS
from runs.models import Checkpoint, Run

log = logging.getLogger("runs.journal.postgres")
COLUMNS = ("seq", "epoch", "at", "kind", "slot", "attempt", "fact", "clear", "sealed", "prev_hash", "hash", "code")
STORED = ", ".join(COLUMNS)  # the columns of a row that `checked` needs
_READ = f"SELECT {STORED} FROM ledger_event"
# A run's lease, journal end and requests, with its newest checkpoints, if any.
_COUNTED = len(RESOURCES)
POSITION_ROWS = """
    SELECT h.epoch, h.lease, h.seq, clock_timestamp(), h.is_pause_requested, h.is_cancel_requested, h.is_on_hold,
           {caps}, {used}, (SELECT depth FROM runs_run WHERE id = h.run_id),
           runs_counts_reads(h.run_id),
           c.seq, c.generation, c.node, c.visit, c.fingerprint, c.state, c.checksum, c.schema_version
    FROM ledger_head h
    LEFT JOIN LATERAL (SELECT * FROM runs_checkpoint WHERE run_id = h.run_id ORDER BY seq DESC LIMIT 3) c ON true
    WHERE h.run_id = %s ORDER BY c.seq DESC""".format(
    caps=", ".join(f"h.cap_{name}" for name in RESOURCES), used=", ".join(f"h.{name}" for name in RESOURCES)
)
_FIRST = 4  # the first events, one of which may say that the run is a fork
# The first events, and all from a given one on.
EVENTS = f"{_READ} WHERE run_id = %s AND (seq <= {_FIRST} OR seq >= %s) ORDER BY seq"
# All events of a journal that may be damaged.
EVERY = f"{_READ} WHERE run_id = %s ORDER BY seq LIMIT %s"
# Points from which a run can be restarted: its visits, newest first, and the checkpoints of a visit.
VISITS = f"{_READ} WHERE run_id = %s AND kind = 'VisitEntered' ORDER BY seq DESC LIMIT %s"
CUT_AT = """
    SELECT seq, generation, node, visit, fingerprint, state, checksum, schema_version FROM runs_checkpoint
    WHERE run_id = %s AND visit = %s ORDER BY seq DESC"""
TAKEN_OVER = f"{_READ} WHERE run_id = %s AND kind = 'AnswerTakenOver' ORDER BY seq"
# The beginnings of a run's effects and children.
BEGUN = f"{_READ} WHERE run_id = %s AND seq <= %s AND kind IN ('ToolInvoked', 'ChildStarted') ORDER BY seq"
# Events about undone effects of runs, for other runs that may depend on these effects.
TAKEN_BACK = f"""
    SELECT {STORED}, run_id FROM ledger_event WHERE run_id = ANY(%s::uuid[])
    AND kind IN ('UndoAsked', 'UndoBegun', 'EffectUndone', 'EffectLeft') ORDER BY run_id, seq"""
EARLIER = f"{_READ} WHERE run_id = %s AND seq < %s AND kind = ANY(%s) ORDER BY seq"
_EARLIER = ("SignalReceived", "SignalCarried", "RunCarriedOn", "ModelsChosen")
SIGNAL = f"{_READ} WHERE run_id = %s AND seq = (SELECT seq FROM runs_signal WHERE run_id = %s AND name = %s AND n = %s)"
AT_SLOT = f"{_READ} WHERE run_id = %s AND slot = %s ORDER BY seq"
# A question's events, and the intents that use its approval.
REQUEST_ROWS = f"""{_READ} WHERE run_id = %s AND (
    slot = %s OR kind = 'ToolInvoked' AND position(convert_to(%s, 'UTF8') IN clear) > 0) ORDER BY seq"""
# Proposals and queries about unknown outcomes, each with its run and the latest other event about its call.
PROPOSED = f"""
    SELECT {STORED}, run_id, (
        SELECT max(l.seq) FROM ledger_event l
        WHERE l.run_id = ledger_event.run_id AND l.slot = ledger_event.slot AND NOT (l.kind = ANY(%s)))
    FROM ledger_event
    WHERE kind = ANY(%s) AND (run_id, slot) IN (SELECT * FROM unnest(%s::uuid[], %s::text[])) ORDER BY run_id, seq"""
INBOX = f"""{_READ} WHERE run_id = %s AND seq = (
    SELECT seq FROM runs_message WHERE run_id = %s AND outcome = '' ORDER BY n LIMIT 1)"""
# The event at the beginning of a continuation's journal.
ORIGIN = f"{_READ} WHERE run_id = %s AND seq BETWEEN 2 AND 3 AND kind = 'RunCarriedOn'"
CARRIED_ROWS = f"""{_READ} WHERE run_id = %s AND (
    kind IN ('AttributesSet', 'ModelsChosen') OR seq <= 3 AND kind IN ('ChildOf', 'StartPlanned', 'RunCarriedOn')
    OR seq IN (SELECT seq FROM runs_signal WHERE run_id = %s AND taken_by IS NULL)) ORDER BY seq"""
# Events about a run's effects; none if the run registered no undo, has no children and continues no other run.
EFFECTS = f"""{_READ} WHERE run_id = %s AND kind = ANY(%s) AND EXISTS (
    SELECT 1 FROM ledger_event u WHERE u.run_id = %s
    AND (u.kind IN ('UndoRegistered', 'ChildStarted') OR u.seq <= 3 AND u.kind = 'RunCarriedOn')) ORDER BY seq"""
_NEW_EFFECTS = """
    SELECT h.seq, EXISTS (SELECT 1 FROM ledger_event e WHERE e.run_id = h.run_id AND e.seq > %s AND e.kind = ANY(%s))
    FROM ledger_head h WHERE h.run_id = %s"""
UNDOING = f"{_READ} WHERE run_id = %s AND kind IN ('UndoBegun', 'EffectUndone', 'EffectLeft') ORDER BY seq"
# Children that didn't fail, and the run that this one continues, if they have effects to undo. Effects of their
# descendants and of the runs that they continue count as theirs.
REVERSIBLE = """
    WITH RECURSIVE family(root, id) AS (
        SELECT r.id, r.id FROM runs_run r WHERE r.parent = %s AND r.state NOT IN ('failed', 'cancelled')
        UNION SELECT r.came_from, r.came_from FROM runs_run r WHERE r.id = %s AND r.came_from IS NOT NULL
        UNION SELECT f.root, n.id FROM family f JOIN runs_run p ON p.id = f.id
        JOIN runs_run n ON n.parent = p.id OR n.id = p.came_from)
    SELECT DISTINCT f.root FROM family f JOIN ledger_event e ON e.run_id = f.id AND e.kind = 'UndoRegistered'"""
_TO_UNDO = f"""
    SELECT (SELECT seq FROM ledger_head WHERE run_id = %s),
           EXISTS (SELECT 1 FROM ledger_event WHERE run_id = %s AND kind = 'UndoRegistered'), ARRAY({REVERSIBLE})"""
CHANGES = f"""{_READ} WHERE run_id = %s AND (
    seq = 1 OR seq >= %s AND (seq = %s OR kind IN ('MessageHandled', 'ContextInjected', 'RunMigrated'))) ORDER BY seq"""
_END = f"""{_READ} WHERE run_id = %s AND seq = %s AND NOT EXISTS (
    SELECT 1 FROM ledger_event later WHERE later.run_id = ledger_event.run_id AND later.seq > ledger_event.seq
    AND later.kind IN ('RunRetried', 'UndoAsked'))"""
_ENDS = {"completed": RunCompleted, "failed": RunFailed, "cancelled": RunCancelled}
_CUT = "ROW(%s, %s, %s, %s, %b, %b)"


_FLAGS = 7
_AFTER = _FLAGS + 2 * _COUNTED


def split_run_row(row: TupleRow) -> tuple[TupleRow, Caps, Usage, int, bool]:
    """Split a row of POSITION_ROWS into its parts.
    The parts are: lease, end of the journal and requests; caps; usage; depth; whether reads are counted."""
    caps, used = row[_FLAGS : _FLAGS + _COUNTED], row[_FLAGS + _COUNTED : _FLAGS + 2 * _COUNTED]
    return row[:_FLAGS], Caps(*caps), Usage(*used), row[_AFTER] or 0, row[_AFTER + 1]


def cut_of(row: TupleRow) -> TupleRow | None:
    """Return the checkpoint in a row of POSITION_ROWS, or None."""
    cut = row[_AFTER + 2 :]
    return None if cut[0] is None else cut


# --- checkpoints ------------------------------------------------------------------------------------------------------


def checksum(node: str, visit: int, state: bytes) -> bytes:
    return hashlib.sha256(f"{node}|{visit}|".encode() + state).digest()


def cut_digest(generation: int, node: str, visit: int, fingerprint: str, state: bytes) -> str:
    """Return the digest of a checkpoint, for the event of its visit.
    Because the event contains the digest, the event's authentication code also covers the state."""
    return hashlib.sha256(f"{generation}|{node}|{visit}|{fingerprint}|".encode() + state).hexdigest()


def with_cut(
    events: Sequence[Event], snapshot: Snapshot | None, run_id: UUID, version: str, generation: int
) -> tuple[Sequence[Event], str, list[Any]]:
    """Return the events with the checkpoint's digest, and the checkpoint as an SQL `runs_cut`.
    If the run has been migrated, the visit's event also contains `version`."""
    if snapshot is None:
        return events, "NULL", []
    at, state = snapshot, pack(snapshot.state, run_id) or b""
    payload = {"checkpoint": cut_digest(at.generation, at.node, at.visit, at.fingerprint, state)}
    payload |= {"version": version} if generation else {}
    bound = [replace(x, payload=payload) if isinstance(x, VisitEntered) and x.visit == at.visit else x for x in events]
    return bound, _CUT, [at.generation, at.node, at.visit, at.fingerprint, state, checksum(at.node, at.visit, state)]


@dataclass(frozen=True, slots=True)
class Cut:
    """The checkpoint from which a claimant continues, at event `seq`.
    Without a snapshot, only the position is used. `skipped` are the positions of newer checkpoints that can't be used,
    each with the reason."""

    seq: int = 0
    snapshot: Snapshot | None = None
    digest: str = ""
    skipped: tuple[tuple[int, str], ...] = ()
    size: int = 0  # size of the state as JSON


def newest_sound(run_id: str, rows: Sequence[TupleRow]) -> Cut:
    """Return the newest checkpoint with a valid checksum.
    Raises JournalBroken, for example if a checkpoint has a newer format."""
    skipped: list[tuple[int, str]] = []
    for seq, generation, node, visit, fingerprint, state, stored, schema_version in rows:
        why = "fails its checksum"
        if checksum(node, visit, bytes(state)) == bytes(stored):
            try:
                snapshot = Snapshot(
                    node, visit, generation, fingerprint, STATES.upgraded(schema_version, unpack(state))
                )
                digest = cut_digest(generation, node, visit, fingerprint, bytes(state))
                return Cut(seq, snapshot, digest, tuple(skipped), size_of(state))
            except UnknownFormat as error:
                raise JournalBroken(f"the checkpoint at event {seq}: {error}", "unknown_format") from error
            except ValueError as error:  # the state is kept in the store, and is damaged there
                why = f"can't be read: {error}"
        log.error("run %s: the checkpoint at event %s %s; falling back to the one before", run_id, seq, why)
        skipped.append((seq, why))
    if rows:
        raise JournalBroken(f"none of the last {len(rows)} checkpoints is intact: the oldest of them {why}")
    return Cut()


def _check_cut(cut: Cut, event: Event) -> None:
    """Check that the event at a checkpoint's position matches it. Raises JournalBroken."""
    if not isinstance(event, VisitEntered):
        raise JournalBroken(
            f"there is a checkpoint at event {cut.seq}, but that event does not enter a node", "forged_checkpoint"
        )
    if cut.snapshot is None:
        return
    digest = event.payload.get("checkpoint") if isinstance(event.payload, dict) else None
    if (event.node, event.visit, digest) != (cut.snapshot.node, cut.snapshot.visit, cut.digest):
        raise JournalBroken(
            f"the checkpoint at event {cut.seq} is not the one that the event names", "forged_checkpoint"
        )


# --- events -----------------------------------------------------------------------------------------------------------


def checked(run_id: UUID, row: TupleRow) -> tuple[Link, Event]:
    """Return one event after checking its hash, its columns and its authentication code. Raises JournalBroken."""
    seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, stored, code = row
    link = Link(
        seq, epoch, at, bytes(clear), None if sealed is None else bytes(sealed), bytes(prev_hash), bytes(stored)
    )
    body = body_hash(link.clear, link.sealed)
    if link_hash(link.prev_hash, seq, epoch, at, body) != link.hash:
        raise JournalBroken(f"event {seq} was changed: its content does not match its hash")
    try:
        event = decode(link.clear, unpack(link.sealed))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise JournalBroken(f"event {seq} can't be read: {error}") from error
    if (event.KIND, event.slot, event.attempt, event.fact) != (kind, slot, attempt, fact):
        raise JournalBroken(
            f"event {seq}: its columns say {kind} at {slot}, but its content says {event.KIND} at {event.slot}"
        )
    is_ours = may_lack_code(event) if code is None else is_authentic(code_key(), run_id, seq, body, bytes(code))
    if not is_ours:
        reason = "forged_approval" if isinstance(event, ApprovalDecided) else "forged_event"
        raise JournalBroken(f"event {seq}, {kind}, does not have this installation's code: {_hex_code(code)}", reason)
    return link, event


def _hex_code(code: bytes | None) -> str:
    return (
        "this installation did not write it"
        if code is None
        else "it was forged, copied from another place, or written with another master key"
    )


def read(
    run_id: UUID, rows: Sequence[TupleRow], cut: Cut, *, at_least: int, version: tuple[str, int] | None
) -> tuple[Event, list[Event]]:
    """Return a run's first event and its tail, after checking links and `version`.
    `version` is the version and the generation in the run's row (None if the rows end before the journal does). Raises
    JournalBroken."""
    created: Event | None = None
    entered: Event | None = None
    tail: list[Event] = []
    prev: Link | None = None
    codes: set[bytes] = set()
    for row in rows:
        link, event = checked(run_id, row)
        code = row[-1]
        if prev is not None and prev.seq >= cut.seq and (link.seq != prev.seq + 1 or link.prev_hash != prev.hash):
            raise JournalBroken(f"event {link.seq} does not follow event {prev.seq}")
        if code is not None and bytes(code) in codes:
            raise JournalBroken(f"event {link.seq}, {event.KIND}, is a copy: its code was used before", "forged_event")
        codes.add(bytes(code or b""))
        if link.seq == cut.seq:
            _check_cut(cut, event)
            entered = event
        if link.seq == 1:
            created = event
        if link.seq > cut.seq:
            tail.append(event)
        prev = link
    if created is None or prev is None or prev.seq < max(at_least, cut.seq):
        end = prev.seq if prev else 0
        raise JournalBroken(
            f"the journal of run {run_id} ends at event {end}, but event {max(at_least, cut.seq)} was committed"
        )
    if not isinstance(created, RunCreated):
        raise JournalBroken("the journal does not begin with the run's creation", "forged_run")
    if version is not None:
        check_version(version, created, entered, tail, cut)
    return created, tail


def forked_in(run_id: UUID, rows: Sequence[TupleRow]) -> RunForked | None:
    """Return the event that makes the run a fork, if any.
    The rows must include the journal's first events, without gaps. Raises JournalBroken."""
    first = [row for row in rows if row[0] <= _FIRST]
    if [row[0] for row in first] != list(range(1, min(_FIRST, rows[-1][0] if rows else 0) + 1)):
        raise JournalBroken(f"events are missing from the beginning of the journal of run {run_id}")
    if any(bytes(after[9]) != bytes(before[10]) for before, after in pairwise(first)):
        raise JournalBroken(f"the beginning of the journal of run {run_id} is not linked correctly")
    forks = [checked(run_id, row)[1] for row in first if row[3] == RunForked.KIND]
    return next((event for event in forks if isinstance(event, RunForked)), None)


def check_version(
    version: tuple[str, int], created: RunCreated, entered: Event | None, tail: Sequence[Event], cut: Cut
) -> None:
    """Check the version and the generation in a run's row against the journal. Raises JournalBroken."""
    graph_id, generation = version_of(created, entered, tail)
    if generation is None:
        generation = cut.snapshot.generation if cut.snapshot is not None else 0 if cut.seq == 0 else version[1]
    if version != (graph_id, generation):
        raise JournalBroken(
            f"the run's row says {version[0]}, migrated {version[1]} times; its journal {graph_id}, {generation} times",
            "forged_run",
        )


def earlier_of(run_id: UUID, seq: int) -> list[Event]:
    """Return the events from before a visit that the visit's calls may need. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(EARLIER, [run_id, seq, list(_EARLIER)])
        return [checked(run_id, row)[1] for row in cursor.fetchall()]


def tape_of(run: Run) -> Tape:
    """Return the slots of the run's current visit, since its newest checkpoint. Raises JournalBroken."""
    since = Checkpoint.objects.filter(run_id=run.id).order_by("-seq").values_list("seq", flat=True).first() or 0
    with connection.cursor() as cursor:
        cursor.execute(EVENTS, [run.id, since])
        rows = cursor.fetchall()
    last = Head.objects.values_list("seq", flat=True).get(pk=run.id)
    _, tail = read(run.id, rows, Cut(since), at_least=last, version=(run.graph_id, run.generation))
    return Tape(tail)


def at_slot(run_id: UUID, slot: str) -> list[Event]:
    """Return the events at one slot. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(AT_SLOT, [run_id, slot])
        return [checked(run_id, row)[1] for row in cursor.fetchall()]


def end_of(run_id: UUID, seq: int | None, state: str) -> tuple[Event, int]:
    """Return a run's end and the stored size of its payload.
    Raises JournalBroken if the end is missing or was revoked by a retry."""
    with connection.cursor() as cursor:
        cursor.execute(_END, [run_id, seq])
        row = cursor.fetchone()
    if row is None:
        raise JournalBroken(
            f"the row of run {run_id} says that it is {state} since event {seq}, but its journal doesn't"
        )
    link, event = checked(run_id, row)
    if not isinstance(event, _ENDS[state]):
        raise JournalBroken(f"the row of run {run_id} says that it is {state}, but its event {seq} is {event.KIND}")
    return event, len(link.sealed or b"")


def effects_of(run_id: UUID) -> Effects:
    """Return a run's events about effects, and which related runs have effects to undo (see `Effects`).
    The result is empty if nothing could be undone. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(EFFECTS, [run_id, [kind.KIND for kind in KINDS], run_id])
        if not (rows := cursor.fetchall()):
            return Effects()
        cursor.execute(REVERSIBLE, [run_id, run_id])
        roots = cursor.fetchall()
    return Effects([checked(run_id, row)[1] for row in rows], frozenset(str(root) for (root,) in roots))


def to_undo(run_id: UUID) -> tuple[int, bool, frozenset[str]]:
    """Return the journal's end, whether it registers undos, and the related runs that have effects to undo.
    These are the run's children and the run that it continues. A related run is also included if only its own
    descendants, or the runs that they continue, have such effects."""
    with connection.cursor() as cursor:
        cursor.execute(_TO_UNDO, [run_id, run_id, run_id, run_id])
        seq, has_own, roots = cursor.fetchone() or (0, False, [])
    return seq or 0, has_own, frozenset(map(str, roots))


def tells_of_effects(run_id: UUID, *, since: int) -> tuple[int, bool]:
    """Return the journal's end, and whether there are events about effects after `since`."""
    with connection.cursor() as cursor:
        cursor.execute(_NEW_EFFECTS, [since, [kind.KIND for kind in KINDS], run_id])
        seq, is_new = cursor.fetchone() or (0, False)
    return seq, is_new


def undo_of(run_id: UUID) -> list[Event]:
    """Return the events about undoing: the plan, and the outcome for each effect. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(UNDOING, [run_id])
        return [checked(run_id, row)[1] for row in cursor.fetchall()]


def taken_back(rows: Sequence[TupleRow], places: Collection[Place]) -> set[Place]:
    """Return which of these effects were or may have been undone, from the rows of TAKEN_BACK.
    If an event can't be trusted, all effects of its run count as undone."""
    by_run: dict[str, Undoing | None] = {}
    for *row, run_id in rows:
        back = by_run.setdefault(str(run_id), Undoing())
        try:
            event = checked(run_id, row)[1]  # type: ignore[arg-type]
        except JournalBroken as broken:
            log.warning("run %s: what it undid can't be read, so all of it counts as undone: %s", run_id, broken)
            by_run[str(run_id)] = None
            continue
        if back is not None:
            back.see(event)
    return {place for place in places if place[0] in by_run and _is_back(by_run[place[0]], *place[1:])}


def _is_back(back: Undoing | None, slot: str, attempt: int) -> bool:
    return back is None or back.is_begun or (slot, attempt) in back.all


def forked_of(run_id: UUID) -> RunForked | None:
    """Return the event that makes a run a fork, or None. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(EVENTS, [run_id, 2**62])
        return forked_in(run_id, cursor.fetchall())


def origin_of(run_id: UUID) -> RunCarriedOn | None:
    """Return the event that names the run that this one continues, or None. Raises JournalBroken."""
    with connection.cursor() as cursor:
        cursor.execute(ORIGIN, [run_id])
        rows = cursor.fetchall()
    return next((event for row in rows if isinstance(event := checked(run_id, row)[1], RunCarriedOn)), None)
