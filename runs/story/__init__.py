"""A run's whole story from one pass over its journal: what the run page shows, and nothing that the journal doesn't say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from ledger.visible import Change, compare, leaves
from runs.story.effects import Effect, Effects, message_of, trace_of
from runs.story.gates import Gate, Gates
from runs.story.lines import Line, is_step, line_of, read
from runs.story.pace import WORKING, Pace
from runs.story.timeline import Row, Timeline
from runs.story.transcript import Talk, Transcript

__all__ = ["Crash", "Effect", "Gate", "Line", "Row", "Story", "Talk", "Trouble", "line_of", "read", "tell"]

_END = {"RunCompleted", "RunFailed", "RunCancelled"}
_TROUBLE = {"RunFailed", "ModelFailed", "ToolFailed", "ToolOutcomeUnknown", "OperatorNeeded"}


@dataclass
class Crash:
    """The loss of a worker and the next step of the run. `in_flight`: calls that had been sent and not answered."""

    at: datetime
    seq: int
    worker: str
    pid: int
    proof: str
    back_at: datetime | None = None
    in_flight: int = 0

    @property
    def took(self) -> float | None:
        """Seconds in which nobody drove the run: from the loss to the first step of the next worker, as the page on recoveries counts."""
        return None if self.back_at is None else (self.back_at - self.at).total_seconds()


@dataclass
class Trouble:
    """Something that went wrong, in the words of whoever noticed."""

    kind: str
    at: datetime
    seq: int
    where: str
    message: str
    trace: str = ""
    details: Any = None

    @property
    def two_calls(self) -> tuple[dict[str, Any], dict[str, Any], list[Change]] | None:
        """Where a replay came to another call than the journal has: the recorded one, today's, and how their arguments differ."""
        found = self.details if isinstance(self.details, dict) else {}
        recorded, now = found.get("recorded"), found.get("now")
        if not isinstance(recorded, dict) or not isinstance(now, dict):
            return None
        both = "arguments" in recorded and "arguments" in now
        changes = compare(leaves(now["arguments"]), leaves(recorded["arguments"])) if both else []
        return recorded, now, [change for change in changes if change.what != "same"]


@dataclass
class Story:
    """Everything, folded. Lists are in the order in which things happened."""

    timeline: Timeline = field(default_factory=Timeline)
    pace: Pace = field(default_factory=Pace)
    effects: Effects = field(default_factory=Effects)
    transcript: Transcript = field(default_factory=Transcript)
    gates: Gates = field(default_factory=Gates)
    crashes: list[Crash] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    input: Any = None
    output: Any = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    last: Line | None = None
    owner: Line | None = None
    asked_by: str = ""
    length: int = 0
    damaged: list[Line] = field(default_factory=list)

    @property
    def node(self) -> str:
        return self.path[-1] if self.path else ""

    @property
    def edges(self) -> set[tuple[str, str]]:
        """Every step from node to node that the run took."""
        return set(pairwise(self.path))

    def visits(self, node: str) -> int:
        return self.path.count(node)

    @property
    def slowest_recovery(self) -> float | None:
        return max((crash.took for crash in self.crashes if crash.took is not None), default=None)

    @property
    def crash_in_flight(self) -> int:
        return sum(crash.in_flight for crash in self.crashes)

    @property
    def failure(self) -> str:
        """What the run's failure said, as a sentence."""
        said = next((trouble.message for trouble in reversed(self.troubles) if trouble.kind == "RunFailed"), "").strip()
        return said if said.endswith((".", "!", "?")) or not said else f"{said}."

    @property
    def stop(self) -> Trouble | None:
        """Why the engine last stopped for an operator."""
        return next((trouble for trouble in reversed(self.troubles) if trouble.kind == "OperatorNeeded"), None)

    @property
    def under_way(self) -> str:
        """The call or request whose answer the worker is waiting for now, if any: the step a pause waits for."""
        for row in reversed(self.timeline.rows):
            if row.is_open and row.kind in ("call", "think"):
                return row.label
        return ""

    def working_seconds(self, now: datetime) -> float:
        return self.pace.total(WORKING, now)

    def take(self, line: Line) -> None:
        """Fold one event in. One that isn't what its kind says tells nothing: it is named as damaged, and the journal shows it."""
        if line.damage:
            self.damaged.append(line)
            self.last, self.length = line, self.length + 1
            return
        if line.kind == "WorkerLost":
            self._lost(line)
        elif is_step(line) and self.crashes and self.crashes[-1].back_at is None and self.owner is not None and self.owner.seq > self.crashes[-1].seq:
            self.crashes[-1].back_at = line.at
        for part in (self.timeline, self.pace, self.effects, self.transcript, self.gates):
            part.take(line)
        self.last, self.length = line, self.length + 1
        self.started_at = self.started_at or line.at
        match line.kind:
            case "RunCreated":
                self.input = line.payload
            case "VisitEntered":
                self.path.append(line.clear["node"])
            case "RunClaimed":
                self.owner = line
            case "PauseRequested" | "CancelRequested":
                self.asked_by = line.clear["by"]
            case "RunPaused" | "RunCancelled":
                # A worker that stops on request names only the office; the person is who asked.
                self.asked_by = self.asked_by if line.clear["by"] == "operator" else line.clear["by"]
            case "RunCompleted":
                self.output = line.payload
            case "RunRetried":
                self.ended_at = None
        if line.kind in _END:
            self.ended_at = line.at
        if line.kind in _TROUBLE:
            self._trouble(line)

    def _lost(self, line: Line) -> None:
        clear = line.clear
        crash = Crash(line.at, line.seq, clear["worker"], clear["pid"], clear["proof"])
        crash.in_flight = self.effects.count("sent")
        self.crashes.append(crash)

    def _trouble(self, line: Line) -> None:
        where = line.clear.get("tool") or line.clear.get("conversation") or self.node
        trouble = Trouble(line.kind, line.at, line.seq, where, message_of(line), trace_of(line))
        trouble.details = line.get("details") if line.kind != "OperatorNeeded" else line.shown
        if not trouble.message:
            trouble.message = line.clear.get("reason") or line.clear.get("code") or line.kind
        self.troubles.append(trouble)


def tell(lines: Iterable[Line], now: datetime) -> Story:
    """Fold a run's journal, ascending by seq, as of `now`."""
    story = Story()
    for line in lines:
        story.take(line)
    story.timeline.close(story.pace, now, story.ended_at)
    return story
