"""The context passed to nodes. Every call is journaled, and a replay answers it from the journal."""

from __future__ import annotations

import asyncio
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
from runs.engine.assistants import Assistant, WrappedAgent, find_wrapped
from runs.engine.budget import RESOURCES, Budget, Remaining
from runs.engine.call import call_tool
from runs.engine.canonical import on_one_line, plain
from runs.engine.content.files import Prompt
from runs.engine.continuation import Said, shortened
from runs.engine.errors import MisusedContext, ToolFailure
from runs.engine.gate import (
    GateRequest,
    check_documents_unchanged,
    grant_from_decision,
    open_gate,
    plan_of,
    required_of,
)
from runs.engine.gating import documents as shown
from runs.engine.gating.documents import Document
from runs.engine.gating.fields import SAME, Amount, amount_entry
from runs.engine.gating.stages import Stage
from runs.engine.gating.timing import OnTimeout, Time, WorkingHours, wrong_word
from runs.engine.journal import Batch, Grant, WaitSpec, deadline_in, in_range
from runs.engine.logical_call import OF_THE_TOOL, AskedUndo, CallSpec
from runs.engine.runtime import log
from runs.engine.steps.branches import gather
from runs.engine.steps.children import child
from runs.engine.steps.reads import check_max_age
from runs.engine.steps.signals_and_questions import RAISE, ask, await_message, await_signal
from runs.engine.steps.telling import set_attributes, tell_line, tell_progress
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
        raise ValueError(f"sleep({number}) is not a finite time") from None


