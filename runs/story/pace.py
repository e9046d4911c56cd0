"""Where a run's time went: working, queued, waiting, paused, without a worker. A pure fold over the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from runs.story.lines import Line

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
_WAKES = frozenset({"WaitResolved", "ApprovalDecided", "CallbackReceived", "ToolReconciled"})


@dataclass
class Segment:
    """A stretch of time in which one thing was true. `end` is None while it still is."""

    what: str
    start: datetime
    end: datetime | None = None


@dataclass
class Pace:
    """The segments of a run in order, without gaps."""

    segments: list[Segment] = field(default_factory=list)

    @property
    def now(self) -> str:
        return self.segments[-1].what if self.segments else QUEUED

    def take(self, line: Line) -> None:
        """Fold one event in."""
        turn = _TURNS.get(line.kind)
        if line.kind in _WAKES and self.now == WAITING:
            turn = QUEUED
        elif line.kind == "RunResumed" and self.now == PAUSED:
            turn = WAITING if str(line.clear.get("state", "")).startswith("waiting") else QUEUED
        if turn is None or (turn == self.now and self.segments):
            return
        if self.segments:
            self.segments[-1].end = line.at
        self.segments.append(Segment(turn, line.at))

    def within(self, start: datetime, end: datetime) -> list[Segment]:
        """The segments cut to a stretch of time; those of no length are left out."""
        cut = []
        for segment in self.segments:
            begins, ends = max(segment.start, start), min(segment.end or end, end)
            if ends > begins and segment.what != ENDED:
                cut.append(Segment(segment.what, begins, ends))
        return cut

    def total(self, what: str, now: datetime) -> float:
        """Seconds spent so far with `what` being true."""
        return sum(
            ((segment.end or now) - segment.start).total_seconds() for segment in self.segments if segment.what == what
        )
