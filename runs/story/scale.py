"""Time as a share of the timeline's width, ready for SVG attributes (a strict content policy leaves no inline styles).

A run works for milliseconds and waits for days: to scale, all that happened would be one line at the left. So by
default a stretch between two neighbouring moments is as wide as the logarithm of its length, which keeps the order and
lets both be seen; the figures beside the bars are exact, and the page can be asked for the true scale.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import log1p

from runs.story.rows import Row, Shown

# Narrower than this a bar could not be seen.
LEAST_PERCENT = 0.7
# Stretches shorter than this count as this long when shortened, so that none has no width at all.
_FLOOR_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Stretch:
    """A bar's place: left edge and width as percentages of the track."""

    x: str
    width: str
    tone: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A row with its bars placed. `at` is where it began, for rows that are moments."""

    row: Row
    bars: list[Stretch]
    at: str


@dataclass(frozen=True, slots=True)
class Scale:
    """The whole picture: rows, and where the axis begins and ends."""

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
    """Moments to percentages, piece by piece between the moments at which something began or ended."""

    def __init__(self, moments: list[datetime], *, is_true: bool) -> None:
        self._moments = sorted(set(moments))
        lengths = [(b - a).total_seconds() for a, b in pairwise(self._moments)]
        weights = lengths if is_true else [log1p(max(length, _FLOOR_SECONDS) / _FLOOR_SECONDS) for length in lengths]
        whole = sum(weights) or 1.0
        self._edges = [0.0]
        for weight in weights:
            self._edges.append(self._edges[-1] + weight / whole * 100)

    def share(self, at: datetime) -> float:
        """Where a moment lies, from 0 to 100."""
        n = bisect_right(self._moments, at) - 1
        if n < 0:
            return 0.0
        if n >= len(self._moments) - 1:
            return 100.0
        left, right = self._moments[n], self._moments[n + 1]
        part = (at - left) / (right - left)
        return self._edges[n] + part * (self._edges[n + 1] - self._edges[n])


def place(shown: Shown, now: datetime, *, is_true: bool = False) -> Scale | None:
    """Place rows, or None where there is nothing yet."""
    if not shown.rows:
        return None
    start = min(row.start for row in shown.rows)
    ends = [row.end for row in shown.rows if row.end is not None]
    end = now if any(row.is_open for row in shown.rows) or not ends else max(ends)
    end = max(end, start + timedelta(milliseconds=1))
    moments = [start, end]
    for row in shown.rows:
        moments += [row.start, min(row.end or end, end)]
        moments += [min(moment or end, end) for bar in row.bars for moment in (bar.start, bar.end)]
    axis = _Axis(moments, is_true=is_true)
    rows = []
    for row in shown.rows:
        bars = []
        for bar in row.bars:
            left, right = axis.share(bar.start), axis.share(bar.end or end)
            width = max(right - left, LEAST_PERCENT)
            bars.append(Stretch(_percent(min(left, 100 - width)), _percent(width), bar.tone))
        rows.append(Placed(row, bars, _percent(min(axis.share(row.start), 99.6))))
    return Scale(rows, start, end, is_true, shown.hidden, shown.older, shown.newer)


def _percent(value: float) -> str:
    return f"{value:.2f}%"
