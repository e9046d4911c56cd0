"""The spans of events and requests. Pure.

Ids are derived from the record, so that a repeated export sends the same ids. Contents, keys and tokens are left
out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ledger import events as e
from ledger.observers import Answered
from ledger.spans import span_id

Attributes = dict[str, str | int]
# Run, slot, attempt and fact, which identify an event.
Place = tuple[UUID, str | None, int | None, str | None]


@dataclass(slots=True)  # not frozen, because creating frozen instances takes twice as long
class Span:
    """One span to export. Times are nanoseconds since the epoch.

    With `is_end`, the span ends what its parent's span begins. If neither was sent before, the two are sent as one
    span."""

    name: str
    trace_id: str
    id: str
    parent: str
    start: int
    end: int
    attributes: Attributes = field(default_factory=dict)
    kind: str = "internal"  # or server or client
    error: str = ""
    is_end: bool = False


class Recorded(NamedTuple):
    """A recorded event, with the facts about its run that its span needs.

    `parent` is the parent span of the run; empty if there is none. Times are nanoseconds since the epoch."""

    run_id: UUID
    seq: int
    epoch: int
    at: int
    created_at: int
    event: e.Event
    trace_id: str
    agent: str
    parent: str

    @property
    def place(self) -> Place:
        return self.run_id, self.event.slot, self.event.attempt, self.event.fact


class Begun(NamedTuple):
    """An event that began something, and its time."""

    at: int
    event: e.Event


# Events that end a call, and other events about a call, with the status of their spans.
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
# Events that end a wait, with the kind of wait. WaitResolved contains the kind itself.
WAITS: dict[type[e.Event], str] = {
    e.WaitResolved: "",
    e.ApprovalDecided: "approval",
    e.InputAnswered: "input",
    e.SignalTaken: "signal",
    e.ToolReconciled: "reconcile",
    e.CallbackReceived: "webhook",
}
# Events with which a worker ends its claim of a run. People also cause some of them, without a worker.
LEAVING: dict[type[e.Event], str] = {
    e.RunParked: "parked",
    e.RunReleased: "released",
    e.RunPaused: "paused",
    **_ENDS,
}
BEGINNINGS = frozenset({e.ToolInvoked, e.ModelRequested, e.WaitOpened, e.ApprovalRequested})
_OTHERS = (e.RunCreated, e.RunClaimed, e.ModelResponded, e.ModelFailed, e.ToolRead, e.EffectUndone)
EXPORTED: frozenset[type[e.Event]] = frozenset({*_ENDING, *_NOTES, *LEAVING, *WAITS, *BEGINNINGS, *_OTHERS})


def is_sampled(trace_id: str, ratio: float) -> bool:
    """Return whether a trace is exported. All processes agree, because the answer depends only on the id."""
    return int(trace_id[16:], 16) < round(ratio * (1 << 64))


def beginnings_of(recorded: Recorded) -> list[Place]:
    """Return the places of the events that may have begun what this event ends."""
    event, facts = recorded.event, []
    if type(event) in _ENDING or isinstance(event, (e.ModelResponded, e.ModelFailed)):
        facts.append("intent")
    if type(event) in WAITS:
        facts.append(_opening(event))
    return [(recorded.run_id, event.slot, event.attempt, fact) for fact in facts]


def of(recorded: Recorded, begun: Mapping[Place, Begun], claimed_at: int | None) -> list[Span]:
    """Return the spans of an event.

    `begun` contains the events at the places in `beginnings_of` that exist. If the event ends a claim,
    `claimed_at` is the time of that claim."""
    return _Spans(recorded, begun).made(claimed_at)


class _Spans:
    """Builds the spans of one event."""

    def __init__(self, recorded: Recorded, begun: Mapping[Place, Begun]) -> None:
        self.event, self.epoch, self.at, self.trace_id = recorded.event, recorded.epoch, recorded.at, recorded.trace_id
        self.recorded, self.begun, self.run = recorded, begun, str(recorded.run_id)
        self.root = span_id(self.run)
        self.claim = span_id(self.run, "visit", self.epoch) if self.epoch else self.root

    def made(self, claimed_at: int | None) -> list[Span]:
        found: list[Span] = []
        if (span := self._own()) is not None:
            found.append(span)
        if type(self.event) in WAITS:
            found += self._resolved()
        if claimed_at is not None:
            found.append(self._visit(claimed_at))
        return found

    def _own(self) -> Span | None:
        kind, event = type(self.event), self.event
        if kind in _ENDING or kind in _NOTES:
            return self._outcome()
        match event:
            case e.ToolInvoked():
                return self._span(f"attempt {event.tool}", self._row("call"), self.claim, _tool(event, "attempted"))
            case e.ToolRead():
                return self._span(
                    f"execute_tool {event.tool}", self._row("call"), self.claim, _tool(event, "committed")
                )
            case e.ModelResponded() | e.ModelFailed():
                return self._model(event)
            case e.WaitOpened() | e.ApprovalRequested():
                return self._opened(event)
            case e.EffectUndone():
                return self._compensation(event)
            case e.RunCreated():
                agent = f"{event.agent}@{event.version}"
                told: Attributes = {"gen_ai.agent.name": agent}
                return self._span(f"start {agent}", self.root, self.recorded.parent, told)
            case e.RunClaimed():
                about: Attributes = {"durableagents.worker": event.worker, "durableagents.claim.cause": event.cause}
                return self._span(f"claim {self.recorded.agent}", self.claim, self.root, about)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                return self._end(event)
        return None

    # --- runs ---

    def _visit(self, claimed_at: int) -> Span:
        told: Attributes = {"durableagents.visit.outcome": LEAVING[type(self.event)]}
        end = _end_of(self.claim)
        return self._span(f"visit {self.recorded.agent}", end, self.claim, told, start=claimed_at, is_end=True)

    def _end(self, event: e.RunCompleted | e.RunFailed | e.RunCancelled) -> Span:
        agent = self.recorded.agent
        told: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "durableagents.run.state": _ENDS[type(event)],
        }
        error = event.code if isinstance(event, e.RunFailed) else ""
        # includes the event's number, because a retried run ends again
        end = span_id(self.run, "end", self.recorded.seq)
        start = self.recorded.created_at
        return self._span(f"invoke_agent {agent}", end, self.root, told, start=start, error=error)

    # --- tool calls ---

    def _outcome(self) -> Span:
        """Return the span of an event about a call, as a child of the attempt's span."""
        event, attempt = self.event, self._row("call")
        status = _ENDING.get(type(event)) or _NOTES[type(event)]
        is_end = type(event) in _ENDING
        n = getattr(event, "n", 0)
        span = _end_of(attempt, n) if is_end else self._row(event.KIND, n, self.recorded.seq)
        if isinstance(event, e.ToolReconciled):
            status = _VERDICTS.get(event.verdict, event.verdict)
        tool = str(getattr(event, "tool", ""))
        name = f"execute_tool {tool}" if is_end else f"{status} {tool}"
        error = event.code if isinstance(event, e.ToolFailed) else status if status in ("unknown", "failed") else ""
        start = self._begun("intent").at if is_end else 0
        return self._span(name, span, attempt, _tool(event, status), start=start, error=error, is_end=is_end)

    def _compensation(self, event: e.EffectUndone) -> Span:
        undone = span_id(event.of_run or self.run, event.of_slot, event.of_attempt, "call")
        told = _tool(event, "compensated") | {"durableagents.compensates": undone}
        return self._span(f"compensate {event.tool}", self._row("compensated"), self._row("call"), told)

    # --- model requests ---

    def _model(self, event: e.ModelResponded | e.ModelFailed) -> Span:
        start, request = self._begun("intent")
        told: Attributes = {"gen_ai.operation.name": "chat"}
        if isinstance(request, e.ModelRequested):
            provider, _, model = request.model.rpartition(":")
            told |= {"gen_ai.request.model": model} | ({"gen_ai.provider.name": provider} if provider else {})
        if isinstance(event, e.ModelResponded):
            told |= {"gen_ai.usage.input_tokens": event.tokens_in, "gen_ai.usage.output_tokens": event.tokens_out}
        error = event.code if isinstance(event, e.ModelFailed) else ""
        name = f"chat {told.get('gen_ai.request.model', '')}".strip()
        return self._span(name, self._row("model"), self.claim, told, start=start, kind="client", error=error)

    # --- waits and approvals ---

    def _opened(self, event: e.WaitOpened | e.ApprovalRequested) -> Span:
        kind = event.wait if isinstance(event, e.WaitOpened) else "approval"
        told: Attributes = {"durableagents.wait.kind": kind}
        if isinstance(event, e.ApprovalRequested):
            told |= {"durableagents.queue": event.queue, "gen_ai.tool.name": event.tool}
        return self._span(f"{_name_of(kind)} opened", self._row("wait", kind, event.n), self.claim, told)

    def _resolved(self) -> list[Span]:
        """Return the span of the wait that the event ends; empty if there was none."""
        event, fact = self.event, _opening(self.event)
        start, opening = self._begun(fact)
        if opening is self.event:
            return []
        kind = "approval" if fact.startswith("gate") else fact.split(".")[1]
        resolution = event.resolution if isinstance(event, e.WaitResolved) else str(getattr(event, "verdict", ""))
        opened = self._row("wait", kind, int(fact.rpartition(".")[2]))
        told: Attributes = {"durableagents.wait.kind": kind}
        told |= {"durableagents.wait.resolution": resolution} if resolution else {}
        if isinstance(event, (e.ApprovalDecided, e.InputAnswered)):
            told["durableagents.role"] = event.role
        return [self._span(_name_of(kind), _end_of(opened), opened, told, start=start, is_end=True)]

    # --- all of them ---

    def _begun(self, fact: str) -> Begun:
        """Return the event about the same call whose `fact` is this one; if there is none, the current event."""
        place = (self.recorded.run_id, self.event.slot, self.event.attempt, fact)
        return self.begun.get(place) or Begun(self.at, self.event)

    def _row(self, *fact: object) -> str:
        return span_id(self.run, self.event.slot, self.event.attempt, *fact)

    def _span(
        self,
        name: str,
        id: str,
        parent: str,
        told: Attributes,
        *,
        start: int = 0,
        kind: str = "internal",
        error: str = "",
        is_end: bool = False,
    ) -> Span:
        attributes: Attributes = {"durableagents.run_id": self.run, **told}
        if self.event.slot is not None:
            attributes |= {"durableagents.slot": self.event.slot, "durableagents.attempt": self.event.attempt}
        if self.epoch:
            attributes["durableagents.epoch"] = self.epoch
        return Span(name, self.trace_id, id, parent, start or self.at, self.at, attributes, kind, error, is_end)


def _opening(event: e.Event) -> str:
    """Return the `fact` of the event that opened the wait that `event` ends."""
    n = 0 if isinstance(event, e.SignalTaken) else getattr(event, "n", 0)
    kind = event.wait if isinstance(event, e.WaitResolved) else WAITS[type(event)]
    return f"gate.{n}" if kind == "approval" else f"wait_opened.{kind}.{n}"


def _tool(event: e.Event, status: str) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": str(getattr(event, "tool", "")),
        "durableagents.ledger.status": status,
    }


def _end_of(begin: str, n: int = 0) -> str:
    """Return the id of the span that ends what another span begins."""
    return f"{int(begin, 16) ^ (n + 1):016x}"


def _name_of(kind: str) -> str:
    return kind if kind == "approval" else f"wait {kind}"


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