def _noted(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Track a method's call until it is awaited, so that calls without `await` are reported."""
    return _tracked(method, is_step=False)


def _step(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Mark a journaled call, so that the visit notices if the node cancels it or forgets to await it."""
    return _tracked(method, is_step=True)


def _tracked(method: Callable[P, Awaitable[T]], *, is_step: bool) -> Callable[P, Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    def tracked(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        context = args[0]
        assert isinstance(context, Context)
        mark = object()

        async def begun() -> T:
            context._not_begun.pop(mark, None)
            try:
                got = await method(*args, **kwargs)
            except asyncio.CancelledError:
                if is_step:
                    context._visit.cut()
                raise
            except Exception:
                context._take_over()
                raise
            context._take_over()
            return got

        call = begun()
        call.__name__, call.__qualname__ = method.__name__, f"Context.{method.__name__}"  # type: ignore[attr-defined]
        context._not_begun[mark] = call
        return call

    return tracked


class Context:
    """The calls that a node may make. Each awaited method is a journaled step; a replay answers it from the journal.
    Call them from the node's own task, one after the other, or through `gather`; a call from any other task raises
    MisusedContext."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._not_begun: dict[object, Coroutine[Any, Any, Any]] = {}
        self._amended: list[tuple[Any, Amendment]] = []  # results of calls, each with the call's amendment

    def _take_over(self) -> None:
        """Apply changes that messages made during a call, if the node continues on its main branch."""
        changes, places = self._visit.changes, self._visit.places
        if changes is not None and (changes.ahead or changes.is_watched) and not places.branch.under:
            changes.take_over(places.branch.calls)

    def forgotten(self) -> list[str]:
        """Close the calls that were never awaited, and return their names. Nothing was sent for them."""
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
        """The trace id. The id stays the same when the run is resumed."""
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
        """Call a `tool` with `args`, its input model or a mapping with its fields, and return its output model.
        `evidence`, `why` and `documents` (default: those that its gate creates from `args`) are shown to those who
        approve the call; `grant` is an approval obtained earlier with `approve(tool=…)`. `max_age` limits the age of a
        pure tool's answer: older cache entries are ignored, and an older recorded answer is read again unless the run
        already continued from it. `undo`, one of the agent's `undos`, replaces the tool's own undo; None: the effect
        can't be undone. Raises ToolFailure (a definite refusal), Rejected (its gate was denied), ContentRefused (a hook
        withheld the arguments), pydantic's ValidationError (wrong arguments; nothing is sent)."""
        visit = self._visit
        slot = visit.next_slot()
        if max_age is not None:
            check_max_age(tool, max_age)
        checked = args if isinstance(args, tool.input) else tool.input.model_validate(args)
        given = shown.checked(documents) if documents else ()
        spec = CallSpec(tool, checked, evidence, why, grant, max_age, undo, documents=given)
        try:
            outcome = await call_tool(visit, slot, spec)
        except ToolFailure as failure:
            self._note_amendment(slot, failure)
            raise
        if visit.tape.slots[slot].amended:
            self._note_amendment(slot, outcome)
        return outcome

    def amendment(self, outcome: Any) -> Amendment | None:
        """Return what a person changed in a call before it was sent; None if nothing was changed.

        `outcome` must be the same object that the call returned, or the ToolFailure that it raised.
        """
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
        """Let the `assistant` work on the `prompt`, with its tools, and return its final answer, an `assistant.output`.
        A prompt is a text, or a list of texts and Pydantic AI's files (BinaryContent, ImageUrl and so on). `after` is
        an earlier conversation, such as `await ctx.handed_over()`, which is shown to it as data. `assistant` may also
        be a Pydantic AI agent that one of the agent's `assistants` wraps with `durable(…)`; `deps` are its
        dependencies, which aren't recorded, and the output of the wrapped agent is returned. Raises ModelFailure,
        Rejected (a gate of one of its tools was denied), ContentRefused (a hook withheld the prompt)."""
        visit, slot = self._visit, self._visit.next_slot()
        known = assistant if isinstance(assistant, Assistant) else find_wrapped(visit.agent.assistants, assistant)
        if isinstance(known, WrappedAgent):
            if after:
                raise MisusedContext(
                    f"{known.name} is an agent of another library: put the earlier conversation into its prompt"
                )
            return await known.think(visit, slot, prompt, deps)
        if deps is not None:
            raise MisusedContext(f"{known.name} is an Assistant: deps are for Pydantic AI's agents")
        return await think(visit, slot, known, prompt, after)

    @_step
    async def model(self, assistant: Assistant, prompt: Prompt) -> str:
        """Make one request to the `assistant` without tools and return the text of the answer.

        `prompt` is as in `think`. Raises ModelFailure, ContentRefused (a hook withheld the prompt).
        """
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
        """Ask the people of `queue` for approval and wait. Raises Rejected, or its subclass Expired after `within`.
        `within` (7 days, or working hours of the queue's calendar) is the deadline; `on_timeout` and `escalate_to`
        determine what happens then, as in `Gate`. With `tool`, `body` is that tool's input and the grant permits
        exactly that call; without it, the approval is only information. `title` is the question's heading, `effect`
        tells what will happen, `rule` why people are asked, and `headline` is the decisive fact; `evidence` and `why`
        are shown with it. `amount` is the amount at stake, for approvers with a limit (default: as declared by the
        tool's own gate). `quorum` is the number of different people of `queue` who must approve, and `then` lists the
        stages after that; the default is the requirement of the tool's own gate if that asks the same queue, otherwise
        one approval. `documents` are shown in full, such as what is to be signed or paid; they must have the same bytes
        at each replay (default: those that the tool's own gate creates from this body)."""
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
        given = self._documents_of(tool, body, documents)
        request = GateRequest(requested_hash, why, time)
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
            if tool is not None and tool.gate is not None and tool.gate.same:
                plan[SAME] = list(tool.gate.same)
            await open_gate(visit, slot, plan | shown.in_plan(given), request, contents=given)
        check_documents_unchanged(visit, slot, record.gate, [each.as_json() for each in given])
        return await grant_from_decision(visit, slot, record, request, tool=name, arguments=arguments)

    def _amount_of(self, tool: Tool | None, body: Any, amount: Amount | None) -> dict[str, Any]:
        """Return the plan's entry for the amount; empty if no amount is declared."""
        if amount is not None:
            return {"amount": amount_entry(lambda _: amount, body)}
        return tool.gate.amount_for(body) if tool is not None and tool.gate is not None and body is not None else {}

    def _documents_of(self, tool: Tool | None, body: Any, given: Sequence[Document]) -> tuple[Document, ...]:
        if given or tool is None or tool.gate is None or body is None:
            return shown.checked(given)
        return shown.build_documents(tool.gate.documents, body, tool.name)

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
        """Start a run of another `agent` with this `input`, and wait for its end without occupying a worker.

        `agent` is an agent, a name, or name@version. Returns its output, as an instance of the agent's `output` if the
        agent object is given. `budget` is reserved from this run's budget (default: all that is left); `tags` and
        `attributes` are set on the child. The child has its own page, journal and version. Raises ChildFailure if it
        fails or is cancelled, MisusedContext for an unknown agent, for input or attributes that don't fit, and if runs
        are nested too deeply.
        """
        return await child(
            self._visit, self._visit.next_slot(), agent, input, budget=budget, tags=tags, attributes=attributes or {}
        )

    @_noted
    async def gather(self, *branches: Coroutine[Any, Any, Any], return_exceptions: bool = False) -> list[Any]:
        """Run `branches` concurrently: calls, or coroutines of your own that make calls.

        Returns their results in order. Waits until every branch has finished; then raises the first exception in the
        branches' order, or, with `return_exceptions`, returns exceptions as results. While a branch waits (for a
        person, a callback, a timer), the others continue as far as they can.
        """
        return await gather(self._visit, branches, return_exceptions=return_exceptions)

    @_step
    async def sleep(self, seconds: float | None = None, *, until: datetime | None = None) -> None:
        """Wait for `seconds`, or `until` an aware datetime, without occupying a worker.

        Raises ValueError if out of range.
        """
        visit = self._visit
        if (seconds is None) == (until is None):
            raise TypeError("sleep takes either seconds or until=")
        if until is not None and until.tzinfo is None:
            raise ValueError("sleep(until=…) needs a datetime with a time zone")
        slot = visit.next_slot()
        record = visit.recall(slot, "sleep", "")
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
        """Wait for the next signal called `name` that no other call has received, and return its payload.

        Signals sent earlier are kept until a call receives them. With a `schema` the payload is parsed; raises
        BadSignal if it doesn't fit. After the time `within` (7 days): returns `or_else`, or raises TimedOut if there is
        none.
        """
        return await await_signal(self._visit, self._visit.next_slot(), name, schema, within, or_else)

    @_step
    async def message(self, *names: str, within: timedelta = timedelta(days=7), or_else: Any = RAISE) -> Any:
        """Wait until a message with one of these `names` is answered (default: any that the agent accepts).

        Check the state first, because earlier messages have already been handled. Returns the message as a `Taken`; its
        changes are already in the state. After the time `within` (7 days): returns `or_else`, or raises TimedOut if
        there is none.
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
        """Ask a person to fill in a form made from `schema`, and return the answer as a `schema` object.

        `of` is the name of the role that may answer, such as `"operator"`, or of an approval queue, whose approvers may
        answer, such as `"finance"`; operators always may. `title` is the question's heading; `prefilled` are the form's
        initial values. After the time `within` (7 days): returns `or_else`, or raises TimedOut if there is none.

            answer = await ctx.ask("operator", title="When may we come?", schema=Visit, prefilled={"day": "monday"})
        """
        slot = self._visit.next_slot()
        answer = await ask(
            self._visit, slot, of, title=title, schema=schema, prefilled=prefilled or {}, within=within, or_else=or_else
        )
        return cast(M, answer)

    @_step
    async def set_attributes(self, **values: Any) -> None:
        """Set search attributes to these `values`: `set_attributes(customer="ACME", tags=["late"])`.

        Others are kept; None removes an attribute. Raises MisusedContext, and sets nothing, for names or types that the
        agent doesn't declare.
        """
        await set_attributes(self._visit, self._visit.next_slot(), values)

    @_noted
    async def now(self) -> datetime:
        """Return the database's time. Every replay returns the same value."""
        return datetime.fromisoformat(self._value("now", lambda: self._visit.journal.now().isoformat()))

    @_noted
    async def random(self) -> float:
        """Return a random number from 0 up to 1. Every replay returns the same value."""
        return float(self._value("random", lambda: _random.random()))

    @_noted
    async def uuid(self) -> UUID:
        """Return a random UUID. Every replay returns the same value."""
        return UUID(self._value("uuid", lambda: str(uuid4())))

    @_noted
    async def budget(self) -> Remaining:
        """Return what the run may still use of each resource.

        Replays get the same values even after the budget is raised. `usd_micro`, `tokens_in`, `tokens_out`,
        `model_calls`, `tool_calls` and `steps` are None if there is no cap.
        """
        meter = self._visit.meter
        left = self._value("budget", lambda: asdict(Remaining.of(meter.caps, meter.used + meter.reserved)))
        return Remaining(**{name: left.get(name) for name in RESOURCES})

    def transcript(self) -> list[Said]:
        """Return the lines of this visit's conversations (one for each `think`), in order, to be passed on with
        `Handoff`.

        A long transcript is shortened to its newest lines.
        """
        return shortened([line for talk in self._visit.talks for line in talk.lines()])

    @_noted
    async def handed_over(self) -> list[Said]:
        """Return the transcript that was handed over to this run; empty if there is none.

        It was written by others, so pass it to `think(…, after=…)`, which shows it to the model as data.
        """
        come = await self._visit.look_up(self._visit.journal.origin())
        lines = payload_of(come).get("transcript") or []
        return [Said.model_validate(line) for line in lines]

    def log(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """Log a line for people: `message`, then `fields` as name=value.

        `level` is debug, info, warning or error. The run keeps its newest 500 lines; the worker's log has all of them.
        Lines aren't journaled: a replay does not add them again, and a crash may lose the latest ones.
        """
        text = tell_line(self._visit, message, level, fields)
        log.log(logging.getLevelNamesMapping()[level.upper()], "run %s: %s", self.run_id, on_one_line(text))

    def progress(self, done: float, of: float | None = None, note: str = "") -> None:
        """Report progress: `done` out of `of` (None: unknown), with a `note`. The run keeps the newest report.

        Raises ValueError if a value is not a number, or if `done` exceeds `of`.
        """
        tell_progress(self._visit, done, of, note)

    def _value(self, what: str, read: Any) -> Any:
        """Return a value from outside the node. The value is read once and recorded with the next transaction."""
        slot = self._visit.next_slot()
        record = self._visit.recall(slot, what, "")
        if record.now.result is not None:
            return record.now.result.payload
        value = read()
        event = e.ValueRead(slot=slot, what=what, payload=value)
        self._visit.tape.add(event)
        self._visit.buffer(event)
        return value
