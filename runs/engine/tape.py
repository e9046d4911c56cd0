"""The record of a visit by slot, from which a replay is answered.

Events about the whole run are ignored, so that they can't affect a replay. Operators' changes are applied where they
were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ledger import events as e
from runs.engine.journal import CALLED_BACK as CALLED_BACK
from runs.engine.journal import Finding as Finding


@dataclass
class Attempt:
    """The record of one attempt at a logical call."""

    intent: e.Event | None = None
    undo: e.UndoRegistered | None = None  # registration of how its effect can be undone
    accepted: e.Event | None = None
    result: e.Event | None = None
    answers: dict[int, e.InputAnswered] = field(default_factory=dict)
    consents: dict[int, str] = field(default_factory=dict)  # digests of a fork's questions, by their number
    unknown: e.Event | None = None
    reconciled: e.ToolReconciled | None = None
    testimony: e.ToolAnsweredLate | None = None  # the late result of a worker that had lost the run
    is_called_back_late: bool = False
    finding: Finding = field(default_factory=Finding)
    is_in_doubt: bool = False
    is_unknown: bool = False  # whether its outcome is recorded as unknown and has not been settled since
    screenings: list[e.ContentScreened] = field(default_factory=list)
    withheld: list[e.ContentWithheld] = field(default_factory=list)
    repeats: int = 0  # number of repeated reads
    judgements: int = 0  # number of recorded policy verdicts
    resends: int = 0
    not_sents: int = 0
    routes: int = 0  # number of times a model request was sent
    route: e.ModelRouted | None = None  # the last request, until its usage is recorded
    waits: dict[tuple[str, int], str | None] = field(default_factory=dict)
    asked: e.UpstreamAsked | None = (
        None  # a person's request to query the upstream system, until its answer is recorded
    )

    @property
    def is_contradicted(self) -> bool:
        """Return whether a late result says that the attempt happened, and no person has settled that since."""
        return self.finding.is_contradicted

    @property
    def is_settled(self) -> bool:
        """Return whether the attempt's outcome was settled. The verdict *fail the run* leaves the outcome open."""
        return self.reconciled is not None and self.reconciled.verdict != "fail"

    @property
    def is_owed(self) -> bool:
        """Return whether the upstream system accepted the call and has not answered yet."""
        return self.accepted is not None and self.result is None and not self.is_settled

    @property
    def outcome(self) -> e.Event | None:
        """The event that answers a replay. A later finding that the call happened takes precedence over a refusal."""
        is_found = self.reconciled is not None and self.reconciled.verdict == "happened"
        return self.reconciled if is_found and (self.result is None or self.is_refused) else self.result

    @property
    def is_refused(self) -> bool:
        is_failed_repeat = isinstance(self.result, e.ToolReadAnew) and self.result.code != ""
        return isinstance(self.result, (e.ToolFailed, e.ModelFailed)) or self.has_lost_child or is_failed_repeat

    @property
    def has_lost_child(self) -> bool:
        return isinstance(self.result, e.ChildEnded) and self.result.state != "completed"

    @property
    def has_happened(self) -> bool:
        return self.outcome is not None and not (self.outcome is self.result and self.is_refused)

    def waits_of(self, kind: str) -> int:
        return sum(1 for k, _ in self.waits if k == kind)

    def last_wait(self, kind: str) -> tuple[int, str | None]:
        """Return the number and the resolution of the newest wait of a kind; 0 and None if there is none."""
        n = max(0, self.waits_of(kind) - 1)
        return n, self.waits.get((kind, n))

    def open_wait(self, kind: str) -> int | None:
        return next((n for (k, n), resolution in self.waits.items() if k == kind and resolution is None), None)


