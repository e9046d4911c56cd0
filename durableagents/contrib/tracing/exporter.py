"""Exports the recorded events in order of time.

One process of an installation does so at a time, while others wait to replace it. Workers are not involved: spans are
made from committed events, so none is lost when a worker is killed."""

# An event gets its time before its transaction commits, so events don't become visible in order of time. Each round
# notes the time and which transactions are open. Once all of those have ended, the events before that time are complete
# and are exported. Later events are read in a later round. So each event is read once, in a range of times (using the
# index ledger_event_by_time), and only the time up to which events were exported has to be stored.

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from durableagents.contrib.tracing import spans
from durableagents.contrib.tracing.export import Outcome
from durableagents.contrib.tracing.spans import Begun, Place, Recorded, Span, is_sampled
from ledger import events as e
from ledger.spans import span_id
from runs import log_messages
from runs.backoff import Patience
from runs.connections import dsn

log = logging.getLogger(__name__)

LOCK = 9_500_095
POLL_SECONDS = 0.5
STANDBY_SECONDS = 5.0
# Events are read and sent in batches of at most this number.
MAX_EVENTS = 2000
# After a batch, the process rests for this multiple of the time that the batch took, because it shares the machine with
# workers. The rest is shorter if there is more to read, so that the exporter can catch up.
REST, SHORT_REST = 9.0, 2.0
# A transaction that stays open delays spans for at most this time. Events that it commits later are not exported.
MAX_WAIT = timedelta(minutes=1)
# Events older than this are not exported when the collector becomes reachable again.
MAX_BEHIND = timedelta(hours=24)
# The first range of time in which events are searched. Ranges grow while they contain few events.
FIRST_RANGE, MAX_RANGE = timedelta(seconds=2), timedelta(minutes=5)
SAVE_SECONDS, TIDY_SECONDS = 1.0, 60.0
KEPT_ORIGINS = timedelta(minutes=10)
_MARGIN = timedelta(milliseconds=50)
_LOWEST = UUID(int=0)
_SAVE = "INSERT INTO tracing_position (id, at) VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET at = excluded.at"

_NOTE = """
    SELECT statement_timestamp(), pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
    FROM pg_current_snapshot() AS s"""
# MATERIALIZED makes the planner read the events first, by their index, and then the run of each.
_READ = """
    WITH recent AS MATERIALIZED (
        SELECT run_id, seq, epoch, at, kind, slot, attempt, clear FROM ledger_event
        WHERE at >= %(at)s AND at < %(until)s AND (at, run_id, seq) > (%(at)s, %(run)s, %(seq)s)
          AND kind = ANY(%(kinds)s)
        ORDER BY at, run_id, seq LIMIT %(limit)s)
    SELECT v.at, v.run_id, v.seq, v.epoch, v.slot, v.attempt, v.clear, r.trace_id, r.graph_id, r.created_at,
           coalesce(r.came_from, r.parent), o.span_id
    FROM recent v LEFT JOIN runs_run r ON r.id = v.run_id
    LEFT JOIN tracing_origin o ON v.kind = 'RunCreated' AND o.run_id = v.run_id
    ORDER BY v.at, v.run_id, v.seq"""
_BEGINNINGS = """
    SELECT v.run_id, v.slot, v.attempt, v.fact, v.at, v.clear
    FROM unnest(%s::uuid[], %s::text[], %s::int[], %s::text[]) AS k (run_id, slot, attempt, fact)
    JOIN ledger_event v USING (run_id, slot, attempt, fact)"""
# Selects the claim that an event may end: the last earlier event that began or ended a claim, if it began one.
_CLAIMS = """
    SELECT k.run_id, k.seq, c.at FROM unnest(%s::uuid[], %s::bigint[]) AS k (run_id, seq)
    CROSS JOIN LATERAL (
        SELECT v.kind, v.at FROM ledger_event v WHERE v.run_id = k.run_id AND v.seq < k.seq AND v.kind = ANY(%s)
        ORDER BY v.seq DESC LIMIT 1) c
    WHERE c.kind = 'RunClaimed'"""
_KINDS = [kind.__name__ for kind in spans.EXPORTED]
_TURNS = ["RunClaimed", *(kind.__name__ for kind in spans.LEAVING)]

