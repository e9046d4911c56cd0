"""A run's timeline as rows of bars: visits with their content, crashes, waits.
This is a projection without payloads (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ledger.events import KEY_MISSING
from runs.engine.tape import CALLED_BACK
from runs.story import findings
from runs.story.findings import Findings
from runs.story.lines import Fact, is_step
from runs.story.rows import Bar, Row, RowKind, RowPage, finish
from runs.story.scale import DOWN, PAUSED, QUEUED, WAITING, WORKING, Pace

_TONES = {WORKING: "done", QUEUED: "queue", WAITING: "wait", PAUSED: "hold", DOWN: "down"}


# Bars narrower than a hundredth can't be told apart, so if there are more, only the latest are drawn.
MAX_BARS = 150


@dataclass
class Timeline:
    """Rows in the order in which they started. `shown` returns copies, because the fold itself continues."""

    rows: list[Row] = field(default_factory=list)
    _visit: Row | None = None
    _visits: Counter[str] = field(default_factory=Counter)
    _talks: dict[str, Row] = field(default_factory=dict)
    _calls: dict[str, Row] = field(default_factory=dict)
    _gates: dict[str, Row] = field(default_factory=dict)
    _waits: dict[tuple[str, str, int], Row] = field(default_factory=dict)
    _children: dict[str, Row] = field(default_factory=dict)
    _findings: Findings = field(default_factory=Findings)
    _open: dict[int, Row] = field(default_factory=dict)
    crash: Row | None = None
    _is_claimed: bool = False
    _pause: Row | None = None

    def stepped(self, line: Fact) -> None:
        """End a crash at the next worker's first step. Needs to be called only while a crash is open."""
        if self.crash is not None and self._is_claimed and is_step(line):
            self.finish(self.crash, line.at)
            self.crash = None

    def add(self, line: Fact, kind: RowKind, label: str, *, depth: int = 1, tone: str = "", note: str = "") -> Row:
        row = Row(kind, label, line.at, line.seq, depth=depth, tone=tone, note=note, is_open=True)
        self.rows.append(row)
        self._open[row.seq] = row
        return row

    def mark(self, line: Fact, label: str, *, tone: str = "", note: str = "", kind: RowKind = "mark") -> Row:
        row = Row(kind, label, line.at, line.seq, tone=tone, note=note, end=line.at)
        self.rows.append(row)
        return row

    def finish(self, row: Row, at: datetime) -> None:
        self._open.pop(row.seq, None)
        finish(row, at)

    def reopen(self, row: Row) -> None:
        row.is_open, row.end = True, None
        self._open[row.seq] = row

    @property
    def under_way(self) -> str:
        """Return the latest call or request that waits for its answer."""
        rows = [row for row in self._open.values() if row.kind in ("call", "think")]
        return max(rows, key=lambda row: row.seq).label if rows else ""

    def shown(
        self, pace: Pace, now: datetime, ended_at: datetime | None, page: int = 1, most: int | None = None
    ) -> RowPage:
        """Return a page of at most `most` rows, counted from the newest; all rows without `most`."""
        lead = self._before_the_first(pace, now, ended_at)
        first = 0 if lead is None else 1
        total = len(self.rows) + first
        size = most or max(total, 1)
        pages = max((total + size - 1) // size, 1)
        page = min(max(page, 1), pages)
        last = total - (page - 1) * size
        start = max(last - size, 0)
        rows = [
            _as_of(row, pace, ended_at or now, is_over=ended_at is not None)
            for row in self.rows[max(start - first, 0) : max(last - first, 0)]
        ]
        if lead is not None and start == 0:
            rows.insert(0, lead)
        return RowPage(rows, start, page + 1 if page < pages else 0, page - 1)

    def _before_the_first(self, pace: Pace, now: datetime, ended_at: datetime | None) -> Row | None:
        first = self.rows[0].start if self.rows else None
        if not pace.segments or (first is not None and first <= pace.segments[0].start):
            return None
        start, until, is_open = pace.segments[0].start, first or ended_at or now, first is None and ended_at is None
        row = Row("queued", "queued", start, 1, depth=0, end=None if is_open else until, is_open=is_open)
        row.bars = [
            Bar(part.start, part.end, _TONES[part.what])
            for part in pace.within(start, until, MAX_BARS)
            if part.what != WORKING
        ]
        return row


def _as_of(row: Row, pace: Pace, until: datetime, *, is_over: bool) -> Row:
    """Return a copy of the row as it is at `until`. If the row is a visit, the copy has its bars."""
    bars = [replace(bar) for bar in row.bars[-MAX_BARS:]]
    row = replace(row, bars=bars)
    if row.is_open and is_over:
        finish(row, until)
    for bar in row.bars:
        bar.end = bar.end or until
    if row.kind == "visit":
        segments = pace.within(row.start, row.end or until, MAX_BARS)
        row.bars = [Bar(segment.start, segment.end, _TONES[segment.what]) for segment in segments]
    return row


def _visit(timeline: Timeline, line: Fact) -> None:
    if timeline._visit is not None:
        timeline.finish(timeline._visit, line.at)
    row = timeline.add(line, "visit", line.clear["node"], depth=0)
    timeline._visits[row.label] += 1
    row.visit = timeline._visits[row.label]
    timeline._visit = row


def _model_requested(timeline: Timeline, line: Fact) -> None:
    name = line.clear["conversation"]
    row = timeline._talks.get(name)
    if row is None:
        row = timeline._talks[name] = timeline.add(line, "think", "think", note=line.clear["model"])
    else:
        timeline.reopen(row)
    row.bars.append(Bar(line.at, None, "work"))


def _model_answered(timeline: Timeline, line: Fact) -> None:
    row = timeline._talks.get(line.clear["conversation"])
    if row is not None:
        timeline.finish(row, line.at)
        row.count += 1
        if line.kind == "ModelFailed":
            row.tone, row.note, row.noted, row.traced = "bad", "", line.seq, line.seq


def _invoked(timeline: Timeline, line: Fact) -> None:
    row = timeline.add(line, "call", line.clear["tool"], note=line.clear["replay_class"])
    row.count = line.attempt
    row.bars.append(Bar(line.at, None, "work"))
    timeline._calls[line.slot or ""] = row


def _read(timeline: Timeline, line: Fact) -> None:
    timeline.mark(line, line.clear["tool"], kind="read")


def _accepted(timeline: Timeline, line: Fact) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is not None:
        timeline.finish(row, line.at)
        timeline.reopen(row)
        row.bars.append(Bar(line.at, None, "wait"))


def _returned(timeline: Timeline, line: Fact) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is not None:
        timeline.finish(row, line.at)
        row.tone = "ok"
        timeline._findings.take(line)


def _call_trouble(timeline: Timeline, line: Fact) -> None:
    if line.kind == "ToolFailed":
        timeline._findings.take(line)
    row = timeline._calls.get(line.slot or "")
    if row is None:
        row = timeline.mark(line, line.clear["tool"], kind="call")
    timeline.finish(row, line.at)
    row.tone = "unsure" if line.kind == "ToolOutcomeUnknown" else "bad"
    row.note, row.noted, row.traced = "", line.seq, line.seq


_WITNESSES = {"hook": "upstream was asked", "worker": "reported by the sending worker"}


def _reconciled(timeline: Timeline, line: Fact) -> None:
    wait = timeline._waits.get((line.slot or "", "reconcile", line.clear.get("n", 0)))
    if wait is not None and wait.is_open:  # the verdict itself ends the wait
        timeline.finish(wait, line.at)
    row = timeline._calls.get(line.slot or "")
    if row is None:
        return
    timeline._findings.take(line)
    was_unknown = row.tone == "unsure"
    if not was_unknown:
        timeline.finish(row, line.at)
    who = _WITNESSES.get(line.clear["by"].partition(":")[0], f"settled by {line.clear['by']}")
    row.tone, row.note = "settled", f"{who}: {findings.on_record(line.clear['verdict'])}"
    row.noted = row.traced = 0


def _note_progress(timeline: Timeline, line: Fact) -> None:
    contradicted = timeline._findings.take(line)
    text = findings.witness(line.clear.get("outcome", CALLED_BACK), line.clear["tool"])
    if contradicted:
        note = f"{findings.source(contradicted)} “{findings.on_record(contradicted)}”, and {text}"
        timeline.mark(line, "contradicted", tone="bad", note=note, kind="error")
    else:
        label = "late callback" if line.kind == "CallbackArrivedLate" else "late answer"
        timeline.mark(line, label, note=f"{text}; recorded without effect")


def _not_sent(timeline: Timeline, line: Fact) -> None:
    row = timeline._calls.get(line.slot or "")
    if row is not None:
        row.note, row.noted = f"not sent {line.clear['n'] + 1}×, retried: ", line.seq


def _branches(timeline: Timeline, line: Fact) -> None:
    timeline.mark(line, f"{line.clear['branches']} parallel branches")


def _gate(timeline: Timeline, line: Fact) -> None:
    row = timeline.add(line, "gate", line.clear["queue"])
    row.bars.append(Bar(line.at, None, "wait"))
    timeline._gates[line.clear["approval_id"]] = row


def _decided(timeline: Timeline, line: Fact) -> None:
    row = timeline._gates.get(line.clear["approval_id"])
    if row is not None:
        timeline.finish(row, line.at)
        row.tone, row.note, row.noted = _DECIDED.get(line.clear["verdict"], "bad"), "", line.seq


_DECIDED = {"approve": "ok", "approved": "ok", "expired": "late"}


def _told_of(timeline: Timeline, line: Fact) -> None:
    row = timeline._gates.get(line.clear["approval_id"])
    if row is not None:
        row.note, row.noted = _SINCE[line.kind](line.clear), line.seq


_SINCE: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "ApprovalEscalated": lambda f: f"escalated to {f['to']}",
    "InquiryMade": lambda f: f"{f['by']} asked {f['to']}",
    "InquiryEnded": lambda f: f"{f['by']} answered" if f["outcome"] == "answered" else "",
    "ApprovalDelegated": lambda f: f"{f['by']} delegated the request to {f['to']}",
}