@dataclass
class Slot:
    """The record of one logical call: its request, its gate and its attempts."""

    what: str | None = None
    requested_hash: str | None = None
    branches: e.BranchesOpened | None = None
    gate: e.ApprovalRequested | None = None
    gate_id: str = ""  # id of the latest question
    decision: e.ApprovalDecided | None = None
    decisions: list[e.ApprovalDecided] = field(default_factory=list)
    asked: dict[str, e.ApprovalRequested] = field(default_factory=dict)  # every question, by its id
    votes: list[e.ApprovalVoted] = field(default_factory=list)
    amended: list[tuple[e.PlanAmended, int]] = field(default_factory=list)  # with the number of screenings before it
    # For each attempt, the slot and id of the approval under which it was sent.
    grants: dict[int, tuple[str, str]] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    current: int = 0

    def at(self, attempt: int) -> Attempt:
        """Return the record of an attempt. The record is empty if nothing is recorded."""
        known = self.attempts.get(attempt)
        if known is None:
            known = self.attempts[attempt] = Attempt()
        return known

    @property
    def now(self) -> Attempt:
        return self.at(self.current)

    @property
    def is_asked_about(self) -> bool:
        """Return whether a person is being asked about the outcome of any attempt (see `contradicted`)."""
        return any(attempt.open_wait("reconcile") is not None for attempt in self.attempts.values())

    @property
    def contradicted(self) -> int | None:
        """The first earlier attempt that a late result contradicts; None if there is none.

        That attempt was recorded as not done, and further attempts are blocked until it is settled.
        """
        return next((n for n, a in sorted(self.attempts.items()) if n < self.current and a.is_contradicted), None)

    @property
    def was_invoked(self) -> bool:
        """Return whether any attempt had an intent, so that the gate was passed."""
        return any(a.intent is not None for a in self.attempts.values())

    @property
    def has_effect(self) -> bool:
        """Return whether the node depends on the call.

        It does if the call did something irrevocable, or waited for something.
        """
        is_taken_over = isinstance(self.now.result, e.AnswerTakenOver)
        goes_on = is_taken_over or any(kind in _GONE_ON_BY for kind, _ in self.now.waits)
        return self.was_invoked or self.gate is not None or goes_on

    @property
    def arguments(self) -> Any:
        """The call's recorded arguments, from its intent, a read's result, a refusal or a plan."""
        events = [event for a in self.attempts.values() for event in (a.intent, a.result)]
        return next((payload_of(x)["arguments"] for x in (*events, self.gate) if "arguments" in payload_of(x)), None)

    @property
    def has_timed_out(self) -> bool:
        """Return whether a wait for an answer, signal or message timed out.

        A gate's deadline is not included, because it is a denial.
        """
        return any(self.now.last_wait(kind)[1] == "timed_out" for kind in ("input", "signal", "message"))

    def remember(self, what: str, requested_hash: str) -> None:
        """Set the identity of the slot's call, unless it is already known."""
        self.what, self.requested_hash = self.what or what, self.requested_hash or requested_hash


# Reason of the stop of a retried run before it continues: see runs/engine/steps/late_news.py.
LATE_NEWS = "late_news"
# Kinds of waits that a node requests itself. Other waits belong to a call with a recorded intent or gate.
_GONE_ON_BY = frozenset({"timer", "signal", "input", "message"})


