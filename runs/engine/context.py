"""What a node may do. Everything here is journaled: a replay answers each call from what is on record."""

from __future__ import annotations

import functools
import inspect
import logging
import random as _random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from uuid import UUID, uuid4

from pydantic import BaseModel

from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.amending import Amendment, amendment_of
from runs.engine.assistants import Assistant
from runs.engine.budget import RESOURCES, Budget, Left
from runs.engine.canonical import on_one_line, plain
from runs.engine.content.files import Prompt
from runs.engine.errors import MisusedContext, ToolFailure
from runs.engine.gate import documents as shown
from runs.engine.gate import same
from runs.engine.gate.amounts import Amount, told
from runs.engine.gate.documents import Document
from runs.engine.gate.requirement import Stage
from runs.engine.gate.timing import OnTimeout, Time, WorkingHours, wrong_word
from runs.engine.journal import Batch, Grant, WaitSpec, deadline_in, in_range
from runs.engine.pydantic_agents.declared import AgentAssistant, declared_for
from runs.engine.pydantic_agents.running import think_with_agent
from runs.engine.runtime import log
from runs.engine.steps import forks
from runs.engine.steps.branches import gather
from runs.engine.steps.call import call_tool
from runs.engine.steps.children import child
from runs.engine.steps.gates import decided, must_show_the_same, open_gate, plan_of, required_of
from runs.engine.steps.logical_call import OF_THE_TOOL, AskedUndo
from runs.engine.steps.reads import check_max_age
from runs.engine.steps.signals_and_questions import RAISE, ask, await_message, await_signal
from runs.engine.steps.telling import set_attributes, tell_line, tell_progress
from runs.engine.succession import Said, shortened
from runs.engine.tape import payload_of
from runs.engine.thinking.loop import think
from runs.engine.thinking.question import ask_once
from runs.engine.tools import Evidence, Tool
from runs.engine.visit import Visit

if TYPE_CHECKING:
    from pydantic_ai import Agent as PydanticAgent

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def _seconds(number: float) -> timedelta:
    try:
        return max(timedelta(0), timedelta(seconds=number))
    except (OverflowError, ValueError):
        raise ValueError(f"sleep({number}) is no time that ends") from None