def _amended(timeline: Timeline, line: Fact) -> None:
    row = timeline._gates.get(line.clear["approval_id"])
    if row is not None:
        timeline.finish(row, line.at)
        row.tone, row.note, row.noted = "amended", f"by {line.clear['by']}: ", line.seq


def _wait_opened(timeline: Timeline, line: Fact) -> None:
    """Add a row for a wait, except for gates, accepted calls and children, which have rows of their own."""
    if line.clear["wait"] in ("approval", "webhook", "child"):
        return
    row = timeline.add(line, "wait", line.clear["wait"])
    row.bars.append(Bar(line.at, None, "wait"))
    timeline._waits[(line.slot or "", line.clear["wait"], line.clear["n"])] = row


def _wait_resolved(timeline: Timeline, line: Fact) -> None:
    row = timeline._waits.get((line.slot or "", line.clear["wait"], line.clear["n"]))
    if row is not None:
        timeline.finish(row, line.at)
        row.note = line.clear["resolution"]


def _child_started(timeline: Timeline, line: Fact) -> None:
    row = timeline.add(line, "child", line.clear["agent"])
    row.run, row.count = line.clear["child"], line.attempt
    row.bars.append(Bar(line.at, None, "wait"))
    timeline._children[row.run] = row


_ENDS = {"completed": "ok", "failed": "bad"}