class Tape:
    """The events since a checkpoint, by slot."""

    def __init__(self, events: Iterable[e.Event] = ()) -> None:
        self.slots: dict[str, Slot] = {}
        self.visits: set[int] = set()
        self.parents: set[str] = set()  # places of calls that number their own calls, such as a `think` or a `gather`
        self.signals: dict[tuple[str, int], e.SignalReceived | e.SignalCarried] = {}
        self.handled: list[e.MessageHandled | e.ContextInjected] = []
        self.asked_after: dict[str, int] = {}  # by slot of a model request: number of changes before it
        self.undone: dict[str, e.EffectUndone | e.EffectLeft] = {}  # by slot of the undoing call, or of the question
        self.late: list[tuple[str, int]] = []  # calls that have a late result by which they happened
        self.unheard: list[Any] = []  # late results that a retry must still report
        self.last = ""  # slot of the last call on record when the run was claimed
        for event in events:
            self.add(event)
            named = event.call if isinstance(event, e.BudgetExceeded) else event.slot
            self.last = named if named is not None and _is_place(named) else self.last

    def slot(self, name: str) -> Slot:
        """Return the record of a slot. The record is empty if nothing is recorded."""
        known = self.slots.get(name)
        if known is None:
            known = self.slots[name] = Slot()
        return known

    def add(self, event: e.Event) -> None:
        """Add one event. Events must come in journal order."""
        if isinstance(event, e.RunRetried):
            for name in event.reopened:
                self.slot(name).current += 1
        if isinstance(event, (e.RunRetried, e.WaitResolved)):
            self.unheard = payload_of(event).get("late", self.unheard)
        if isinstance(event, e.OperatorNeeded) and event.reason == LATE_NEWS:
            self.unheard = []
        if isinstance(event, e.VisitEntered):
            self.visits.add(event.visit)
        if isinstance(event, (e.SignalReceived, e.SignalCarried)):
            self.signals[event.name, event.n] = event
        if isinstance(event, (e.EffectUndone, e.EffectLeft)):
            self.undone[event.slot or ""] = event
        if isinstance(event, (e.MessageHandled, e.ContextInjected)):
            self.handled.append(event)
            _unbind(self.slots.values(), payload_of(event) if isinstance(event, e.ContextInjected) else {})
        if event.slot is None:
            return
        if isinstance(event, e.ModelRequested):
            self.asked_after.setdefault(event.slot, len(self.handled))
        is_news = isinstance(event, e.ToolAnsweredLate) and event.outcome != "refused" and event.contradicts != ""
        if (is_news or isinstance(event, e.CallbackArrivedLate)) and (event.slot, event.attempt) not in self.late:
            self.late.append((event.slot, event.attempt))
        place = event.slot.rpartition("/")[0]
        while "/" in place and place not in self.parents:
            self.parents.add(place)
            place = place.rpartition("/")[0]
        slot = self.slot(event.slot)
        _apply_event(slot, slot.at(event.attempt), event)

    def in_doubt(self) -> list[tuple[str, Slot]]:
        """Return the slots of tool calls that have a recorded intent but no outcome."""
        named = [(name, slot, slot.now) for name, slot in self.slots.items()]
        sent = [(name, slot, now) for name, slot, now in named if isinstance(now.intent, e.ToolInvoked)]
        return [(name, x) for name, x, now in sent if now.result is now.accepted is None and not now.is_settled]

    def to_reopen(self) -> list[str]:
        """Return the slots of failures and timeouts that a retry repeats.

        Failures and timeouts followed by a call with an effect are kept, because the effect depends on the old answer.
        """
        reached = self._reached()
        return [
            name
            for name, slot in self.slots.items()
            if ((slot.now.outcome is not None and not slot.now.has_happened) or slot.has_timed_out)
            and not self._is_passed(name, reached)
        ]

    def to_await(self) -> list[str]:
        """Return the slots of accepted calls whose callback timed out, and after which the node did not continue.

        A retry waits for these callbacks again.
        """
        reached = self._reached()
        return [
            name
            for name, slot in self.slots.items()
            if slot.now.is_owed
            and slot.now.last_wait("webhook")[1] == "timed_out"
            and not self._is_passed(name, reached)
        ]

    def told_by_witnesses(self) -> list[str]:
        """Return the slots of calls that have no recorded outcome, but happened according to a late result."""
        late_results = [(name, slot.now) for name, slot in self.slots.items() if slot.now.testimony is not None]
        return [name for name, now in late_results if now.result is None and not (now.is_settled or now.accepted)]

    def went_on_from(self, name: str) -> bool:
        """Return whether the node had an effect after this call. If so, the call's outcome can't change any more."""
        return self._is_passed(name, self._reached())

    def _reached(self) -> dict[str, tuple[int, ...]]:
        """Return, by path, the last place on each branch where something with an effect began."""
        reached: dict[str, tuple[int, ...]] = {}
        for name, slot in self.slots.items():
            if _is_place(name) and slot.has_effect:
                path = ""
                for part in name.split("/"):
                    reached[path] = max(reached.get(path, ()), tuple(map(int, part.split("."))))
                    path = f"{path}/{part}" if path else part
        return reached

    def _is_passed(self, name: str, reached: dict[str, tuple[int, ...]]) -> bool:
        """Return whether anything with an effect began after a call. The branches of a gather have no order."""
        if not _is_place(name):
            return False
        path = ""
        for part in name.split("/"):
            line = self.slots.get(path)
            if (line is None or line.branches is None) and reached.get(path, ()) > tuple(map(int, part.split("."))):
                return True
            path = f"{path}/{part}" if path else part
        return False

    def lost_requests(self) -> list[e.ModelRouted]:
        """Return the model requests that were sent and whose answers were not recorded."""
        return [a.route for slot in self.slots.values() for a in slot.attempts.values() if a.route is not None]

    def open_budget(self) -> str | None:
        return next((name for name, slot in self.slots.items() if slot.now.open_wait("budget") is not None), None)

    def open_stop(self) -> str | None:
        return next((name for name, slot in self.slots.items() if slot.now.open_wait("operator") is not None), None)

    def outstanding(self) -> list[str]:
        """Return the slots of unfinished child runs, and of calls that had or may still have an effect.

        Such calls are those that the upstream system accepted, calls of unknown outcome, and calls that a late result
        contradicts.
        """
        return [
            name
            for name, slot in self.slots.items()
            if slot.now.result is None
            and not slot.now.is_settled
            and (
                slot.now.accepted is not None
                or slot.now.unknown is not None
                or slot.contradicted is not None
                or isinstance(slot.now.intent, e.ChildStarted)
            )
        ]


