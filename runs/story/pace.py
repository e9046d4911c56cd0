"""Where a run's time went: working, queued, waiting, paused, without a worker. A pure fold over the journal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from runs.models import WAITING as STATES_OF_WAITING
from runs.story.lines import Fact

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
# What makes a waiting run ready. Under pause they wake nothing.
_WAKES = frozenset(
    {"WaitResolved", "ApprovalDecided", "CallbackReceived", "ToolReconciled", "ChildEnded", "UpstreamAsked"}
)


@dataclass(slots=True)
class Segment:
    """A stretch of time in which one thing was true. `end` is None while it still is."""

    what: str
    start: datetime
    end: datetime | None = None


@dataclass
class Pace:
    """The segments of a run in order, without gaps."""

    segments: list[Segment] = field(default_factory=list)
    _starts: list[datetime] = field(default_factory=list)
    _spent: dict[str, float] = field(default_factory=dict)
    _is_ordered: bool = True

    @property
    def now(self) -> str:
        return self.segments[-1].what if self.segments else QUEUED

    def take(self, line: Fact) -> None:
        """Fold one event in."""
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
            # A clock that was set back: then there is nothing to search by.
            self._is_ordered = self._is_ordered and last.start <= line.at
        self.segments.append(Segment(turn, line.at))
        self._starts.append(line.at)

    def within(self, start: datetime, end: datetime, most: int | None = None) -> list[Segment]:
        """The segments cut to a stretch of time, of many the latest; those of no length are left out."""
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
        """Seconds spent so far with `what` being true."""
        last = self.segments[-1] if self.segments else None
        under_way = (now - last.start).total_seconds() if last is not None and last.what == what else 0.0
        return self._spent.get(what, 0.0) + under_way


STEPS: dict[str, Callable[[Pace, Fact], None]] = dict.fromkeys([*_TURNS, *_WAKES, "RunResumed"], Pace.take)