def _child_ended(timeline: Timeline, line: Fact) -> None:
    row = timeline._children.get(line.clear["child"])
    if row is None:
        return
    timeline.finish(row, line.at)
    row.tone = _ENDS.get(line.clear["state"], "hold")
    if row.tone != "ok":
        rows = filter(None, (line.clear["state"], line.clear["code"].replace("_", " ")))
        row.note, row.noted = f"{', '.join(rows)}: ", line.seq


def _moved(timeline: Timeline, line: Fact) -> None:
    timeline.mark(line, f"moved to {line.clear['to']}", note=line.clear["by"])


_CAME = {
    "ContextInjected": "context changed",
    "RunRequeued": "requeued",
    "OutcomeProposed": "outcome proposed",
    "OutcomeWithdrawn": "proposal withdrawn",
    "UpstreamAsked": "upstream check requested",
}


def _came(timeline: Timeline, line: Fact) -> None:
    label = _message(line) if line.kind == "MessageReceived" else f"signal {line.clear.get('name')}"
    timeline.mark(line, _CAME.get(line.kind, label), note=line.clear["by"])


def _message(line: Fact) -> str:
    return f"message {line.clear['n']}: {str(line.clear['name']).replace('_', ' ')}"


def _message_handled(timeline: Timeline, line: Fact) -> None:
    outcome = str(line.clear["outcome"])
    tone = {"answered": "ok", "refused": "hold"}.get(outcome, "bad")
    timeline.mark(line, _message(line), note=outcome, tone=tone)