Send = Callable[[Sequence[Span]], Outcome]


class _Row(NamedTuple):
    """A row of _READ. The columns of the run are null if it has no row any more."""

    at: datetime
    run_id: UUID
    seq: int
    epoch: int
    slot: str | None
    attempt: int
    clear: bytes
    trace_id: str | None
    agent: str
    created_at: datetime
    above: UUID | None
    origin: str | None


def keep_exporting(sender: Any, ratio: float, stop: threading.Event) -> None:
    """Export until stopped, whenever no other process does. An outage of the database only delays it."""
    outage, patience = log_messages.Outage(log, "tracing"), Patience()
    while not stop.is_set():
        try:
            with psycopg.connect(dsn(name="durableagents traces"), autocommit=True) as link:
                outage.over()
                patience.reset()
                while not (is_ours := _is_locked(link)) and not stop.wait(STANDBY_SECONDS):
                    pass
                if is_ours:
                    Exporter(link, sender.send, ratio).run(stop)
        except (psycopg.Error, OSError) as error:
            outage.began(error)
            stop.wait(patience.seconds())


def _is_locked(link: psycopg.Connection[Any]) -> bool:
    return link.execute("SELECT pg_try_advisory_lock(%s)", [LOCK]).fetchone() == (True,)


class Exporter:
    """Exports events, starting where the last exporter stopped. The first exporter begins at the current time."""

    def __init__(self, link: psycopg.Connection[Any], send: Send, ratio: float = 1.0) -> None:
        self.link, self._send, self._ratio = link, send, ratio
        # The planner's statistics lag behind the newest events, which are the ones that are read. Commits need not be
        # durable: if the position is lost, some spans are only sent twice.
        link.execute("SET enable_seqscan = off; SET synchronous_commit = off")
        # times, each with the id of the next transaction at that time
        self._notes: deque[tuple[datetime, int]] = deque()
        self._range = FIRST_RANGE
        self._save_at = self._tidy_at = 0.0
        # The last exported event, or the end of a range that was exported completely.
        self._position: tuple[datetime, UUID, int]
        if row := link.execute("SELECT at FROM tracing_position").fetchone():
            self._go_to(row[0])
        else:
            self._go_to(self._note()[0])
            self._save()

    @property
    def position(self) -> datetime:
        """Return the time before which all events were exported."""
        return self._position[0]

    def run(self, stop: threading.Event) -> None:
        """Export until stopped, then export once more. Raises psycopg.Error."""
        is_last, patience = False, Patience(first_seconds=1.0, last_seconds=30.0)
        while not is_last:
            is_last, began = stop.is_set(), time.monotonic()
            outcome, is_all = self.export()
            spent = time.monotonic() - began
            if outcome is Outcome.AWAY:
                stop.wait(patience.seconds())
                continue
            patience.reset()
            if not is_last:
                stop.wait(max(POLL_SECONDS, spent * REST) if is_all else spent * SHORT_REST)
        self._save()

    def export(self) -> tuple[Outcome, bool]:
        """Export the next complete batch. Raises psycopg.Error.

        Returns the outcome of sending it, and whether there is nothing more to export."""
        until = self._complete()
        at, run, seq = self._position
        end = min(until, at + self._range)
        if end <= at:
            return Outcome.TAKEN, True
        asked = {"at": at, "run": run, "seq": seq, "until": end, "kinds": _KINDS, "limit": MAX_EVENTS}
        rows = self.link.execute(_READ, asked, binary=True).fetchall()
        if (made := self._spans(rows)) and (outcome := self._send(made)) is Outcome.AWAY:
            return outcome, False
        if is_full := len(rows) == MAX_EVENTS:
            self._position, self._range = rows[-1][:3], max((rows[-1][0] - at) * 2, FIRST_RANGE)
        else:
            self._go_to(end)
            self._range = min(self._range * 2, MAX_RANGE)
        if time.monotonic() >= (self._save_at if rows else self._tidy_at):
            self._save()
        return Outcome.TAKEN, not is_full and end == until

    # --- which events are complete ---

    def _note(self) -> tuple[datetime, int]:
        """Record the time and the open transactions. Return the time, and the id of the oldest open transaction."""
        row = self.link.execute(_NOTE).fetchone()
        assert row is not None
        now, oldest, following = row
        self._notes.append((now - _MARGIN, following))
        return now, oldest

    def _complete(self) -> datetime:
        """Return a time before which no further events can become visible."""
        now, oldest = self._note()
        while len(self._notes) > 1 and (self._notes[1][1] <= oldest or self._notes[0][0] < now - MAX_WAIT):
            self._notes.popleft()
        if now < self.position:
            log.warning("tracing: the clock was set back by %s; some spans are sent twice", self.position - now)
            self._go_to(now - FIRST_RANGE)
        if self.position < now - MAX_BEHIND:
            log.warning("tracing: spans from %s to %s are not sent: too late", self.position, now - MAX_BEHIND)
            self._go_to(now - MAX_BEHIND)
        at, following = self._notes[0]
        return at if following <= oldest else now - MAX_WAIT

    def _go_to(self, at: datetime) -> None:
        self._position = (at, _LOWEST, 0)

    def _save(self) -> None:
        """Store the position for the next process, and delete origins that were exported."""
        at, now = self.position, time.monotonic()
        self.link.execute(_SAVE, [at])
        self._save_at = now + SAVE_SECONDS
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_SECONDS
            # The ids of runs that requests start are of version 7, and begin with the time in milliseconds.
            milliseconds = round((at - KEPT_ORIGINS).timestamp() * 1000)
            self.link.execute("DELETE FROM tracing_origin WHERE run_id < %s", [UUID(int=milliseconds << 80)])

    # --- their spans ---

    def _spans(self, rows: Sequence[Any]) -> list[Span]:
        """Return the spans of events. Damaged events have no spans, and are logged."""
        recorded, places, ends = [], {}, []
        for row in rows:
            if (one := self._recorded(_Row._make(row))) is None:
                continue
            recorded.append(one)
            if type(one.event) in spans.BEGINNINGS:
                places[one.place] = Begun(one.at, one.event)
            elif type(one.event) in spans.LEAVING:
                ends.append(one)
        wanted = [place for one in recorded for place in spans.beginnings_of(one) if place not in places]
        if wanted:
            columns = [list(column) for column in zip(*wanted, strict=True)]
            for run_id, slot, attempt, fact, at, clear in self.link.execute(_BEGINNINGS, columns, binary=True):
                if (event := _decoded(run_id, slot, attempt, clear)) is not None:
                    places[(run_id, slot, attempt, fact)] = Begun(_nanoseconds(at), event)
        claims = {}
        if ends:
            of = [[one.run_id for one in ends], [one.seq for one in ends], _TURNS]
            claims = {(run, seq): _nanoseconds(at) for run, seq, at in self.link.execute(_CLAIMS, of, binary=True)}
        return [span for one in recorded for span in _made(one, places, claims.get((one.run_id, one.seq)))]

    def _recorded(self, row: _Row) -> Recorded | None:
        """Return an event to export, or None if its run isn't sampled or no longer has a row."""
        if not row.trace_id or not is_sampled(row.trace_id, self._ratio):
            return None
        event = _decoded(row.run_id, row.slot, row.attempt, row.clear)
        if event is None:
            return None
        parent = span_id(str(row.above)) if row.above else row.origin or ""
        times = _nanoseconds(row.at), _nanoseconds(row.created_at)
        return Recorded(row.run_id, row.seq, row.epoch, *times, event, row.trace_id, row.agent, parent)


def _decoded(run_id: UUID, slot: str | None, attempt: int, clear: bytes) -> e.Event | None:
    """Decode an event. A damaged event is logged, and None returned."""
    try:
        event = e.decode(clear)
        if (event.slot, event.attempt) != (slot, attempt):
            raise ValueError("it is not of its row")
    except (KeyError, TypeError, ValueError) as error:
        log.warning("tracing: an event of run %s can't be read (%r) and has no span", run_id, error)
        return None
    return event


def _made(one: Recorded, places: Mapping[Place, Begun], claimed_at: int | None) -> list[Span]:
    try:
        return spans.of(one, places, claimed_at)
    except (AttributeError, TypeError, ValueError) as error:
        log.warning("tracing: event %s of run %s is damaged (%r) and has no span", one.seq, one.run_id, error)
        return []


def _nanoseconds(at: datetime) -> int:
    return round(at.timestamp() * 1e6) * 1000
