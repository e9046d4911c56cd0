"""A cache of stories per process, so that a page costs only the events since the last view.
Its memory is bounded. Every view compares the last folded event and the next one's link. Newly opened pages, and live
ones every few seconds, also compare count, transactions and physical positions of all folded rows; in PostgreSQL, any
change of a row alters these. If anything differs, the story is built again.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from ledger.clock import ReadableTime
from ledger.web.seeing.payloads import Hidden
from runs.story import Bare, EventLine, Fold, clear_of, doubts, mislabelled, read
from runs.story.lines import Stored

MAX_BYTES = 64 * 2**20
MAX_RUNS = 256
MAX_PIECES = 600
MAX_HTML_BYTES = 2**20
MAX_DOUBTS = 5
# A refreshed page may skip the check of all folded rows for this long.
UNASKED_SECONDS = 5.0
AT_ONCE = 5000
# Memory per event in a fold: rows, bars, segments, references. tests/integration/scale measures it.
BYTES_PER_EVENT = 640

_FIRST = -(2**63)
_FACTS = """
    SELECT seq, at::text, kind, slot, attempt, clear, prev_hash, hash, xmin::text::bigint + hashtid(ctid)
    FROM ledger_event WHERE run_id = %s AND seq >= %s ORDER BY seq LIMIT %s"""
# The same rows with the checksum of the rows up to there; if there are no more, one row without an event.
_REQUESTS = f"""
    SELECT facts.*, known.* FROM (
        SELECT count(*), coalesce(sum(xmin::text::bigint + hashtid(ctid)), 0) FROM ledger_event
        WHERE run_id = %s AND seq <= %s
    ) AS known LEFT JOIN ({_FACTS}) AS facts ON true ORDER BY seq"""
# For a run that is folded from its start: first the checksum of all rows, then the rows. If a row changes in between,
# the changed row is folded with the old checksum, so the next view notices.
_KNOWN = """
    SELECT last.*, known.* FROM (
        SELECT seq, hash, xmin::text::bigint + hashtid(ctid) FROM ledger_event
        WHERE run_id = %s ORDER BY seq DESC LIMIT 1
    ) AS last, LATERAL (
        SELECT sum(xmin::text::bigint + hashtid(ctid)) FROM ledger_event WHERE run_id = %s AND seq <= last.seq
    ) AS known"""
_PLAIN = """
    SELECT seq, at::text, kind, slot, attempt, clear FROM ledger_event
    WHERE run_id = %s AND seq >= %s AND seq <= %s ORDER BY seq LIMIT %s"""
_WHOLE = """
    SELECT seq, at, kind, slot, attempt, epoch, clear, sealed, hash, prev_hash, code
    FROM ledger_event WHERE run_id = %s"""
_LINES = f"{_WHOLE} AND seq = ANY(%s)"
_WINDOW = f"{_WHOLE} AND seq < %s ORDER BY seq DESC LIMIT %s"


class LastEvent(NamedTuple):
    """The last folded event, as values that reveal whether it was changed."""

    seq: int
    hash: bytes
    print: int


NOTHING = LastEvent(_FIRST, b"", 0)


class Drawn:
    """Cached HTML of the unchanging parts of a run (effects up to their last event, events, messages).
    The HTML contains no forms, and nothing that depends on time or reader. Thread-safe, because each operation is
    atomic in the interpreter."""

    def __init__(self) -> None:
        self._pieces: dict[Hashable, str] = {}
        self._doubts: dict[int, str] = {}
        self.bytes = 0

    def get(self, key: Hashable) -> str | None:
        return self._pieces.get(key)

    def keep(self, key: Hashable, html: str) -> None:
        """Cache a part.
        If there are too many parts, all are dropped; the current ones are rendered again at the next view."""
        if self.bytes + len(html) > MAX_HTML_BYTES or len(self._pieces) >= MAX_PIECES:
            self._pieces, self.bytes = {}, 0
        if len(html) * 4 <= MAX_HTML_BYTES:
            self._pieces[key] = html
            self.bytes += len(html)

    def doubt(self, seq: int, why: str) -> None:
        """Record an event that can't be trusted, for as long as HTML rendered from it is cached."""
        if len(self._doubts) < MAX_DOUBTS:
            self._doubts[seq] = why

    @property
    def doubts(self) -> list[tuple[int, str]]:
        return sorted(self._doubts.copy().items())