def _is_place(slot: str) -> bool:
    return slot[:1].isdigit()


def _unbind(slots: Iterable[Slot], value: Any) -> None:
    """Forget the hashes of pending model requests, because a message from people changes those requests."""
    waiting = (slot for slot in slots if slot.what == "model" and not slot.was_invoked)
    for slot in waiting if "message" in value else ():
        slot.requested_hash = ""


def _apply_event(slot: Slot, attempt: Attempt, event: e.Event) -> None:
    match event:
        case e.ToolInvoked():
            slot.remember(event.tool, event.requested_hash)
            slot.current = max(slot.current, event.attempt)
            attempt.intent, attempt.is_in_doubt = event, True
            if event.grant is not None:
                slot.grants[event.attempt] = event.grant, slot.gate_id if event.grant == event.slot else ""
        case e.ChildStarted():
            slot.remember("child", event.requested_hash)
            slot.current = max(slot.current, event.attempt)
            attempt.intent = event
        case e.ModelRequested():
            slot.remember("model", event.request_hash)
            attempt.intent = event
        case e.ToolRead() | e.ToolFailed() | e.CachedReadTaken() | e.AnswerTakenOver():
            slot.remember(event.tool, event.requested_hash)
            attempt.result, attempt.is_in_doubt = event, False
            attempt.finding.found("refused" if attempt.is_refused else "answered")
        case e.ModelRouted() | e.BudgetDebited():
            attempt.routes = max(attempt.routes, event.n + 1)
            attempt.route = event if isinstance(event, e.ModelRouted) else None
        case e.ValueRead():
            slot.remember(event.what, "")
            attempt.result = event
        case e.BranchesOpened():
            slot.remember(f"gather of {event.branches}", "")
            slot.branches = event
        case e.ToolReturned() | e.CallbackReceived() | e.ModelResponded() | e.ModelFailed() | e.ChildEnded():
            attempt.result, attempt.is_in_doubt = event, False
            attempt.finding.found("answered")
        case e.ToolAccepted():
            attempt.accepted, attempt.is_in_doubt, attempt.is_unknown = event, False, False
        case e.ToolNotDispatched():
            attempt.not_sents, attempt.is_in_doubt = event.n, False
        case e.ToolRedispatched():
            attempt.resends, attempt.is_in_doubt = event.n, True
        case e.ToolOutcomeUnknown():
            attempt.unknown, attempt.is_unknown = event, True
        case e.ToolAnsweredLate() | e.CallbackArrivedLate():
            _fold_late(attempt, event)
        case e.ToolReconciled():
            _fold_finding(slot, attempt, event)
        case e.ApprovalRequested():
            slot.remember(event.tool, event.requested_hash)
            slot.gate = slot.asked[event.approval_id] = event
            slot.decision, slot.gate_id = None, event.approval_id
        case _:
            _fold_wait(slot, attempt, event)


