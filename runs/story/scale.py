"""Maps time to percentages of the timeline's width.
They are SVG attributes, because the content policy forbids inline styles. By default the gap between two points in time
is drawn logarithmically, because a run may work for milliseconds and wait for days.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from math import log1p

from runs.models import WAITING as STATES_OF_WAITING
from runs.story.lines import Fact
from runs.story.rows import Row, RowPage

WORKING, QUEUED, WAITING, PAUSED, DOWN, ENDED = "working", "queued", "waiting", "paused", "down", "ended"
_TURNS = {
    "RunCreated": QUEUED,
    "RunClaimed": WORKING,
    "RunParked": WAITING,
    "RunReleased": QUEUED,
    "RunPaused": PAUSED,
    "WorkerLost": DOWN,
    "RunRetried": QUEUED,
    "RunCancelled": ENDED,
    "RunFailed": ENDED,
    "RunCompleted": ENDED,
}
# Events that make a waiting run ready. While it is paused, these events don't.
_WAKES = frozenset(
    {"WaitResolved", "ApprovalDecided", "CallbackReceived", "ToolReconciled", "ChildEnded", "UpstreamAsked"}
)


@dataclass(slots=True)
class Segment:
    """An interval with one status. `end` is None while it lasts."""

    what: str
    start: datetime
    end: datetime | None = None


@dataclass
class Pace:
    """A run's segments in order, without gaps."""

    segments: list[Segment] = field(default_factory=list)
    _starts: list[datetime] = field(default_factory=list)
    _spent: dict[str, float] = field(default_factory=dict)
    _is_ordered: bool = True

    @property
    def now(self) -> str:
        return self.segments[-1].what if self.segments else QUEUED

    def take(self, line: Fact) -> None:
        turn = _TURNS.get(line.kind)
        if line.kind in _WAKES and self.now == WAITING:
            turn = QUEUED
        elif line.kind == "RunResumed" and self.now == PAUSED:
            turn = WAITING if line.clear.get("state") in STATES_OF_WAITING else QUEUED
        if turn is None or (turn == self.now and self.segments):
            return
        if self.segments:
            last = self.segments[-1]
            last.end = line.at
            self._spent[last.what] = self._spent.get(last.what, 0.0) + (line.at - last.start).total_seconds()
            # If a clock was set back, the segments lack the order needed for searching.
            self._is_ordered = self._is_ordered and last.start <= line.at
        self.segments.append(Segment(turn, line.at))
        self._starts.append(line.at)

    def within(self, start: datetime, end: datetime, most: int | None = None) -> list[Segment]:
        """Return the non-empty segments within an interval; if there are many, only the latest."""
        known = self.segments
        if self._is_ordered:
            last = bisect_right(self._starts, end)
            first = max(bisect_right(self._starts, start) - 1, 0)
            known = known[first if most is None else max(first, last - most) : last]
        cut = []
        for segment in known:
            begins, ends = max(segment.start, start), min(segment.end or end, end)
            if ends > begins and segment.what != ENDED:
                cut.append(Segment(segment.what, begins, ends))
        return cut if most is None else cut[-most:]

    def total(self, what: str, now: datetime) -> float:
        """Return the seconds spent with this status until now."""
        last = self.segments[-1] if self.segments else None
        under_way = (now - last.start).total_seconds() if last is not None and last.what == what else 0.0
        return self._spent.get(what, 0.0) + under_way


STEPS: dict[str, Callable[[Pace, Fact], None]] = dict.fromkeys([*_TURNS, *_WAKES, "RunResumed"], Pace.take)


# A narrower bar would be invisible.
LEAST_PERCENT = 0.7
# Minimum length before the logarithm, so that nothing has zero width.
_FLOOR_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Stretch:
    """A bar's left edge and width, as percentages of the timeline."""

    x: str
    width: str
    tone: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A row with placed bars. `at` is its start if the row has no duration."""

    row: Row
    bars: list[Stretch]
    at: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Placed rows, and the start and end of the axis."""

    rows: list[Placed]
    start: datetime
    end: datetime
    is_true: bool
    hidden: int = 0
    older: int = 0
    newer: int = 0

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


class _Axis:
    """Maps times to percentages, piecewise between the starts and ends of rows."""

    def __init__(self, moments: list[datetime], *, is_true: bool) -> None:
        self._moments = sorted(set(moments))
        lengths = [(b - a).total_seconds() for a, b in pairwise(self._moments)]
        weights = lengths if is_true else [log1p(max(length, _FLOOR_SECONDS) / _FLOOR_SECONDS) for length in lengths]
        whole = sum(weights) or 1.0
        self._edges = [0.0]
        for weight in weights:
            self._edges.append(self._edges[-1] + weight / whole * 100)

    def share(self, at: datetime) -> float:
        """Return the position of a time, from 0 to 100."""
        n = bisect_right(self._moments, at) - 1
        if n < 0:
            return 0.0
        if n >= len(self._moments) - 1:
            return 100.0
        left, right = self._moments[n], self._moments[n + 1]
        part = (at - left) / (right - left)
        return self._edges[n] + part * (self._edges[n + 1] - self._edges[n])


def place(page: RowPage, now: datetime, *, is_true: bool = False) -> Scale | None:
    """Return the rows with their positions; None if there are no rows."""
    if not page.rows:
        return None
    start = min(row.start for row in page.rows)
    ends = [row.end for row in page.rows if row.end is not None]
    end = now if any(row.is_open for row in page.rows) or not ends else max(ends)
    end = max(end, start + timedelta(milliseconds=1))
    moments = [start, end]
    for row in page.rows:
        moments += [row.start, min(row.end or end, end)]
        moments += [min(moment or end, end) for bar in row.bars for moment in (bar.start, bar.end)]
    axis = _Axis(moments, is_true=is_true)
    rows = []
    for row in page.rows:
        bars = []
        for bar in row.bars:
            left, right = axis.share(bar.start), axis.share(bar.end or end)
            width = max(right - left, LEAST_PERCENT)
            bars.append(Stretch(_percent(min(left, 100 - width)), _percent(width), bar.tone))
        rows.append(Placed(row, bars, _percent(min(axis.share(row.start), 99.6))))
    return Scale(rows, start, end, is_true, page.hidden, page.older, page.newer)


def _percent(value: float) -> str:
    return f"{value:.2f}%"