@dataclass
class CachedStory:
    """One run's fold. Use this only under the lock."""

    run_id: UUID
    lock: threading.Lock = field(default_factory=threading.Lock)
    fold: Fold = field(default_factory=Fold)
    drawn: Drawn = field(default_factory=Drawn)
    last: LastEvent = NOTHING
    prints: int = 0
    bytes: int = 0
    checked_at: float = 0.0

    def forget(self) -> None:
        self.fold, self.drawn, self.last, self.prints, self.bytes = Fold(), Drawn(), NOTHING, 0, 0

    def catch_up(self, *, is_opened: bool) -> None:
        """Fold new events. If the folded rows have changed, fold all events again."""
        if self.last is NOTHING:
            self._reset()
            return
        must_ask = is_opened or time.monotonic() > self.checked_at + UNASKED_SECONDS
        rows = self._checked() if must_ask else _rows(_FACTS, self.run_id, self.last.seq, AT_ONCE)
        if not self._goes_on(rows):
            self._reset()
            return
        is_more = len(rows) == AT_ONCE
        del rows[0]
        while rows:
            self._take([row[:6] for row in rows])
            self.prints += sum(row[8] for row in rows)
            self.last = _last_event(rows[-1])
            rows = _rows(_FACTS, self.run_id, self.last.seq + 1, AT_ONCE) if is_more else []
            is_more = len(rows) == AT_ONCE

    def _reset(self) -> None:
        self.forget()
        self.checked_at = time.monotonic()
        for seq, hash_, print_, prints in _rows(_KNOWN, self.run_id, self.run_id):
            since: int | None = _FIRST
            while since is not None:
                since = self._take_some(since, seq)
            self.last, self.prints = LastEvent(seq, bytes(hash_), print_), int(prints)

    def _take_some(self, since: int, until: int) -> int | None:
        """Fold one batch of rows. Returns where the next batch begins, or None at the end."""
        with connection.cursor() as cursor:
            cursor.execute(_PLAIN, [self.run_id, since, until, AT_ONCE])
            with _uncollected():
                rows = list(cursor.fetchall())
                self._take(rows)
                return rows[-1][0] + 1 if len(rows) == AT_ONCE else None

    def _checked(self) -> list[tuple[Any, ...]]:
        """Return the rows from the last folded event on; none if folded rows have changed."""
        rows = _rows(_REQUESTS, self.run_id, self.last.seq, self.run_id, self.last.seq, AT_ONCE)
        self.checked_at = time.monotonic()
        count, prints = rows[0][-2:]
        return rows if (count, int(prints)) == (self.fold.length, self.prints) and rows[0][0] is not None else []

    def _goes_on(self, rows: list[tuple[Any, ...]]) -> bool:
        return (
            bool(rows) and _last_event(rows[0]) == self.last and (len(rows) < 2 or bytes(rows[1][6]) == self.last.hash)
        )

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        take, moment = self.fold.take, _TIMES.read
        for seq, at, kind, slot, attempt, stored in rows:
            clear, damage = clear_of(kind, stored)
            damage = damage or mislabelled(kind, slot, attempt, clear)
            take(Bare(seq, moment(at), kind, slot, attempt, clear, damage))
        self.bytes += sum(BYTES_PER_EVENT + len(row[5]) for row in rows)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector, because folding creates no cycles, so collections would be wasted.
    If several threads do so, the one that disabled it enables it again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# Times are parsed here from text, because a callback of the driver for each would take twice as long.
_TIMES = ReadableTime(0)


def _rows(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _last_event(row: tuple[Any, ...]) -> LastEvent:
    return LastEvent(row[0], bytes(row[7]), row[8])


_guard = threading.Lock()
_kept: OrderedDict[UUID, CachedStory] = OrderedDict()


@contextmanager
def locked_story(run_id: UUID, *, is_opened: bool = True) -> Iterator[CachedStory]:
    """Yield a run's fold up to its newest event, under its lock.
    The caller must have used the database in this request already: waiting for a connection while holding this lock
    could deadlock with threads that hold connections."""
    with _guard:
        kept = _kept.setdefault(run_id, CachedStory(run_id))
        _kept.move_to_end(run_id)
    with kept.lock:
        try:
            kept.catch_up(is_opened=is_opened)
            yield kept
        except BaseException:
            # A partial fold can't be used.
            kept.forget()
            raise
    _make_room()


def _make_room() -> None:
    with _guard:
        total = sum(kept.bytes + kept.drawn.bytes for kept in _kept.values())
        while _kept and (total > MAX_BYTES or len(_kept) > MAX_RUNS):
            _, gone = _kept.popitem(last=False)
            total -= gone.bytes + gone.drawn.bytes


def cached_stories() -> dict[UUID, int]:
    with _guard:
        return {run_id: kept.bytes + kept.drawn.bytes for run_id, kept in _kept.items()}


def undraw(run_id: UUID) -> None:
    """Drop the HTML that shows a run's content."""
    with _guard:
        if run_id in _kept:
            _kept[run_id].drawn = Drawn()


def forget_all() -> None:
    with _guard:
        _kept.clear()


class Opened:
    """Events of one run with payloads.
    Each is read once per request. Payloads are replaced by `hidden`, if given. With `is_head`, only the beginning of
    large payloads is read."""

    def __init__(
        self, run_id: UUID, drawn: Drawn | None = None, *, hidden: Hidden | None = None, is_head: bool = False
    ) -> None:
        self._run_id, self._drawn, self._hidden, self._is_head = run_id, drawn or Drawn(), hidden, is_head
        self._lines: dict[int, EventLine] = {}

    def __call__(self, seqs: Iterable[int]) -> Mapping[int, EventLine]:
        if missing := [seq for seq in set(seqs) if seq not in self._lines]:
            self._lines.update((line.seq, line) for line in self._shown(_LINES, missing))
        return self._lines

    def journal(self, before: int | None, most: int) -> list[EventLine]:
        """Return a part of the journal, newest first."""
        lines = self._shown(_WINDOW, 2**63 - 1 if before is None else before, most)
        doubts.mark_gaps(lines)
        return lines

    def _shown(self, statement: str, *values: Any) -> list[EventLine]:
        """Return lines for a page. Payloads are hidden only after the check of authenticity, which needs them."""
        lines = _lines(self._drawn, statement, self._run_id, *values)
        for line in lines:
            line.is_head = self._is_head
            if self._hidden is not None:
                line.hide(self._hidden)
        return lines


def _lines(drawn: Drawn, statement: str, run_id: UUID, *values: Any) -> list[EventLine]:
    """Return stored events. Untrusted events are recorded with the cached HTML, which may outlive this request."""
    with connection.cursor() as cursor:
        cursor.execute(statement, [run_id, *values])
        rows = [Stored(*row) for row in cursor.fetchall()]
    lines = list(read(rows))
    for row, line in zip(rows, lines, strict=True):
        if not line.damage and (why := doubts.distrust_reason(run_id, row)):
            line.damage = why
            drawn.doubt(line.seq, why)
    return lines
