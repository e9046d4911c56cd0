"""The spans of what was written. Pure: ids are derived, and contents, keys and tokens are left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from ledger import events as e
from ledger.observers import Answered, Driven, Written
from ledger.spans import span_id

# What is in progress in this process, to know when it began. Beyond this many, the oldest are forgotten.
MAX_STARTS = 20_000
Attributes = dict[str, str | int]


@dataclass(slots=True)  # frozen ones take twice as long to make
class Span:
    """One span to export. Times are nanoseconds since the epoch. With `is_end` it ends what its parent's span begins,
    and both are sent as one if neither was sent before."""

    name: str
    trace_id: str
    id: str
    parent: str
    start: int
    end: int
    attributes: Attributes = field(default_factory=dict)
    kind: str = "internal"  # or server, client
    error: str = ""
    is_end: bool = False


class Starts:
    """Start times and models of the steps in progress."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}

    def note(self, span: str, at: int, what: str = "") -> None:
        self._known[span] = at, what
        if len(self._known) > MAX_STARTS:
            self._known.pop(next(iter(self._known)), None)

    def take(self, span: str, otherwise: int) -> tuple[int, str]:
        """Return when the span's step began, and forget it."""
        return self._known.pop(span, (otherwise, ""))


# Facts that end a call, and others about it, with the status that their spans get.
_ENDING: dict[type[e.Event], str] = {
    e.ToolReturned: "committed",
    e.CallbackReceived: "committed",
    e.ToolFailed: "failed",
    e.ToolReconciled: "reconciled",
}
_NOTES: dict[type[e.Event], str] = {
    e.ToolOutcomeUnknown: "unknown",
    e.ToolAccepted: "accepted",
    e.ToolNotDispatched: "not_sent",
    e.ToolRedispatched: "attempted",
    e.ToolAnsweredLate: "late",
    e.CallbackArrivedLate: "late",
}
_VERDICTS = {"happened": "committed", "did_not": "not_done", "fail": "failed"}
_ENDS: dict[type[e.Event], str] = {
    e.RunCompleted: "completed",
    e.RunFailed: "failed",
    e.RunCancelled: "cancelled",
}
# Events that end a wait, with its kind, which WaitResolved says itself.
WAITS: dict[type[e.Event], str] = {
    e.WaitResolved: "",
    e.ApprovalDecided: "approval",
    e.InputAnswered: "input",
    e.SignalTaken: "signal",
    e.ToolReconciled: "reconcile",
    e.CallbackReceived: "webhook",
}
_OTHERS = (
    e.RunCreated,
    e.ChildStarted,
    e.RunRenewed,
    e.RunHandedOff,
    e.ModelRequested,
    e.ModelResponded,
    e.ModelFailed,
    e.ToolInvoked,
    e.ToolRead,
    e.EffectUndone,
    e.WaitOpened,
    e.ApprovalRequested,
)
EXPORTED = frozenset({*_ENDING, *_NOTES, *_ENDS, *WAITS, *_OTHERS})


