"""The run as rows of bars over one axis of time: visits, what happened inside them, crashes, waits. A pure fold over the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from runs.story.effects import message_of, trace_of
from runs.story.lines import Line, is_step
from runs.story.pace import DOWN, PAUSED, QUEUED, WAITING, WORKING, Pace


@dataclass
class Bar:
    """A stretch drawn in one tone: work, done, wait, queue, hold, down. `end` is None while it goes on."""

    start: datetime
    end: datetime | None
    tone: str


@dataclass
class Row:
    """One row. `kind` names the template that words it: visit, think, call, gate, wait, crash, mark, error. A crash `is_cut` whose
    next worker was lost before its first step.
    """

    kind: str
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

    @property
    def silent_seconds(self) -> float | None:
        return None if self.silent is None else self.silent / 1000

    @property
    def took(self) -> float | None:
        return None if self.end is None else (self.end - self.start).total_seconds()


_TONES = {WORKING: "done", QUEUED: "queue", WAITING: "wait", PAUSED: "hold", DOWN: "down"}


@dataclass
class Timeline:
    """Rows in the order in which they began. `close` finishes it: open rows end now, visits get their bars."""

    rows: list[Row] = field(default_factory=list)
    _visit: Row | None = None
    _talks: dict[str, Row] = field(default_factory=dict)
    _calls: dict[str, Row] = field(default_factory=dict)
    _gates: dict[str, Row] = field(default_factory=dict)
    _waits: dict[tuple[str, str, int], Row] = field(default_factory=dict)
    _crash: Row | None = None
    _is_claimed: bool = False
    _pause: Row | None = None

    def take(self, line: Line) -> None:
        """Fold one event in. Kinds without a step here don't show on the timeline."""
        if self._crash is not None and self._is_claimed and is_step(line):
            finish(self._crash, line.at)
            self._crash = None
        step = _STEPS.get(line.kind)
        if step is not None:
            step(self, line)

    def add(self, line: Line, kind: str, label: str, *, depth: int = 1, tone: str = "", note: str = "") -> Row:
        row = Row(kind, label, line.at, line.seq, depth=depth, tone=tone, note=note, is_open=True)
        self.rows.append(row)
        return row

    def mark(self, line: Line, label: str, *, tone: str = "", note: str = "", kind: str = "mark") -> Row:
        """A row for a moment."""
        row = self.add(line, kind, label, tone=tone, note=note)
        row.end, row.is_open = line.at, False
        return row

    def close(self, pace: Pace, now: datetime, ended_at: datetime | None) -> None:
        """End what is open and cut the visits' bars out of where the time went."""
        until = ended_at or now
        for row in self.rows:
            if row.is_open and ended_at is not None:
                finish(row, until)
            for bar in row.bars:
                bar.end = bar.end or until
            if row.kind == "visit":
                segments = pace.within(row.start, row.end or until)
                row.bars = [Bar(segment.start, segment.end, _TONES[segment.what]) for segment in segments]
        first = self.rows[0].start if self.rows else None
        if pace.segments and (first is None or first > pace.segments[0].start):
            self._before_the_first(pace, first or until, is_open=first is None and ended_at is None)

    def _before_the_first(self, pace: Pace, until: datetime, *, is_open: bool) -> None:
        start = pace.segments[0].start
        row = Row("queued", "queued", start, 1, depth=0, end=None if is_open else until, is_open=is_open)
        row.bars = [Bar(part.start, part.end, _TONES[part.what]) for part in pace.within(start, until) if part.what != WORKING]
        self.rows.insert(0, row)


def finish(row: Row, at: datetime) -> None:
    row.end, row.is_open = at, False
    for bar in row.bars:
        bar.end = bar.end or at


def _visit(timeline: Timeline, line: Line) -> None:
    if timeline._visit is not None:
        finish(timeline._visit, line.at)
    row = timeline.add(line, "visit", line.clear["node"], depth=0)
    row.visit = sum(r.kind == "visit" and r.label == row.label for r in timeline.rows)
    timeline._visit = row


def _model_requested(timeline: Timeline, line: Line) -> None:
    name = line.clear["conversation"]
    row = timeline._talks.get(name)
    if row is None:
        row = timeline._talks[name] = timeline.add(line, "think", "think", note=line.clear["model"])
    row.is_open, row.end = True, None
    row.bars.append(Bar(line.at, None, "work"))


