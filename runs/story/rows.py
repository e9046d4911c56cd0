"""Rows of a run's timeline and their bars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from runs.story.effects import message_of, trace_of
from runs.story.lines import EventLine

RowKind = Literal[
    "queued", "visit", "think", "call", "read", "mark", "gate", "wait", "child", "crash", "pause", "error"
]

_DECIDE = ("ApprovalDecided", "PlanAmended")  # kinds of events whose justification is shown in their row


@dataclass(slots=True)
class Bar:
    """A bar with one tone: work, done, wait, queue, hold, down. `end` is None while it is open."""

    start: datetime
    end: datetime | None
    tone: str


@dataclass(slots=True)
class Row:
    """A row of the timeline.
    `is_cut` marks a crash after which the next worker was lost before its first step. `run` is the child run that the
    row is about. `noted` and `traced` are the events from whose payloads `open` takes text and traceback."""

    kind: RowKind
    label: str
    start: datetime
    seq: int
    depth: int = 1
    end: datetime | None = None
    bars: list[Bar] = field(default_factory=list)
    note: str = ""
    tone: str = ""
    trace: str = ""
    is_open: bool = False
    count: int = 0
    visit: int = 0
    reached: str = ""
    silent: int | None = None
    is_cut: bool = False
    noted: int = 0
    traced: int = 0
    run: str = ""

    @property
    def silent_seconds(self) -> float | None:
        return None if self.silent is None else self.silent / 1000

    @property
    def took(self) -> float | None:
        return None if self.end is None else (self.end - self.start).total_seconds()

    def open(self, lines: Mapping[int, EventLine]) -> None:
        """Add the parts that only the payloads contain."""
        if line := lines.get(self.noted):
            self.note += (line.get("justification") or "") if line.kind in _DECIDE else message_of(line)
        self.trace = trace_of(lines[self.traced]) if self.traced in lines else ""


@dataclass
class RowPage:
    """A page of rows at a given time: open rows end at that time, and visits include their bars."""

    rows: list[Row] = field(default_factory=list)
    hidden: int = 0
    older: int = 0
    newer: int = 0


def finish(row: Row, at: datetime) -> None:
    row.end, row.is_open = at, False
    for bar in reversed(row.bars):
        if bar.end is not None:
            break
        bar.end = at
