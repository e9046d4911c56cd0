"""Derives a run from its journal alone, to compare with the rows that services and workers keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from approvals.models import Approval
from ledger import events as e
from ledger.kinds import CONTENT_REFUSED
from ledger.models import Event, LedgerEntry
from runs.engine.budget import NOTHING_USED, RESOURCES, Usage, debit_of
from runs.engine.outcomes import waiting_state
from runs.engine.tape import Tape
from runs.engine.undo import UNDO_NODE, WITH_PARENT
from runs.models import Run
from tests.integration.runs.stage import events, fresh, head, problems, waiting

WaitName = tuple[str, int, str, int]
ENDS = {"RunCompleted": "completed", "RunFailed": "failed", "RunCancelled": "cancelled"}
# What a worker records as a completed step.
STEPS = (
    "ToolRead",
    "CachedReadTaken",
    "ToolReadAnew",
    "ToolReturned",
    "ToolFailed",
    "ToolAccepted",
    "ModelResponded",
    "ModelFailed",
)


@dataclass
class Told:
    state: str = "pending"
    epoch: int = 0
    node: str = ""
    visit: int = 0
    deaths: int = 0
    is_claimed: bool = False
    open: dict[WaitName, None] = field(default_factory=dict)
    approvals: dict[str, str] = field(default_factory=dict)
    withdrawn: set[tuple[str, int]] = field(default_factory=set)  # gates of a visit that was left
    tape: Tape = field(default_factory=Tape)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDS.values()

    def tell(self, event: e.Event) -> None:
        self.tape.add(event)
        self._waits(event)
        rests = (e.RunParked, e.RunPaused, e.RunCompleted, e.RunFailed)
        if isinstance(event, e.RunCancelled) or (self.is_claimed and isinstance(event, rests)):
            self.deaths = 0
        match event:
            case e.RunClaimed():
                self.epoch, self.is_claimed = event.epoch, True
                self.state = "running"
            case e.VisitEntered():
                self.node, self.visit, self.deaths = event.node, event.visit, self.deaths
            case e.RunMigrated():
                self.node = event.node or self.node
                if event.how == "reentered" and self.state.startswith("waiting"):
                    self.state = "running"
            case e.RunParked():
                self.state, self.is_claimed = event.state, False
            case e.RunReleased() | e.WorkerLost():
                self.is_claimed = False
                self.deaths = event.deaths if isinstance(event, e.WorkerLost) else self.deaths
            case e.RunPaused():
                self.state, self.is_claimed = "paused", False
            case e.RunResumed():
                self.state = event.state
            case e.CancelRequested():
                self._cancel_requested()
            case e.UpstreamAsked() | e.RunRequeued() if self.state.startswith("waiting") and not self.is_claimed:
                self.state = "running"
            case e.RunRetried():
                self.state, self.deaths = "running", 0
            case e.UndoAsked(code=code) if code == WITH_PARENT:
                self.state, self.deaths, self.node = "running", 0, UNDO_NODE
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                self.state, self.is_claimed = ENDS[event.KIND], False
            case _:
                self._resolution(event)
        if self.state == "running" and self.node == UNDO_NODE:
            self.state = "compensating"

    def _waits(self, event: e.Event) -> None:
        slot, attempt = event.slot or "", event.attempt
        match event:
            case e.WaitOpened():
                self.open[slot, attempt, event.wait, event.n] = None
            case e.ApprovalRequested():
                self.open[slot, 0, "approval", event.n] = None
                self.approvals[event.approval_id] = "open"
            case e.WaitResolved():
                self.open.pop((slot, attempt, event.wait, event.n), None)
                if event.wait == "approval":
                    self.withdrawn.add((slot, event.n))
            case e.ApprovalDecided():
                self.open.pop((slot, 0, "approval", event.n), None)
                self.approvals[event.approval_id] = event.verdict
            case e.PlanAmended():
                self.open.pop((slot, 0, "approval", event.n), None)
                self.approvals[event.approval_id] = "amended"
            case e.ChildEnded():
                self.open.pop((slot, attempt, "child", 0), None)
            case e.SignalTaken():
                self.open.pop((slot, attempt, "signal", 0), None)
            case e.InputAnswered():
                self.open.pop((slot, attempt, "input", event.n), None)
            case e.CallbackReceived():
                self._close(slot, attempt)
            case e.ToolFailed():
                self._close(slot, attempt, "webhook")
            case e.ToolReconciled():
                self._close(slot, attempt, "reconcile")
                if event.verdict != "fail":
                    self._close(slot, attempt)

    def _close(self, slot: str, attempt: int, kind: str = "") -> None:
        for name in [n for n in self.open if n[:2] == (slot, attempt) and kind in ("", n[2])]:
            del self.open[name]

    def _resolution(self, event: e.Event) -> None:
        """Make a run ready if it waits without a worker."""
        resolves = (
            e.WaitResolved,
            e.ApprovalDecided,
            e.CallbackReceived,
            e.ToolReconciled,
            e.SignalTaken,
            e.InputAnswered,
            e.ChildEnded,
        )
        if isinstance(event, resolves) and self.state.startswith("waiting"):
            self.state = "running"
        is_stopped = any(kind == "operator" for _, _, kind, _ in self.open)
        if isinstance(event, e.MessageReceived) and self.state.startswith("waiting") and not is_stopped:
            self.state = "running"
        if isinstance(event, e.WaitResolved) and event.resolution in ("retried", "migrated"):
            self.deaths = 0

    def _cancel_requested(self) -> None:
        """Settle an unknown outcome first: by the person asked, or by a worker."""
        if self.is_claimed:
            return
        nows = [s.now for _, s in self.tape.in_doubt() if s.now.unknown is not None or s.now.is_in_doubt]
        waits = [attempt.open_wait("reconcile") is not None and attempt.asked is None for attempt in nows]
        is_asked = bool(nows) and all(waits)
        if self.state == "paused":
            self.state = waiting_state({kind for _, _, kind, _ in self.open}) if is_asked else "running"
        elif self.state.startswith("waiting") and not is_asked:
            self.state = "running"


def told_by(run: Run) -> Told:
    found = Told()
    for event in events(run):
        found.tell(event)
    return found


def check_against_journal(run: Run, *, damaged: str = "nothing") -> None:
    """Assert that rows and journal agree, except for what the test damaged."""
    result, row, top = told_by(run), fresh(run), head(run)
    assert (str(row.state), row.node, row.visit) == (result.state, result.node, result.visit)
    assert (top.epoch, top.deaths) == (result.epoch, result.deaths)
    assert (row.owner is not None) is result.is_claimed is (top.lease is not None)
    open_ = {(w.slot, w.attempt, w.kind, w.n) for w in waiting(run)}
    assert open_ == (set() if result.has_ended else set(result.open))
    for approval in Approval.objects.filter(run=run):
        entry = result.approvals[str(approval.id)]
        is_left = result.has_ended or (approval.wait.slot, approval.wait.n) in result.withdrawn
        assert approval.state == ("withdrawn" if entry == "open" and is_left else entry)
    _check_figures(run)
    _check_ledger(run)
    left = [found for found in problems(run) if not found.startswith(damaged)]
    assert left == [], left
    last = Event.objects.filter(run_id=run.id).order_by("-seq").values_list("seq", flat=True)[0]
    assert last == top.seq == Event.objects.filter(run_id=run.id).count()


def _check_figures(run: Run) -> None:
    top, every = head(run), events(run)
    done = [x for x in every if x.KIND in STEPS or (isinstance(x, e.ToolReconciled) and x.by == "hook" and x.payload)]
    responses = [x for x in every if isinstance(x, e.ModelResponded)]
    models = [x for x in done if x.KIND.startswith("Model")]
    ended = [x for x in every if isinstance(x, e.ChildEnded)]
    theirs = sum((Usage(**{name: getattr(x, name) for name in RESOURCES}) for x in ended), NOTHING_USED)
    assert top.steps == len(done) + theirs.steps
    debits = [x for x in every if isinstance(x, e.BudgetDebited)]
    routed = {(x.slot, x.attempt) for x in every if isinstance(x, e.ModelRouted)}
    kept_back = {(x.slot, x.attempt) for x in models if getattr(x, "code", "") == CONTENT_REFUSED}
    debits += [_undebited(x) for x in models if (x.slot, x.attempt) not in routed | kept_back]
    used = sum((debit_of(x) for x in debits), theirs)
    assert (top.model_calls, top.tool_calls) == (used.model_calls, len(done) - len(models) + theirs.tool_calls)
    assert (top.tokens_in, top.tokens_out, top.usd_micro) == (used.tokens_in, used.tokens_out, used.usd_micro)
    unpriced = sum(x.model_calls for x in debits if x.usd_micro is None) + sum(x.unpriced_calls for x in ended)
    assert top.unpriced_calls == unpriced
    settled = {(x.slot, x.attempt, x.tokens_in, x.tokens_out) for x in debits if not x.is_estimate}
    assert {(x.slot, x.attempt, x.tokens_in, x.tokens_out) for x in responses} <= settled
    assert len({(x.slot, x.attempt, x.n) for x in debits}) == len(debits)


def _undebited(turn: Any) -> e.BudgetDebited:
    """Return the debit of a turn from before there were debits, by its own figures; its cost is unknown."""
    tokens = getattr(turn, "tokens_in", 0), getattr(turn, "tokens_out", 0)
    return e.BudgetDebited(
        slot=turn.slot,
        attempt=turn.attempt,
        n=0,
        model="",
        price=None,
        model_calls=1,
        tokens_in=tokens[0],
        tokens_out=tokens[1],
        usd_micro=None,
    )


def _check_ledger(run: Run) -> None:
    expected: list[tuple[str, int, str, str]] = []
    intents: set[tuple[str | None, int]] = set()
    for event in events(run):
        match event:
            case e.ToolInvoked() if event.replay_class != "pure":
                intents.add((event.slot, event.attempt))
                fact = "pending"
            case e.ToolReturned() | e.CallbackReceived() | e.CallbackArrivedLate() if (
                event.slot,
                event.attempt,
            ) in intents:
                fact = "committed"
            case e.ToolFailed() if (event.slot, event.attempt) in intents:
                fact = "failed"
            case e.ToolOutcomeUnknown():
                fact = "unknown"
            case e.ToolReconciled():
                fact = "reconciled"
            case e.EffectUndone(of_run=""):
                expected.append((event.of_slot, event.of_attempt, "compensated", event.tool))
                continue
            case _:
                continue
        expected.append((event.slot or "", event.attempt, fact, event.tool))
    rows = LedgerEntry.objects.filter(run_id=run.id).order_by("id")
    assert list(rows.values_list("slot", "attempt", "fact", "tool")) == expected