def _model_answered(timeline: Timeline, line: Line) -> None:
    row = timeline._talks.get(line.clear["conversation"])
    if row is not None:
        finish(row, line.at)
        row.count += 1
        if line.kind == "ModelFailed":
            row.tone, row.note, row.trace = "bad", message_of(line), trace_of(line)


def _invoked(timeline: Timeline, line: Line) -> None:
    row = timeline.add(line, "call", line.clear["tool"], note=line.clear["replay_class"])
    row.count = line.attempt
    row.bars.append(Bar(line.at, None, "work"))
    timeline._calls[line.slot or ""] = row


def _read(timeline: Timeline, line: Line) -> None:
    timeline.mark(line, line.clear["tool"], kind="read")


def _accepted(timeline: Timeline, line: Line) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is not None:
        finish(row, line.at)
        row.is_open, row.end = True, None
        row.bars.append(Bar(line.at, None, "wait"))


def _returned(timeline: Timeline, line: Line) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is not None:
        finish(row, line.at)
        row.tone = "ok"


def _call_trouble(timeline: Timeline, line: Line) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is None:
        row = timeline.mark(line, line.clear["tool"], kind="call")
    finish(row, line.at)
    row.tone = "unsure" if line.kind == "ToolOutcomeUnknown" else "bad"
    row.note, row.trace = message_of(line), trace_of(line)


_WITNESSES = {"hook": "upstream was asked", "worker": "the worker that had sent it handed its answer in"}
_VERDICTS = {"happened": "it had happened", "did_not": "it had not happened", "fail": "the run was to fail"}


def _reconciled(timeline: Timeline, line: Line) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is None:
        return
    was_unknown = row.tone == "unsure"
    if not was_unknown:
        finish(row, line.at)
    who = _WITNESSES.get(line.clear["by"].partition(":")[0], f"settled by {line.clear['by']}")
    row.tone, row.note, row.trace = "settled", f"{who}: {_VERDICTS.get(line.clear['verdict'], line.clear['verdict'])}", ""


def _answered_late(timeline: Timeline, line: Line) -> None:
    outcome, belied = line.clear["outcome"], line.clear["contradicts"]
    said = {"refused": "was refused", "accepted": "was taken"}.get(outcome, "happened")
    told = f"the worker that had sent {line.clear['tool']} says that it {said}"
    if belied:
        timeline.mark(line, "a verdict is belied", tone="bad", note=f"{told}; the verdict was: {_VERDICTS.get(belied, belied)}", kind="error")
    else:
        timeline.mark(line, "late answer", note=f"{told}; it was settled already")


def _called_back_late(timeline: Timeline, line: Line) -> None:
    row = timeline._calls.get(line.slot or "")
    is_belied = row is not None and row.tone == "settled" and "not happened" in row.note
    told = f"the other side has answered {line.clear['tool']} after it was over: recorded, without effect"
    timeline.mark(line, "late callback", tone="bad" if is_belied else "", note=told, kind="error" if is_belied else "mark")


def _not_sent(timeline: Timeline, line: Line) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is not None:
        row.note = f"not sent {line.clear['n'] + 1}×, tried again: {message_of(line)}"


def _branches(timeline: Timeline, line: Line) -> None:
    timeline.mark(line, f"{line.clear['branches']} branches at once")


def _gate(timeline: Timeline, line: Line) -> None:
    row = timeline.add(line, "gate", line.clear["queue"])
    row.bars.append(Bar(line.at, None, "wait"))
    timeline._gates[line.clear["approval_id"]] = row


def _decided(timeline: Timeline, line: Line) -> None:
    row = timeline._gates.get(line.clear["approval_id"])
    if row is not None:
        finish(row, line.at)
        is_yes = line.clear["verdict"] in ("approve", "approved")
        row.tone, row.note = ("ok" if is_yes else "bad"), line.get("justification") or ""


def _wait_opened(timeline: Timeline, line: Line) -> None:
    """Gates and calls that answer later have rows of their own."""
    if line.clear["wait"] in ("approval", "webhook"):
        return
    row = timeline.add(line, "wait", line.clear["wait"])
    row.bars.append(Bar(line.at, None, "wait"))
    timeline._waits[(line.slot or "", line.clear["wait"], line.clear["n"])] = row