def _taken(timeline: Timeline, line: Fact) -> None:
    is_signal = line.kind == "SignalTaken"
    row = timeline._waits.get(
        (line.slot or "", "signal" if is_signal else "input", 0 if is_signal else line.clear["n"])
    )
    if row is not None:
        timeline.finish(row, line.at)
        row.note = "received" if is_signal else f"answered by {line.clear['by']}"


_LOST = {
    "proof": "worker died",
    "suspicion": "worker suspected",
    "host_gone": "host gone",
    "operator": "declared dead",
    "requeued": "taken from its worker",
}


def _lost(timeline: Timeline, line: Fact) -> None:
    cause = line.clear.get("cause", "proof")
    row = timeline.add(line, "crash", _LOST.get(cause, "worker lost"), tone="bad", note=line.clear["proof"])
    row.reached, row.silent = line.clear.get("reached", ""), line.clear.get("silent_ms")
    row.bars.append(Bar(line.at, None, "down"))
    row.count = line.clear["pid"]
    if timeline.crash is not None:
        timeline.crash.is_cut = True
        timeline.finish(timeline.crash, line.at)
    timeline.crash, timeline._is_claimed = row, False


def _claimed(timeline: Timeline, line: Fact) -> None:
    timeline._is_claimed = True


def _released(timeline: Timeline, line: Fact) -> None:
    is_halted = (reason := line.clear["reason"]) == "halt"
    title = "halted" if is_halted else "released" if reason.startswith(KEY_MISSING) else "worker drained"
    timeline.mark(line, title, tone="hold", note="" if is_halted else reason)


def _paused(timeline: Timeline, line: Fact) -> None:
    row = timeline.add(line, "pause", "paused", tone="hold", note=line.clear["by"])
    row.bars.append(Bar(line.at, None, "hold"))
    timeline._pause = row


def _resumed(timeline: Timeline, line: Fact) -> None:
    if timeline._pause is not None:
        timeline.finish(timeline._pause, line.at)
        timeline._pause = None


def _cancelled(timeline: Timeline, line: Fact) -> None:
    timeline.mark(line, "cancelled", note=line.clear["by"])


def _failed(timeline: Timeline, line: Fact) -> None:
    row = timeline.mark(line, "failed", tone="bad", kind="error")
    row.noted = row.traced = line.seq
    if timeline._visit is not None:
        timeline._visit.tone = "bad"
        timeline.finish(timeline._visit, line.at)


def _retried(timeline: Timeline, line: Fact) -> None:
    timeline.mark(line, "retried", tone="hold", note=line.clear["by"])
    if timeline._visit is not None:
        timeline._visit.tone = ""
        timeline.reopen(timeline._visit)


def _operator(timeline: Timeline, line: Fact) -> None:
    timeline.mark(
        line, "stopped for an operator", tone="bad", note=line.clear["reason"].replace("_", " "), kind="error"
    )


STEPS: dict[str, Callable[[Timeline, Fact], None]] = {
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
    "CallbackArrivedLate": _note_progress,
    "ToolAnsweredLate": _note_progress,
    "ToolNotDispatched": _not_sent,
    "BranchesOpened": _branches,
    "ApprovalRequested": _gate,
    "ApprovalDecided": _decided,
    **dict.fromkeys(_SINCE, _told_of),
    "PlanAmended": _amended,
    "WaitOpened": _wait_opened,
    "WaitResolved": _wait_resolved,
    "ChildStarted": _child_started,
    "ChildEnded": _child_ended,
    **dict.fromkeys((*_CAME, "SignalReceived", "SignalCarried", "MessageReceived"), _came),
    "MessageHandled": _message_handled,
    "SignalTaken": _taken,
    "InputAnswered": _taken,
    "WorkerLost": _lost,
    "RunClaimed": _claimed,
    "RunReleased": _released,
    "RunPaused": _paused,
    "RunResumed": _resumed,
    "RunMigrated": _moved,
    "RunCancelled": _cancelled,
    "RunFailed": _failed,
    "RunRetried": _retried,
    "OperatorNeeded": _operator,
}
