"""Run a story of one agent: its run, the people and systems involved, and the clock, all in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from durableagents.testing.assertions import Assertions
from durableagents.testing.clock import BEGINNING, Clock, Killed, Stopped, StoryProblem, to_its_end
from durableagents.testing.family import POINTS, Death, Family, Member
from durableagents.testing.hands import Hands
from durableagents.testing.minds import Minds, Script
from durableagents.testing.recorded import Record
from durableagents.testing.words import all_in_words, wait_in_words
from ledger import events as e
from runs.engine.agents import Agent, registry
from runs.engine.budget import UNLIMITED, Budget, Caps, Price
from runs.engine.canonical import plain
from runs.engine.content.hooks import Screen
from runs.engine.errors import BusinessFailure, Refused, TransportError, UnknownAgent, UnknownVersion
from runs.engine.guards import Guard
from runs.engine.memory import HasVoted, MemoryWait
from runs.engine.tape import Tape, payload_of
from runs.engine.tools import Tool

_RESOLUTIONS = {
    "timer": "fired",
    "signal": "timed_out",
    "input": "timed_out",
    "message": "timed_out",
    "webhook": "timed_out",
}
NOBODY = "No decision was made before the deadline."


def acts_on() -> tuple[str, ...]:
    """Return the kinds of wait that end when their deadline passes. Other waits only become overdue."""
    return (*_RESOLUTIONS, "approval")


def ends(wait: MemoryWait) -> bool:
    """Return whether the deadline ends the wait.

    Some questions never end. Waits with escalations end as well, since a story has no queues.
    """
    return wait.spec.detail.get("on_timeout") != "remind"


def fire(member: Member, wait_id: UUID, wait: MemoryWait) -> None:
    """Resolve a wait because its deadline passed."""
    spec = wait.spec
    if spec.kind == "approval":
        assert wait.gate is not None
        event = e.ApprovalDecided(
            slot=spec.slot,
            n=spec.n,
            approval_id=str(wait.gate.approval_id),
            verdict="expired",
            plan_hash=wait.gate.plan_hash,
            by="system:sweeper",
            role="",
            payload={"justification": NOBODY},
        )
        member.run.resolve(wait_id, "expired", event=event)
        return
    resolution = _RESOLUTIONS[spec.kind]
    event_of_it = e.WaitResolved(
        slot=spec.slot, attempt=spec.attempt, wait=spec.kind, n=spec.n, resolution=resolution, by="system:sweeper"
    )
    member.run.resolve(wait_id, resolution, event=event_of_it)


def misfit_of(schema: dict[str, Any], given: Any) -> str:
    """Return the problem with an answer; empty if it is valid."""
    errors = sorted(Draft202012Validator(schema).iter_errors(given), key=lambda error: list(map(str, error.path)))
    return "; ".join(f"{'.'.join(map(str, error.path)) or 'value'}: {error.message}" for error in errors[:3])


def settled(member: Member, wait: MemoryWait, verdict: str, *, result: Any, receipt: Any, by: str) -> e.ToolReconciled:
    """Return a person's settlement of an unknown outcome.

    Raises StoryProblem if `happened` lacks a usable result.
    """
    s = wait.spec
    intent = next(x for x in member.run.events if isinstance(x, e.ToolInvoked) and x.slot == s.slot)
    tool = member.agent.tool(intent.tool)
    payload: dict[str, Any] = {"receipt": receipt}
    if verdict == "happened" and tool is not None:
        try:
            if result is not None:
                payload["result"] = tool.checked(result).result
            else:
                args = tool.input.model_validate(payload_of(intent)["arguments"])
                payload["result"] = tool.checked(tool.output_from_receipt(args, receipt)).result
        except Exception as error:
            raise StoryProblem(f"{tool.name} happened, but the given data yields no result: {error}") from None
    return e.ToolReconciled(
        slot=s.slot, attempt=s.attempt, tool=intent.tool, verdict=verdict, by=by, n=s.n, payload=payload
    )


SOMEBODY = "user:somebody"
Found = tuple[Member, UUID, MemoryWait]


class Harness(Assertions):
    """Drive a run of an `agent` (the object, its name, or name@version) with this `input` on a journal in memory.

    The run is driven until it waits or ends, and again after each of your steps. There is no server, database or
    network.

    `tools` replaces functions of tools, by name: with a function of (args, call), or a list of results or exceptions
    that are used in turn. `models` has the answers of assistants, by name: a list of turns (`calls`, `answers`, `says`,
    `together`, or an exception), or a function of (messages, info). `hooks` replaces reconcile hooks. `at` is the start
    of the clock, which only `advance` moves. `by` is the actor who started the run, and `budget` its caps. `prices` is
    the cost of a million tokens in millionths of a dollar, as (in, out) by model or assistant. `screens` are the
    installation's guardrail hooks, and `guards` are the guards of its own features. `queues` are the
    existing queues (None: any name is valid). `children` tells whether child runs are driven too, or the test plays
    them. `record` is the output of `manage.py runs to-test`. `kill` lists where the worker dies in the first drive, in
    the same form as later calls of `kill(…)`. `run_id` is the run's id, by default the same in every story.

    Raises StoryProblem, an AssertionError, if a step is impossible.
    """

    def __init__(
        self,
        agent: Agent | str,
        input: Any,
        *,
        tools: Mapping[str, Any] | None = None,
        models: Mapping[str, Script] | None = None,
        hooks: Mapping[str, Any] | None = None,
        at: datetime | str = BEGINNING,
        by: str = SOMEBODY,
        budget: Budget | None = None,
        prices: Mapping[str, tuple[int, int]] | None = None,
        screens: Sequence[Screen] = (),
        guards: Sequence[Guard] = (),
        queues: Sequence[str] | None = None,
        children: Literal["driven", "played"] = "driven",
        record: Mapping[str, Any] | None = None,
        kill: Sequence[tuple[str, str]] = (),
        run_id: str = "",
    ) -> None:
        self.agent = _resolve_agent(agent)
        known = {tool.name for tool in _every_tool(self.agent, is_wide=children == "driven")}
        for name in (*(tools or {}), *(hooks or {})):
            if name not in known:
                raise StoryProblem(f"there is no tool {name!r}; known tools: {', '.join(sorted(known)) or 'none'}")
        recorded = None if record is None else Record(record)
        given = dict(models or {})
        if recorded is not None:
            given |= recorded.turns()
        self.clock = Clock(datetime.fromisoformat(at) if isinstance(at, str) else at)
        self._family = Family(
            self.clock,
            Hands(dict(tools or {}), dict(hooks or {}), recorded),
            Minds(given),
            screens=tuple(screens),
            guards=tuple(guards),
            prices={name: Price(0, name, *each) for name, each in (prices or {}).items()},
            queues=queues,
            drives_children=children == "driven" and recorded is None,
            record=recorded,
        )
        limits = budget or self.agent.budget
        self._first = self._family.begin(self.agent, input, by=by, caps=_caps(limits), run_id=run_id)
        for point, tool in kill:
            self._family.kill_at.append((POINTS.get(point, point), tool))
        self._go_on()

    # --- driving ---

    def _go_on(self) -> None:
        try:
            to_its_end(self._family.settle())
        except Stopped as stopped:
            raise StoryProblem(str(stopped)) from None

    def advance(self, delta: timedelta | None = None, /, **parts: float) -> None:
        """Move the clock by a timedelta `delta`, or by `parts` such as `hours=2`.

        Timers fire and deadlines pass in order.
        """
        self._pass(self.clock.after(timedelta(**parts) if delta is None else delta))

    def let_pass(self, slot: str = "") -> None:
        """Move the clock to the next deadline, or to the deadline of the wait at this `slot`."""
        found = [wait for *_, wait in self._due() if slot in ("", wait.spec.slot)]
        if not found:
            raise StoryProblem(f"no run waits for a time{_condition_text(slot=slot)}: {self.now}")
        self._pass(min(wait.spec.deadline for wait in found))

    def _due(self) -> list[tuple[Member, UUID, MemoryWait]]:
        """Return the waits that end by their deadline."""
        return [found for found in self._family.open_waits(*acts_on()) if ends(found[2])]

    def _pass(self, until: datetime) -> None:
        while True:
            due = [found for found in self._due() if found[2].spec.deadline <= until]
            if not due:
                break
            member, wait_id, wait = min(due, key=lambda found: found[2].spec.deadline)
            self.clock.move_to(wait.spec.deadline)
            fire(member, wait_id, wait)
            self._go_on()
        self.clock.move_to(until)

    def kill(self, point: str, tool: str = "") -> None:
        """Make the worker die the next time it reaches this `point` with this `tool`. Another worker takes the run
        over.

        Points are before_intent, before_effect, after_effect, after_record (with a tool's name, or "model" for a model
        request), after_node, before_wait (without a tool); or CP1 to CP8 of docs/explanation/step-protocol.md.
        """
        if point not in POINTS and point not in POINTS.values():
            raise StoryProblem(f"there is no crash point {point!r}: there are {', '.join(POINTS)}")
        self._family.kill_at.append((POINTS.get(point, point), tool))

    def kill_at_write(self, nth: int = 1, *, after: bool = False) -> None:
        """Make the worker die at its `nth` write from now, before the write takes effect or `after`."""
        self._family.deaths.append(Death(nth, after))

    # --- tools ---

    def fail(
        self, tool: str, error: BaseException | None = None, *, after_effect: bool = False, times: int = 1
    ) -> None:
        """Make the next `times` calls of this `tool` end in an `error` (a TransportError unless given).

        They fail before anything is sent or, with `after_effect`, after the effect, so that the answer is lost.
        """
        self._must_know(tool)
        for _ in range(times):
            what = TransportError("the line is down") if error is None else error
            self._family.hands.trouble(tool, what, is_after=after_effect)

    def refuse(self, tool: str, message: str = "no", *, code: str = "refused", details: Any = None) -> None:
        """Refuse the next call of this `tool` permanently, with this `message`, `code` and `details`."""
        self.fail(tool, BusinessFailure(message, code=code, details=details))

    def crash(self, tool: str, when: Literal["before_effect", "after_effect"] = "after_effect") -> None:
        """Make the worker die in the next call of this `tool`; `when`: after or just before sending."""
        self.fail(tool, Killed(f"in {tool}"), after_effect=when == "after_effect")

    def _must_know(self, name: str) -> None:
        known = {tool.name for tool in _every_tool(self.agent, is_wide=True)}
        if name not in known:
            raise StoryProblem(f"there is no tool {name!r}; known tools: {', '.join(sorted(known)) or 'none'}")

    # --- people ---

    def approve(
        self,
        queue: str = "",
        *,
        tool: str = "",
        slot: str = "",
        by: str = SOMEBODY,
        role: str = "approver",
        justification: str = "as tested",
    ) -> None:
        """Approve the open gate; `queue`, `tool` or `slot` select one among several.

        `by`, `role` and `justification` are recorded. A gate with a quorum needs that many people.
        """
        self._decide("approve", queue, tool, slot, by, role, justification)

    def reject(
        self,
        queue: str = "",
        *,
        tool: str = "",
        slot: str = "",
        by: str = SOMEBODY,
        role: str = "approver",
        justification: str = "as tested",
        fail: bool = False,
    ) -> None:
        """Reject the open gate. `queue`, `tool`, `slot`, `by`, `role` and `justification` are as in `approve`.

        With `fail` the run fails without returning to its node.
        """
        self._decide("fail" if fail else "reject", queue, tool, slot, by, role, justification)

    def abstain(
        self,
        queue: str = "",
        *,
        tool: str = "",
        slot: str = "",
        by: str = SOMEBODY,
        role: str = "approver",
        justification: str = "as tested",
    ) -> None:
        """Abstain at the open gate. `queue`, `tool`, `slot`, `by`, `role` and `justification` are as in `approve`."""
        self._decide("abstain", queue, tool, slot, by, role, justification)

    def _decide(self, verdict: str, queue: str, tool: str, slot: str, by: str, role: str, why: str) -> None:
        wanted = f"an approval{_condition_text(queue=queue, tool=tool, slot=slot)}"
        member, wait_id, _ = self._one("approval", wanted, slot=slot, queue=queue, tool=tool)
        try:
            member.run.record_verdict(wait_id, verdict, by=by, role=role, justification=why)
        except HasVoted as error:
            raise StoryProblem(f"{error}: name another person with by=…") from error
        self._go_on()

    def answer(
        self, given: Any, *, of: str = "", title: str = "", slot: str = "", by: str = SOMEBODY, role: str = "operator"
    ) -> None:
        """Answer the open question with `given`; `of`, `title` or `slot` select one among several.

        `by` and `role` are recorded.
        """
        wanted = f"an answer{_condition_text(of=of, title=title, slot=slot)}"
        member, wait_id, wait = self._one("input", wanted, slot=slot, of=of, title=title)
        given = given.model_dump(mode="json") if isinstance(given, BaseModel) else given
        if problem := misfit_of(wait.spec.detail["schema"], given):
            raise StoryProblem(f"the answer does not fit {wait.spec.detail.get('title')!r}: {problem}")
        s = wait.spec
        event = e.InputAnswered(slot=s.slot, attempt=s.attempt, n=s.n, by=by, role=role, payload={"answer": given})
        member.run.resolve(wait_id, "answered", event=event)
        self._go_on()

    def settle(
        self,
        verdict: Literal["happened", "did_not", "fail"],
        *,
        result: Any = None,
        receipt: Any = None,
        tool: str = "",
        slot: str = "",
        by: str = SOMEBODY,
    ) -> None:
        """Settle a call with an unknown outcome; `tool` or `slot` select one among several. `by` is recorded.

        The `verdict` is that the call happened (with its `result`, or a `receipt` that yields it), that it didn't
        happen and is made again, or that the run fails.
        """
        member, wait_id, wait = self._one(
            "reconcile", f"a verdict{_condition_text(tool=tool, slot=slot)}", slot=slot, tool=tool
        )
        event = settled(member, wait, verdict, result=result, receipt=receipt, by=by)
        member.run.resolve(wait_id, verdict, event=event)
        self._go_on()

    def message(self, name: str, request: Any = None, *, by: str = SOMEBODY) -> Any:
        """Send the run the message `name` with this `request`, sent `by` someone; return the answer.

        Raises Refused if the agent refuses it, StoryProblem if the agent doesn't accept it now.
        """
        member = self._current
        declared = member.agent.messages.get(name)
        if declared is None or member.has_ended:
            known = ", ".join(member.agent.messages) or "none"
            raise StoryProblem(f"nobody takes the message {name!r}: the messages are {known}; {self.now}")
        try:
            checked = plain(
                declared.takes.model_validate(plain(request) if isinstance(request, BaseModel) else request)
            )
        except ValidationError as error:
            raise StoryProblem(f"the request does not fit the message {name!r}: {error}") from None
        n = member.run.message(name, checked, by=by)
        self._go_on()
        handled = next((x for x in member.run.events if isinstance(x, e.MessageHandled) and x.n == n), None)
        if handled is None:
            raise StoryProblem(f"the message {name!r} was not handled: {self.now}")
        payload = payload_of(handled)
        if handled.outcome != "answered":
            raise Refused(payload.get("message", handled.outcome), code=payload.get("code", handled.outcome))
        return payload.get("answer")

    # --- the outside ---

    def signal(self, name: str, payload: Any = None, *, by: str = SOMEBODY) -> None:
        """Send the run a signal of this `name` with this `payload`, sent `by` someone.

        It is kept until a node takes it.
        """
        member = self._current
        names = member.agent.signals
        if member.has_ended:
            raise StoryProblem(f"nobody waits for the signal {name!r} any more: {self.now}")
        if names is not None and name not in names:
            raise StoryProblem(f"{member.agent.graph_id} waits for no signal {name!r}: {', '.join(names) or 'none'}")
        payload = plain(payload) if isinstance(payload, BaseModel) else payload
        member.run.signal(name, payload, by=by)
        self._go_on()

    def call_back(self, body: Any, *, tool: str = "", slot: str = "") -> None:
        """Deliver the callback `body` for the accepted call; `tool` or `slot` select one among several."""
        wanted = f"a callback{_condition_text(tool=tool, slot=slot)}"
        member, wait_id, wait = self._one("webhook", wanted, slot=slot, tool=tool)
        s, name = wait.spec, str(wait.spec.detail.get("tool") or self._tool_at(member, wait.spec.slot))
        known, body = member.agent.tool(name), plain(body) if isinstance(body, BaseModel) else body
        accepted = next((x for x in member.run.events if isinstance(x, e.ToolAccepted) and x.slot == s.slot), None)
        try:
            if known is not None:
                known.output_from_callback(payload_of(accepted).get("receipt"), body)
        except ValueError as error:
            raise StoryProblem(f"the body is not an answer to {name}: {error}") from None
        event = e.CallbackReceived(slot=s.slot, attempt=s.attempt, tool=name, payload=body)
        member.run.resolve(wait_id, "received", event=event)
        self._go_on()

    def end_child(
        self, agent: str = "", *, output: Any = None, code: str = "", state: str = "", slot: str = ""
    ) -> None:
        """End the child run that the test plays (`children="played"`).

        It ends with this `output`, as failed with a `code`, or in this `state`; `agent` or `slot` select one among
        several.
        """
        played = [
            (member, spec)
            for member, _, wait in self._family.open_waits("child")
            for spec in [member.run.children[wait.spec.detail["child"]]]
            if spec.agent.startswith(agent.partition("@")[0]) and slot in ("", spec.slot)
        ]
        if len(played) != 1 or self._family.drives_children:
            why = "they are driven" if self._family.drives_children else f"{len(played)} fit"
            raise StoryProblem(f"no child{_condition_text(agent=agent, slot=slot)} is yours to end: {why}; {self.now}")
        member, spec = played[0]
        output = plain(output) if isinstance(output, BaseModel) else output
        member.run.end_child(spec.run_id, state or ("failed" if code else "completed"), output=output, code=code)
        self._go_on()

    # --- operators ---

    def pause(self, *, by: str = SOMEBODY) -> None:
        """Pause the run and its children, `by` someone.

        Decisions, signals and deadlines that come meanwhile are kept until you `resume`.
        """
        going = [member for member in self._family.members if not member.has_ended]
        if not going or any(member.held for member in going):
            raise StoryProblem(f"there is nothing to pause: {self.now}")
        for member in going:
            member.pause(by)
        self._go_on()

    def resume(self, *, by: str = SOMEBODY) -> None:
        """Resume the paused run and its children, `by` someone."""
        held = [member for member in self._family.members if member.held and not member.has_ended]
        if not held:
            raise StoryProblem(f"the run is not paused: {self.now}")
        for member in held:
            member.resume(by)
        self._go_on()

    def cancel(self, *, by: str = SOMEBODY) -> None:
        """Request cancellation of the run and its children, `by` someone."""
        for member in self._family.members:
            if not member.has_ended:
                member.run.append([e.CancelRequested(by=by)])
                member.run.is_cancel_requested, member.run.state, member.held = True, "running", ""
        self._go_on()

    def retry(self, *, by: str = SOMEBODY) -> None:
        """Retry a failed run, `by` someone. Committed work isn't repeated."""
        member = self._current
        if member.run.state != "failed":
            raise StoryProblem(f"only a failed run can be retried: {self.now}")
        since = member.run.snapshots[-1][0] if member.run.snapshots else 0
        member.run.append([e.RunRetried(by=by, reopened=Tape(member.run.events[since:]).to_reopen())])
        member.run.state = "running"
        self._go_on()

    def raise_budget(self, budget: Budget, *, by: str = SOMEBODY) -> None:
        """Set the run's `budget`, `by` someone. A run that waits for a higher budget continues."""
        self._current.run.raise_budget(_caps(budget), by=by)
        if self._current.run.state == "paused":
            self._current.run.state = "running"
        self._go_on()

    # --- finding ---

    @property
    def _current(self) -> Member:
        """Return the first run, or its newest continuation."""
        member = self._first
        while member.successor is not None:
            member = member.successor
        return member

    @property
    def now(self) -> str:
        """Describe what the story's runs are doing."""
        return all_in_words(self._family)

    def _tool_at(self, member: Member, slot: str) -> str:
        return next((x.tool for x in member.run.events if isinstance(x, e.ToolInvoked) and x.slot == slot), "")

    def _one(self, kind: str, wanted: str, *, slot: str, **detail: str) -> Found:
        """Return the one open wait of a kind that matches. Raises StoryProblem if there isn't exactly one."""
        open_ones = self._family.open_waits(kind)
        found = [
            (member, wait_id, wait)
            for member, wait_id, wait in open_ones
            if slot in ("", wait.spec.slot)
            and all(
                value in ("", str(wait.spec.detail.get(name) or self._tool_at(member, wait.spec.slot)))
                for name, value in detail.items()
            )
        ]
        if len(found) == 1:
            return found[0]
        if not found:
            raise StoryProblem(f"no run waits for {wanted}: {self.now}")
        several = ", ".join(wait_in_words(wait) for _, _, wait in found)
        raise StoryProblem(f"{len(found)} waits for {wanted} match, so name one: {several}")


def _resolve_agent(agent: Agent | str) -> Agent:
    if isinstance(agent, Agent):
        return agent
    try:
        return registry.find(agent)
    except (UnknownAgent, UnknownVersion) as error:
        raise StoryProblem(f"{error.detail} Import its module first.") from None


def _every_tool(agent: Agent, *, is_wide: bool) -> list[Tool]:
    """Return the agent's tools, and those of agents that it may start or hand off to."""
    return [tool for each in (agent, *(registry.agents() if is_wide else ())) for tool in each.all_tools()]


def _caps(budget: Budget | None) -> Caps:
    return UNLIMITED if budget is None else budget.caps()


def _condition_text(**text: str) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in text.items() if value)
    return f" ({values})" if values else ""