def _fold_late(attempt: Attempt, event: e.ToolAnsweredLate | e.CallbackArrivedLate) -> None:
    if isinstance(event, e.CallbackArrivedLate):
        attempt.is_called_back_late = True
        attempt.finding.hear(CALLED_BACK)
        return
    attempt.finding.hear(event.outcome)
    if event.outcome != "refused" and "result" in payload_of(event):
        attempt.testimony = event


def _fold_finding(slot: Slot, attempt: Attempt, event: e.ToolReconciled) -> None:
    attempt.reconciled, attempt.is_in_doubt = event, False
    attempt.finding.found(event.verdict)
    for key in [k for k, resolution in attempt.waits.items() if k[0] == "reconcile" and resolution is None]:
        attempt.waits[key] = event.verdict
    if event.verdict == "did_not":
        slot.current = max(slot.current, event.attempt + 1)
    elif event.verdict == "happened" and slot.now.intent is None:
        slot.current = event.attempt  # the call is not sent again


def _fold_wait(slot: Slot, attempt: Attempt, event: e.Event) -> None:
    match event:
        case e.WaitOpened():
            payload = payload_of(event)
            if "call" in payload:  # a wait may be the only record of a call, as for a sleep or a failing read
                slot.remember(payload["call"], payload["hash"])
            attempt.waits[event.wait, event.n] = None
            attempt.consents |= {event.n: payload["binds"]} if "binds" in payload else {}
            # The callback timed out once, so the outcome is unknown.
            attempt.is_unknown |= event.wait == "webhook" and event.n > 0
        case e.WaitResolved():
            attempt.waits[event.wait, event.n] = event.resolution
        case e.AttributesSet():
            slot.remember("set_attributes", event.requested_hash)
            attempt.result = event
        case e.ApprovalVoted():
            slot.votes.append(event)
        case e.ApprovalDecided():
            slot.decision = event
            slot.decisions.append(event)
        case e.UndoRegistered():
            attempt.undo = event
        case e.PolicyApplied():
            attempt.judgements = event.n + 1
        case e.ToolReadAnew():
            attempt.result, attempt.repeats = event, event.n + 1
        case e.PlanAmended():
            slot.amended.append((event, len(slot.now.screenings)))
        case e.ContentScreened():
            attempt.screenings.append(event)
        case e.ContentWithheld():
            attempt.withheld.append(event)
        case e.UpstreamAsked() | e.UpstreamTold():
            attempt.asked = event if isinstance(event, e.UpstreamAsked) else None
        case e.SignalTaken():
            attempt.result, attempt.waits["signal", 0] = event, "received"
        case e.InputAnswered():
            attempt.answers[event.n], attempt.waits["input", event.n] = event, "answered"
        case _:
            pass


def payload_of(event: e.Event | None) -> dict[str, Any]:
    """Return an event's payload as a mapping, empty if there is none."""
    return event.payload if event is not None and isinstance(event.payload, dict) else {}
