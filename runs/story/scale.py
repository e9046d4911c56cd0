"""Time as a share of the timeline's width, ready for SVG attributes (a strict content policy leaves no inline styles)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from runs.story.timeline import Row, Timeline

# Narrower than this a bar could not be seen; what is real stays in the figure beside it.
LEAST_PERCENT = 0.7


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
    """The whole picture: rows, where the axis begins and ends, and its marks in between."""

    rows: list[Placed]
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    @property
    def marks(self) -> list[float]:
        """Seconds since the start at the axis's left end, middle and right end."""
        return [0.0, self.seconds / 2, self.seconds]


def place(timeline: Timeline, now: datetime) -> Scale | None:
    """Place all rows, or None where there is nothing yet."""
    if not timeline.rows:
        return None
    start = min(row.start for row in timeline.rows)
    ends = [row.end for row in timeline.rows if row.end is not None]
    end = now if any(row.is_open for row in timeline.rows) or not ends else max(ends)
    end = max(end, start + timedelta(milliseconds=1))
    whole = (end - start).total_seconds()

    def share(at: datetime) -> float:
        return min(max((at - start).total_seconds() / whole * 100, 0.0), 100.0)

    rows = []
    for row in timeline.rows:
        bars = []
        for bar in row.bars:
            left, right = share(bar.start), share(bar.end or end)
            width = max(right - left, LEAST_PERCENT)
            bars.append(Stretch(_percent(min(left, 100 - width)), _percent(width), bar.tone))
        rows.append(Placed(row, bars, _percent(min(share(row.start), 99.6))))
    return Scale(rows, start, end)


def _percent(value: float) -> str:
    return f"{value:.2f}%"