def _wait_resolved(timeline: Timeline, line: Line) -> None:
    row = timeline._waits.get((line.slot or "", line.clear["wait"], line.clear["n"]))
    if row is not None:
        finish(row, line.at)
        row.note = line.clear["resolution"]


def _signalled(timeline: Timeline, line: Line) -> None:
    timeline.mark(line, f"signal {line.clear['name']}", note=line.clear["by"])


def _taken(timeline: Timeline, line: Line) -> None:
    """What a signal or an answer was waited for with: the wait has its end."""
    is_signal = line.kind == "SignalTaken"
    row = timeline._waits.get((line.slot or "", "signal" if is_signal else "input", 0 if is_signal else line.clear["n"]))
    if row is not None:
        finish(row, line.at)
        row.note = "received" if is_signal else f"answered by {line.clear['by']}"


_LOST = {"proof": "worker died", "suspicion": "worker suspected", "host_gone": "host gone", "operator": "declared dead"}


def _lost(timeline: Timeline, line: Line) -> None:
    cause = line.clear.get("cause", "proof")
    row = timeline.add(line, "crash", _LOST.get(cause, "worker lost"), tone="bad", note=line.clear["proof"])
    row.reached, row.silent = line.clear.get("reached", ""), line.clear.get("silent_ms")
    row.bars.append(Bar(line.at, None, "down"))
    row.count = line.clear["pid"]
    if timeline._crash is not None:
        timeline._crash.is_cut = True
        finish(timeline._crash, line.at)
    timeline._crash, timeline._is_claimed = row, False


def _claimed(timeline: Timeline, line: Line) -> None:
    timeline._is_claimed = True


def _released(timeline: Timeline, line: Line) -> None:
    timeline.mark(line, "worker drained", tone="hold", note=line.clear["reason"])


def _paused(timeline: Timeline, line: Line) -> None:
    row = timeline.add(line, "pause", "paused", tone="hold", note=line.clear["by"])
    row.bars.append(Bar(line.at, None, "hold"))
    timeline._pause = row


def _resumed(timeline: Timeline, line: Line) -> None:
    if timeline._pause is not None:
        finish(timeline._pause, line.at)
        timeline._pause = None


def _cancelled(timeline: Timeline, line: Line) -> None:
    timeline.mark(line, "cancelled", note=line.clear["by"])


def _failed(timeline: Timeline, line: Line) -> None:
    row = timeline.mark(line, "failed", tone="bad", note=message_of(line), kind="error")
    row.trace = trace_of(line)
    if timeline._visit is not None:
        timeline._visit.tone = "bad"
        finish(timeline._visit, line.at)


def _retried(timeline: Timeline, line: Line) -> None:
    timeline.mark(line, "retried", tone="hold", note=line.clear["by"])
    if timeline._visit is not None:
        timeline._visit.tone, timeline._visit.end, timeline._visit.is_open = "", None, True


def _operator(timeline: Timeline, line: Line) -> None:
    timeline.mark(line, "stopped for an operator", tone="bad", note=line.clear["reason"], kind="error")


_STEPS: dict[str, Callable[[Timeline, Line], None]] = {
    "VisitEntered": _visit,
    "ModelRequested": _model_requested,
    "ModelResponded": _model_answered,
    "ModelFailed": _model_answered,
    "ToolInvoked": _invoked,
    "ToolRead": _read,
    "ToolAccepted": _accepted,
    "ToolReturned": _returned,
    "CallbackReceived": _returned,
    "ToolFailed": _call_trouble,
    "ToolOutcomeUnknown": _call_trouble,
    "ToolReconciled": _reconciled,
    "CallbackArrivedLate": _called_back_late,
    "ToolAnsweredLate": _answered_late,
    "ToolNotDispatched": _not_sent,
    "BranchesOpened": _branches,
    "ApprovalRequested": _gate,
    "ApprovalDecided": _decided,
    "WaitOpened": _wait_opened,
    "WaitResolved": _wait_resolved,
    "SignalReceived": _signalled,
    "SignalTaken": _taken,
    "InputAnswered": _taken,
    "WorkerLost": _lost,
    "RunClaimed": _claimed,
    "RunReleased": _released,
    "RunPaused": _paused,
    "RunResumed": _resumed,
    "RunCancelled": _cancelled,
    "RunFailed": _failed,
    "RunRetried": _retried,
    "OperatorNeeded": _operator,
}