class Writing:
    """Makes the spans of one commit: of a run, its visit (`epoch`), and the events at one time."""

    def __init__(
        self, written: Written, trace_id: str, agent: str, at: int, starts: Starts, *, parent: str = ""
    ) -> None:
        self.run, self.events, self.epoch = written.run_id, written.events, written.epoch
        self.trace_id, self.agent, self.at, self.starts, self.parent = trace_id, agent, at, starts, parent
        self.root = span_id(self.run)
        self.visit = span_id(self.run, "visit", self.epoch) if self.epoch else self.root

    def spans(self) -> list[Span]:
        found: list[Span] = []
        for event in self.events:
            if (span := self._of(event)) is not None:
                found.append(span)
            if type(event) in WAITS:
                found += self._resolved(event)
        return found

    def _of(self, event: e.Event) -> Span | None:
        kind = type(event)
        if kind in _ENDING or kind in _NOTES:
            return self._outcome(event)
        match event:
            case e.ToolInvoked():
                attempt = self._row(event, "call")
                self.starts.note(attempt, self.at)
                return self._span(f"attempt {event.tool}", attempt, self.visit, event, _tool(event, "attempted"))
            case e.ToolRead():
                told = _tool(event, "committed")
                return self._span(f"execute_tool {event.tool}", self._row(event, "call"), self.visit, event, told)
            case e.ModelRequested() | e.ModelResponded() | e.ModelFailed():
                return self._model(event)
            case e.WaitOpened() | e.ApprovalRequested():
                return self._opened(event)
            case e.EffectUndone():
                return self._compensation(event)
            case e.RunCreated():
                return self._begin(self.run, self.agent, self.parent)
            case e.ChildStarted():
                return self._begin(event.child, event.agent, self.root)
            case e.RunRenewed():
                return self._begin(event.successor, self.agent, self.root)
            case e.RunHandedOff():
                return self._begin(event.successor, event.agent, self.root)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                return self._end(event)
        return None

    # --- tool calls ---

    def _outcome(self, event: e.Event) -> Span:
        """Return the span of a fact about a call, a child of the attempt's, which may be another process's."""
        attempt = self._row(event, "call")
        status = _ENDING.get(type(event)) or _NOTES[type(event)]
        is_end = type(event) in _ENDING
        n = getattr(event, "n", 0)
        span = _end_of(attempt, n) if is_end else self._row(event, event.KIND, n, self.at)
        began, _ = self.starts.take(attempt, self.at) if is_end else (self.at, "")
        if isinstance(event, e.ToolReconciled):
            status = _VERDICTS.get(event.verdict, event.verdict)
        tool = str(getattr(event, "tool", ""))
        name = f"execute_tool {tool}" if is_end else f"{status} {tool}"
        error = event.code if isinstance(event, e.ToolFailed) else status if status in ("unknown", "failed") else ""
        return self._span(name, span, attempt, event, _tool(event, status), start=began, error=error, is_end=is_end)

    def _compensation(self, event: e.EffectUndone) -> Span:
        undone = span_id(event.of_run or self.run, event.of_slot, event.of_attempt, "call")
        told = _tool(event, "compensated") | {"durableagents.compensates": undone}
        parent = self._row(event, "call")
        return self._span(f"compensate {event.tool}", self._row(event, "compensated"), parent, event, told)

    # --- model requests ---

    def _model(self, event: e.ModelRequested | e.ModelResponded | e.ModelFailed) -> Span | None:
        span = span_id(self.run, event.slot, event.attempt, "model", event.conversation, event.turn, self.epoch)
        if isinstance(event, e.ModelRequested):
            self.starts.note(span, self.at, event.model)
            return None
        began, model = self.starts.take(span, self.at)
        told: Attributes = {"gen_ai.operation.name": "chat"}
        if model:
            provider, _, name = model.rpartition(":")
            told |= {"gen_ai.request.model": name} | ({"gen_ai.provider.name": provider} if provider else {})
        if isinstance(event, e.ModelResponded):
            told |= {"gen_ai.usage.input_tokens": event.tokens_in, "gen_ai.usage.output_tokens": event.tokens_out}
        error = event.code if isinstance(event, e.ModelFailed) else ""
        return self._span(
            f"chat {told.get('gen_ai.request.model', '')}".strip(),
            span,
            self.visit,
            event,
            told,
            start=began,
            kind="client",
            error=error,
        )

    # --- waits and approvals ---

    def _opened(self, event: e.WaitOpened | e.ApprovalRequested) -> Span:
        kind = event.wait if isinstance(event, e.WaitOpened) else "approval"
        opened = self._wait(event, kind, event.n)
        self.starts.note(opened, self.at)
        told: Attributes = {"durableagents.wait.kind": kind}
        if isinstance(event, e.ApprovalRequested):
            told |= {"durableagents.queue": event.queue, "gen_ai.tool.name": event.tool}
        return self._span(f"{_name_of(kind)} opened", opened, self.visit, event, told)

    def _resolved(self, event: e.Event) -> list[Span]:
        """Return the span of a wait that the event ends, if this process knows when it was opened."""
        if isinstance(event, e.WaitResolved):
            kind, resolution = event.wait, event.resolution
        else:
            kind, resolution = WAITS[type(event)], str(getattr(event, "verdict", ""))
        n = 0 if isinstance(event, e.SignalTaken) else getattr(event, "n", 0)
        opened = self._wait(event, kind, n)
        began, _ = self.starts.take(opened, 0)
        if not began:
            return []
        told: Attributes = {"durableagents.wait.kind": kind}
        told |= {"durableagents.wait.resolution": resolution} if resolution else {}
        if isinstance(event, (e.ApprovalDecided, e.InputAnswered)):
            told["durableagents.role"] = event.role
        return [self._span(_name_of(kind), _end_of(opened), opened, event, told, start=began, is_end=True)]

    def _wait(self, event: e.Event, kind: str, n: int) -> str:
        return wait_id(self.run, event.slot, event.attempt, kind, n)

    # --- runs ---

    def _begin(self, run: str, agent: str, parent: str) -> Span:
        """Return the root span of a run. It has no length, so that it can be exported before all others."""
        told: Attributes = {"durableagents.run_id": run, "gen_ai.agent.name": agent}
        return Span(f"start {agent}", self.trace_id, span_id(run), parent, self.at, self.at, told)

    def _end(self, event: e.RunCompleted | e.RunFailed | e.RunCancelled) -> Span:
        state = _ENDS[type(event)]
        told: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self.agent,
            "durableagents.run.state": state,
        }
        error = event.code if isinstance(event, e.RunFailed) else ""
        end = span_id(self.run, "end", self.at)  # a retried run ends again
        began = created_at(self.run) or self.at
        return self._span(f"invoke_agent {self.agent}", end, self.root, event, told, start=began, error=error)

    def _row(self, event: e.Event, *fact: object) -> str:
        return span_id(self.run, event.slot, event.attempt, *fact)

    def _span(
        self,
        name: str,
        id: str,
        parent: str,
        event: e.Event,
        told: Attributes,
        *,
        start: int = 0,
        kind: str = "internal",
        error: str = "",
        is_end: bool = False,
    ) -> Span:
        attributes: Attributes = {"durableagents.run_id": self.run, **told}
        if event.slot is not None:
            attributes |= {"durableagents.slot": event.slot, "durableagents.attempt": event.attempt}
        if self.epoch:
            attributes["durableagents.epoch"] = self.epoch
        return Span(name, self.trace_id, id, parent, start or self.at, self.at, attributes, kind, error, is_end)