def _noted(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Mark a method that only does something when it is awaited, so that one that never is can be named."""

    @functools.wraps(method)
    def noted(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        context = args[0]
        assert isinstance(context, Context)
        mark = object()

        async def begun() -> T:
            context._not_begun.pop(mark, None)
            try:
                got = await method(*args, **kwargs)
            except Exception:
                context._take_over()
                raise
            context._take_over()
            return got

        call = begun()
        call.__name__, call.__qualname__ = method.__name__, f"Context.{method.__name__}"  # type: ignore[attr-defined]
        context._not_begun[mark] = call
        return call

    return noted


def _step(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Mark a journaled call, so that the visit knows when the node cuts it short, or forgets to await it."""

    @functools.wraps(method)
    async def stepped(*args: P.args, **kwargs: P.kwargs) -> T:
        context = args[0]
        assert isinstance(context, Context)
        with context._visit.step():
            return await method(*args, **kwargs)

    return _noted(stepped)


class Context:
    """What a node may call. Every awaited method is a journaled step, which a replay answers from the journal. Make
    them from the node's own task, one after the other, or through `gather`; a call from any other task raises
    MisusedContext."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._not_begun: dict[object, Coroutine[Any, Any, Any]] = {}
        self._amended: list[tuple[Any, Amendment]] = []  # by what a call gave: how people had changed it

    def _take_over(self) -> None:
        """The node goes on after a call. On its own line it takes over what messages changed while it waited there."""
        changes, places = self._visit.changes, self._visit.places
        if changes and not places.branch.under:
            changes.take_over(places.branch.calls)

    def forgotten(self) -> list[str]:
        """The calls that were made and never awaited, by name: nothing was sent for them, whatever the node believes.
        They are closed."""
        calls = [call for call in self._not_begun.values() if inspect.getcoroutinestate(call) == inspect.CORO_CREATED]
        for call in calls:
            call.close()
        self._not_begun.clear()
        return [getattr(call, "__name__", "call") for call in calls]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._visit.run_id

    @property
    def trace_id(self) -> str:
        """The same over all resumes of the run."""
        return self._visit.trace_id

    @_step
    async def call(
        self,
        tool: Tool,
        args: BaseModel | dict[str, Any],
        *,
        evidence: Sequence[Evidence] = (),
        why: str = "",
        grant: Grant | None = None,
        max_age: timedelta | None = None,
        undo: AskedUndo = OF_THE_TOOL,
        documents: Sequence[Document] = (),
    ) -> Any:
        """Call a `tool` with `args`: its input model, or a mapping that fits it. Returns its output model.

        `evidence`, `why` and `documents` (left out: what its gate makes of `args`) are for whoever must approve the
        call; `grant` is an approval obtained before with
        `approve(tool=…)`. `max_age` is how old a pure tool's answer may be: no older one is taken from the cache, and a
        recorded one that nothing was made of yet is read again. `undo`, one of the agent's `undos`, is how its effect
        is undone where that isn't the tool's own way; None: it stands. Raises ToolFailure (a definite refusal),
        Rejected (its gate was denied), ContentRefused (a hook withheld the arguments), pydantic's ValidationError
        (wrong arguments; nothing is sent).
        """
        slot = self._visit.next_slot()
        check_max_age(tool, max_age)
        checked = args if isinstance(args, tool.input) else tool.input.model_validate(args)
        try:
            outcome = await call_tool(
                self._visit,
                slot,
                tool,
                checked,
                evidence=evidence,
                why=why,
                grant=grant,
                max_age=max_age,
                undo=undo,
                documents=shown.checked(documents),
            )
        except ToolFailure as failure:
            self._note_amendment(slot, failure)
            raise
        self._note_amendment(slot, outcome)
        return outcome

    def amendment(self, outcome: Any) -> Amendment | None:
        """What a person changed of a call before they let it go out; None where nobody did. `outcome` is what the call
        gave, the very object, or the ToolFailure that it raised."""
        return next((amendment for given, amendment in self._amended if given is outcome), None)

    def _note_amendment(self, slot: str, outcome: Any) -> None:
        found = amendment_of(self._visit.tape.slots.get(slot))
        if found is not None:
            self._amended.append((outcome, found))

    @_step
    async def think(
        self,
        assistant: Assistant | PydanticAgent[Any, Any],
        prompt: Prompt,
        *,
        deps: Any = None,
        after: Sequence[Said] = (),
    ) -> Any:
        """Let the `assistant` work on the `prompt`, with its tools, until it gives an `assistant.output`. A prompt is a
        text, or a list of texts and Pydantic AI's files (BinaryContent, ImageUrl and so on). `after` is a
        conversation that it goes on from, such as `await ctx.handed_over()`: it is shown it as data. Raises
        ModelFailure, Rejected (a gate of one of its tools was denied), ContentRefused (a hook withheld the prompt).

        A Pydantic AI agent works as it is, where one of the agent's `assistants` is `durable(it, …)`; `deps` are its
        dependencies, which aren't on record. Returns its output.
        """
        visit, slot = self._visit, self._visit.next_slot()
        known = assistant if isinstance(assistant, Assistant) else declared_for(visit.agent.assistants, assistant)
        if isinstance(known, AgentAssistant):
            if after:
                raise MisusedContext(f"{known.name} is a Pydantic AI agent: put what was said before into its prompt")
            return await think_with_agent(visit, slot, known, prompt, deps)
        if deps is not None:
            raise MisusedContext(f"{known.name} is an Assistant: deps are for Pydantic AI's agents")
        return await think(visit, slot, known, prompt, after)

    @_step
    async def model(self, assistant: Assistant, prompt: Prompt) -> str:
        """Make one request to the `assistant` without tools, with this `prompt`, as `think` takes it; return the text
        of the answer. Raises ModelFailure, ContentRefused (a hook withheld the prompt)."""
        return await ask_once(self._visit, self._visit.next_slot(), assistant, prompt)

    @_step
    async def approve(
        self,
        queue: str,
        *,
        title: str,
        body: BaseModel | dict[str, Any] | None = None,
        tool: Tool | None = None,
        effect: str = "",
        rule: str = "",
        headline: str = "",
        evidence: Sequence[Evidence] = (),
        why: str = "",
        within: timedelta | WorkingHours = timedelta(days=7),
        amount: Amount | None = None,
        quorum: int | None = None,
        then: Sequence[Stage] | None = None,
        on_timeout: OnTimeout | None = None,
        escalate_to: str = "",
        documents: Sequence[Document] = (),
    ) -> Grant:
        """Ask the people of `queue` and wait for their yes. Raises Rejected; Expired, which is one, when `within` (7
        days, or working hours of the queue's calendar) passes and nothing else is said of that (see `Gate`).

        With `tool`, `body` is that tool's input and the grant lets exactly that call through; without, the yes is
        information. `title` heads the question, `effect` says what will happen, `rule` why they are asked, `headline`
        what decides; `evidence` and `why` are shown with it. `amount` is how much it is about, for people who have a
        limit; left out, it is what the tool's own gate says of this body. `quorum` is how many different people of
        `queue` have to say yes, `then` are stages that are asked after that; left out, they are those of the tool's own
        gate where that asks the same queue, and else one yes is enough. `on_timeout` and `escalate_to` say what comes
        when nobody answers, as in `Gate`. `documents` are what is to be signed or paid, shown to them whole: the same
        bytes at each repeat; left out, they are what the tool's own gate makes of this body.
        """
        visit = self._visit
        if problem := wrong_word(time := Time(within, on_timeout, escalate_to)):
            raise ValueError(f"approve({queue!r}): {problem}")
        slot = visit.next_slot()
        if tool is not None and body is not None:
            body = body if isinstance(body, tool.input) else tool.input.model_validate(body)
        arguments = plain(body or {})
        name = tool.name if tool else "approve"
        requested_hash = visit.runtime.hasher({"tool": name, "arguments": arguments})
        required = required_of(queue, tool.gate if tool is not None else None, quorum, then)
        record = visit.recall(slot, name, requested_hash)
        if forks.of(visit) is not None:  # it is taken as approved: nothing can come of it
            return Grant(slot, forks.BY, "", requested_hash, forks.BY, queue, required.pairs)
        given = self._documents_of(tool, body, documents)
        if record.gate is None:
            plan = (
                plan_of(
                    visit,
                    slot,
                    queue=queue,
                    rule=rule or f"{visit.node} asks {queue}",
                    tool=name,
                    arguments=arguments,
                    title=title,
                    effect=effect,
                    headline=headline,
                    evidence=evidence,
                )
                | self._amount_of(tool, body, amount)
                | required.in_plan()
            )
            plan |= same.told_of(tool) | shown.in_plan(given)
            await open_gate(visit, slot, plan, requested_hash=requested_hash, why=why, time=time, contents=given)
        must_show_the_same(visit, slot, record.gate, [each.as_json() for each in given])
        return await decided(visit, slot, record, tool=name, arguments=arguments, why=why, time=time)

    def _amount_of(self, tool: Tool | None, body: Any, amount: Amount | None) -> dict[str, Any]:
        """What a plan says of its amount: nothing where nobody declares one."""
        if amount is not None:
            return {"amount": told(lambda _: amount, body)}
        return tool.gate.amount_for(body) if tool is not None and tool.gate is not None and body is not None else {}

    def _documents_of(self, tool: Tool | None, body: Any, given: Sequence[Document]) -> tuple[Document, ...]:
        """What people are shown. Raises ValueError."""
        if given or tool is None or tool.gate is None or body is None:
            return shown.checked(given)
        return shown.made(tool.gate.documents, body, tool.name)

    @_step
    async def child(
        self,
        agent: Agent | str,
        input: BaseModel | dict[str, Any],
        *,
        budget: Budget | None = None,
        tags: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Start a run of another `agent` (itself, a name, or name@version) with this `input`, and wait for its end
        without holding a worker. Returns its output, as the agent's own model where the agent itself is given.

        What it may use is this `budget`, set aside here (by default all that this run has left); `tags` and
        `attributes` are the child's. It has a page, a journal and a version of its own. Raises ChildFailure where it
        fails or is cancelled, MisusedContext for an unknown agent, an input or attributes that don't fit, and for a run
        too deep below others.
        """
        return await child(
            self._visit, self._visit.next_slot(), agent, input, budget=budget, tags=tags, attributes=attributes or {}
        )

    @_noted
    async def gather(self, *branches: Coroutine[Any, Any, Any], return_exceptions: bool = False) -> list[Any]:
        """Run `branches` at once: calls, or coroutines of your own that make calls on this context. Returns their
        results in order.

        Waits until every branch has finished; then raises the first exception in the branches' order, or, with
        `return_exceptions`, returns exceptions as results. While a branch waits (for a person, a callback, a timer),
        the others go on as far as they can.
        """
        return await gather(self._visit, branches, return_exceptions=return_exceptions)

    @_step
    async def sleep(self, seconds: float | None = None, *, until: datetime | None = None) -> None:
        """Wait without holding a worker: for `seconds`, or `until` an aware datetime. Raises ValueError for a time that
        no calendar holds."""
        visit = self._visit
        if (seconds is None) == (until is None):
            raise TypeError("sleep takes either seconds or until=")
        if until is not None and until.tzinfo is None:
            raise ValueError("sleep(until=…) needs an aware datetime: one with a time zone")
        slot = visit.next_slot()
        record = visit.recall(slot, "sleep", "")
        if forks.of(visit) is not None:
            await forks.passes_by(visit, slot)
            return
        if record.now.waits.get(("timer", 0)) is not None:
            return
        deadline = in_range(until) if until else deadline_in(visit.journal.now(), _seconds(seconds or 0.0))
        wait = WaitSpec(visit.run_id, slot, 0, "timer", 0, deadline, {"title": "Sleep"})
        if not record.now.waits:
            await visit.commit(Batch([wait.opened({"call": "sleep", "hash": ""})], wait=wait))
        visit.park(wait)

    @_step
    async def signal(
        self,
        name: str,
        schema: type[BaseModel] | None = None,
        *,
        within: timedelta = timedelta(days=7),
        or_else: Any = RAISE,
    ) -> Any:
        """Wait for the next signal of a `name` that no call has taken yet; one that came before is kept for this.

        Returns its payload, as a `schema` if one is given (raises BadSignal if it isn't one). When the time `within` (7
        days) runs out: returns `or_else`, or raises TimedOut where there is none.
        """
        return await await_signal(self._visit, self._visit.next_slot(), name, schema, within, or_else)

    @_step
    async def message(self, *names: str, within: timedelta = timedelta(days=7), or_else: Any = RAISE) -> Any:
        """Wait until a message is answered, of one of these `names` (none given: any that the agent takes). Look at the
        state first: what came before this call has been handled.

        Returns which one it was, a `Taken`; the state has what it changed. When the time `within` (7 days) runs out:
        returns `or_else`, or raises TimedOut where there is none.
        """
        return await await_message(self._visit, self._visit.next_slot(), names, within, or_else)

    @_step
    async def ask(
        self,
        of: str,
        *,
        title: str,
        schema: type[M],
        prefilled: BaseModel | dict[str, Any] | None = None,
        within: timedelta = timedelta(days=7),
        or_else: Any = RAISE,
    ) -> M:
        """Ask a person to fill in a form made from `schema`: an operator, or somebody of the role or queue `of`.

        `title` heads the question; `prefilled` is what the form starts with. When the time `within` (7 days) runs out:
        returns `or_else`, or raises TimedOut where there is none.
        """
        slot = self._visit.next_slot()
        answer = await ask(
            self._visit, slot, of, title=title, schema=schema, prefilled=prefilled or {}, within=within, or_else=or_else
        )
        return cast(M, answer)

    @_step
    async def set_attributes(self, **values: Any) -> None:
        """Set what the run is found by to these `values`: `set_attributes(customer="ACME", tags=["late"])`. What isn't
        named stays, None unsets. The names and types are those that the agent declares; raises MisusedContext for any
        other, and sets nothing then."""
        await set_attributes(self._visit, self._visit.next_slot(), values)

    @_noted
    async def now(self) -> datetime:
        """The database's time, the same on every replay."""
        return datetime.fromisoformat(self._value("now", lambda: self._visit.journal.now().isoformat()))

    @_noted
    async def random(self) -> float:
        """A random number from 0 up to 1, the same on every replay."""
        return float(self._value("random", lambda: _random.random()))

    @_noted
    async def uuid(self) -> UUID:
        """A random UUID, the same on every replay."""
        return UUID(self._value("uuid", lambda: str(uuid4())))

    @_noted
    async def budget(self) -> Left:
        """What the run may still use of each resource, as it was at this point: the same on every replay, also when the
        budget was raised meanwhile. Its `usd_micro`, `tokens_in`, `tokens_out`, `model_calls`, `tool_calls` and `steps`
        are None where there is no cap."""
        meter = self._visit.meter
        left = self._value("budget", lambda: asdict(Left.of(meter.caps, meter.used + meter.reserved)))
        return Left(**{name: left.get(name) for name in RESOURCES})

    def transcript(self) -> list[Said]:
        """What was said and done so far in the conversations of this node's visit (each `think`), in order: to be
        handed over with `Handoff`. A long one is cut to its newest lines."""
        return shortened([line for talk in self._visit.talks for line in talk.lines()])

    @_noted
    async def handed_over(self) -> list[Said]:
        """The transcript that the run was handed off with; empty where it was not, or without one. What is in it was
        said by others: pass it to `think(…, after=…)`, which shows it as data."""
        come = await self._visit.look_up(self._visit.journal.origin())
        lines = payload_of(come).get("transcript") or []
        return [Said.model_validate(line) for line in lines]

    def log(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """A line for people: `message`, and `fields` as name=value, of the `level` debug, info, warning or error. It is
        kept with the run, of which the newest 500 are, and stands in the worker's log. Not journaled: a replay adds it
        to the run no second time, a crash may lose the last of them."""
        said = tell_line(self._visit, message, level, fields)
        log.log(logging.getLevelNamesMapping()[level.upper()], "run %s: %s", self.run_id, on_one_line(said))

    def progress(self, done: float, of: float | None = None, note: str = "") -> None:
        """Say how far the run has come: `done` of so many `of` (None: nobody knows), with a `note`. Kept with the run
        as `log` keeps lines, the newest one. Raises ValueError for what is no number, or more than the whole."""
        tell_progress(self._visit, done, of, note)

    def _value(self, what: str, read: Any) -> Any:
        """A value from outside the node: read once, then it rides in the next transaction."""
        slot = self._visit.next_slot()
        record = self._visit.recall(slot, what, "")
        if record.now.result is not None:
            return record.now.result.payload
        value = forks.value(self._visit, slot, what, read)
        event = e.ValueRead(slot=slot, what=what, payload=value)
        self._visit.tape.add(event)
        self._visit.buffer(event)
        return value