def _tool(event: e.Event, status: str) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": str(getattr(event, "tool", "")),
        "durableagents.ledger.status": status,
    }


def _end_of(begin: str, n: int = 0) -> str:
    """Return the id of the span that ends what another begins."""
    return f"{int(begin, 16) ^ (n + 1):016x}"


def _name_of(kind: str) -> str:
    return kind if kind == "approval" else f"wait {kind}"


def wait_id(run: str, slot: str | None, attempt: int | None, kind: str, n: int) -> str:
    """Return the id of the span of a wait's opening."""
    return span_id(run, slot, attempt, "wait", kind, n)


def created_at(run: str) -> int:
    """Return when a run was accepted, by its id of version 7; 0 for a child's or a continuation's."""
    number = UUID(run)
    return (number.int >> 80) * 1_000_000 if number.version == 7 else 0


def of_drive(driven: Driven, at: int, starts: Starts) -> Span:
    """Return the span of a claim as it begins, the parent of what the worker does; as it ends, that of the visit."""
    claim = span_id(driven.run_id, "visit", driven.epoch)
    told: Attributes = {
        "durableagents.run_id": driven.run_id,
        "durableagents.epoch": driven.epoch,
        "durableagents.worker": driven.worker,
    }
    if not driven.outcome:
        starts.note(claim, at)
        return Span(f"claim {driven.agent}", driven.trace_id, claim, span_id(driven.run_id), at, at, told)
    began, _ = starts.take(claim, at)
    end = _end_of(claim)
    told["durableagents.visit.outcome"] = driven.outcome
    return Span(f"visit {driven.agent}", driven.trace_id, end, claim, began, at, told, is_end=True)


def of_request(answered: Answered) -> Span:
    """Return the span of a request to the web process."""
    request = answered.request
    told: Attributes = {
        "http.request.method": answered.method,
        "url.path": answered.path,
        "http.response.status_code": answered.status,
        "durableagents.request_id": request.id,
    }
    error = str(answered.status) if answered.status >= 500 else ""
    times = answered.began_at, answered.ended_at
    name, ids = answered.method, (request.trace_id, request.span_id, request.parent_span_id)
    return Span(name, *ids, *times, told, "server", error)
