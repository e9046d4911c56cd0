"""Runs a whole Pydantic AI agent in a node: its loop has its own task, but the node's task makes and records all
calls. The loop is replayed from recorded answers, so it must be deterministic; differing requests are named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from ledger import events as e
from ledger.kinds import NO_VALID_ANSWER, TOO_MANY_TURNS
from runs.engine.assistants import Request
from runs.engine.call import call_tool
from runs.engine.canonical import as_json, canonical, plain
from runs.engine.content.files import Prompt, as_data
from runs.engine.errors import (
    ContentRefused,
    DefinitionError,
    MisusedContext,
    Rejected,
    TimedOut,
    ToolFailure,
)
from runs.engine.logical_call import CallSpec
from runs.engine.outcomes import Broken, Unwind, describe_call
from runs.engine.pydantic_agents.declared import AgentAssistant, must_be_declared
from runs.engine.pydantic_agents.recorded import capability_class, model_class
from runs.engine.pydantic_agents.tools import (
    AGAIN,
    LATER,
    NO,
    UNGATED,
    Live,
    about_to_call,
    given,
)
from runs.engine.steps.branches import drive
from runs.engine.steps.signals_and_questions import RAISE, ask, await_signal
from runs.engine.tape import payload_of
from runs.engine.thinking.notes import FROM_PEOPLE, Notes, put_in
from runs.engine.thinking.question import Question
from runs.engine.thinking.sizes import CHARACTERS_A_TOKEN, shown
from runs.engine.tools import Tool
from runs.engine.visit import Branch, Visit

# Iterations of the loop to wait before all calls count as waiting. Anything started later is started when the run
# continues: only the number of waits depends on it.
ROUNDS = 50
DIGESTS = "digests"
_NAMES = {
    "instructions": "its prompts or dynamic instructions",
    "tools": "its tools or its output type, or what prepares them",
    "history": "the messages, or what a history processor makes of them",
    "settings": "its model settings",
}


@dataclass(eq=False)
class Wish:
    """A request of the agent's loop: for a model's answer, or a tool's."""

    work: Callable[[], Awaitable[Any]]
    under: str = ""  # a tool call's path; empty for a model request, which the node makes itself
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


async def think_with_agent(visit: Visit, slot: str, assistant: AgentAssistant, prompt: Prompt, deps: Any) -> Any:
    """Let the agent work until it returns its output. Raises ModelFailure."""
    thinking = Thinking(visit, visit.open_path(slot, "think"), assistant)
    loop = asyncio.create_task(thinking.run(prompt, deps), name=f"agent {assistant.name}")
    try:
        return await thinking.attend(loop)
    finally:
        await thinking.end(loop)


class Thinking:
    """One `think`. Turns are numbered below `path`: `0` is the request, then each call of the answer."""

    def __init__(self, visit: Visit, path: str, assistant: AgentAssistant) -> None:
        self._visit, self._path, self._assistant = visit, path, assistant
        self._turn = 0
        self._places: dict[str, str] = {}  # by tool call of the current turn
        self._wishes: asyncio.Queue[Wish] = asyncio.Queue()
        self._tasks: dict[asyncio.Task[None], tuple[Wish, Branch]] = {}
        self._denials: dict[str, str] = {}
        self._notes = Notes(visit)
        self._told: list[tuple[int, list[str]]] = []  # operators' notes, and the request that includes them

    # --- the agent's own loop, in a task of its own -------------------------------------------------------------------

    async def run(self, prompt: Prompt, deps: Any) -> Any:
        """Run the agent; if it gave up and a person retried the run, continue from there."""
        from pydantic_ai import capture_run_messages
        from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded

        beginning: dict[str, Any] = {"user_prompt": prompt}
        while True:
            with capture_run_messages() as messages:
                try:
                    return await self._run_from(beginning, deps)
                except UsageLimitExceeded as error:
                    code, problem = TOO_MANY_TURNS, f"{self._assistant.name}: {error}"
                except UnexpectedModelBehavior as error:
                    code, problem = NO_VALID_ANSWER, f"{self._assistant.name}: {error}"
            await self._wish(Wish(partial(self._give_up, code, problem)))
            beginning = {"message_history": list(messages)}

    async def _run_from(self, beginning: dict[str, Any], deps: Any) -> Any:
        from pydantic_ai.usage import UsageLimits

        assistant, agent = self._assistant, self._assistant.agent
        model = model_class()(self._ask)
        recorded = capability_class()(model, self._make, self._check, self._denials)
        known = f"{self._visit.run_id}:{self._path}"
        with agent.parallel_tool_call_execution_mode("parallel_ordered_events"):
            ended = await agent.run(
                **beginning,
                deps=deps,
                model=model,
                capabilities=[recorded],
                run_id=f"{known}:{self._turn}" if self._turn else known,
                conversation_id=known,
                usage_limits=UsageLimits(request_limit=assistant.max_turns),
                infer_name=False,
            )
        return ended.output

    async def _ask(self, messages: list[Any], settings: Any, parameters: Any) -> Any:
        return await self._wish(Wish(partial(self._answered, messages, settings, parameters)))

    async def _make(self, live: Live) -> Any:
        from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed

        call_id = live.context.tool_call_id or ""
        place = self._places.get(call_id)
        if place is None:
            problem = f"{self._assistant.name}: {live.name} was not called by the model: a run has no place for it"
            raise MisusedContext(problem)
        try:
            return await self._wish(Wish(partial(self._called, place, live), under=f"{place}/"))
        except ToolFailure as failure:
            if failure.code == AGAIN:
                raise ModelRetry(failure.message) from failure
            if failure.code in (LATER, UNGATED):
                raise DefinitionError(f"{self._assistant.name}: {failure.message}") from failure
            code = "" if failure.code == NO else f"{failure.code}: "
            raise ToolFailed(f"{code}{failure.message}") from failure
        except ContentRefused as kept:
            raise ToolFailed(f"withheld by {kept.hook}: {kept.reason}") from kept
        except TimedOut as late:
            raise ToolFailed(f"nobody answered in time: {late}") from late
        except Rejected as no:
            self._denials[call_id] = f"The tool call was denied by {no.queue}: {no.reason}"
            raise ApprovalRequired from no  # asks the capability, which has the text

    def _check(self, name: str, kind: str) -> None:
        must_be_declared(self._assistant, name, kind)

    async def _wish(self, wish: Wish) -> Any:
        self._wishes.put_nowait(wish)
        return await wish.answer

    # --- the node's task ----------------------------------------------------------------------------------------------

    async def attend(self, loop: asyncio.Task[Any]) -> Any:
        """Serve the agent's loop until it ends or everything it wants must wait."""
        waiting: list[Branch] = []
        wanted: asyncio.Task[Wish] = asyncio.create_task(self._wishes.get())
        try:
            while True:
                if waiting and not self._tasks and await self._is_idle(loop, wanted):
                    self._visit.park(*(wait for branch in waiting for wait in branch.waits))
                with self._visit.step():
                    await asyncio.wait({loop, wanted, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in self._tasks if task.done()]:
                    waiting += self._ended(task)
                if self._visit.has_ended:
                    await self._all_recorded()
                if loop.done():
                    result = loop.result()
                    self._must_be_all()
                    return result
                if wanted.done():
                    wish, wanted = wanted.result(), asyncio.create_task(self._wishes.get())
                    await self._take(wish)
        finally:
            wanted.cancel()

    async def _is_idle(self, loop: asyncio.Task[Any], wanted: asyncio.Task[Wish]) -> bool:
        for _ in range(ROUNDS):
            if loop.done() or wanted.done():
                return False
            await asyncio.sleep(0)
        return True

    async def _take(self, wish: Wish) -> None:
        if wish.under:
            branch = Branch(wish.under)
            self._tasks[asyncio.create_task(drive(self._visit, branch, wish.work))] = wish, branch
            return
        try:
            answer = await wish.work()
        except Exception as error:
            if not wish.answer.done():
                wish.answer.set_exception(error)
            return
        if not wish.answer.done():
            wish.answer.set_result(answer)

    def _ended(self, task: asyncio.Task[None]) -> list[Branch]:
        """Report a finished tool call to the loop; return its branch if it waits."""
        wish, branch = self._tasks.pop(task)
        if task.cancelled():
            raise asyncio.CancelledError
        if (error := task.exception()) is not None:
            raise error
        if branch.waits:
            return [branch]
        if not self._visit.has_ended and not wish.answer.done():
            if branch.error is not None:
                wish.answer.set_exception(branch.error)
            else:
                wish.answer.set_result(branch.result)
        return []

    async def _all_recorded(self) -> NoReturn:
        """Record what is in progress, then stop the visit."""
        if self._tasks:
            with self._visit.step():
                await asyncio.wait(self._tasks)
        raise Unwind

    async def end(self, loop: asyncio.Task[Any]) -> None:
        tasks = [loop, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- a model request ----------------------------------------------------------------------------------------------

    async def _answered(self, messages: list[Any], settings: Any, parameters: Any) -> Any:
        visit, assistant, turn = self._visit, self._assistant, self._turn
        self._turn += 1
        slot, first = visit.places.at(f"{self._path}/{turn}/0"), _first(messages) if turn == 0 else {}
        if told := self._notes.new(slot):
            self._told.append((len(messages) - 1, told))
            first = {**first, FROM_PEOPLE: told}
        messages = put_in(messages, self._told)
        parts = _parts(messages, settings, parameters)
        tokens = len(str(parts["tools"])) // CHARACTERS_A_TOKEN
        request = Request(parameters, dict(settings or {}), tokens)
        digests = {name: visit.runtime.hasher(part) for name, part in parts.items()}
        task = {"assistant": assistant.name, "turn": turn, **digests}
        added = {"assistant": assistant.name, DIGESTS: digests} | first
        request_hash = visit.runtime.hasher(task)
        self._must_be_the_same(slot, request_hash, digests)
        question = Question(visit, slot, assistant.asking(request), messages, self._path, turn, request_hash, added)
        return self._placed(await question.answer(), turn)

    async def _give_up(self, code: str, problem: str) -> None:
        """Record the failure at the next request, so that a retry continues there. Raises ModelFailure."""
        slot = self._visit.places.at(f"{self._path}/{self._turn}/0")
        if self._visit.tape.slot(slot).current:
            return
        question = Question(self._visit, slot, self._assistant, [], self._path, self._turn, "", None)
        if question.is_on_record:
            await question.answer()
        await question.give_up(code, problem)

    def _must_be_the_same(self, slot: str, request_hash: str, digests: dict[str, str]) -> None:
        """Stop if a request differs from the record, naming the parts. Nothing is sent."""
        intent = self._visit.tape.slot(slot).now.intent
        if not isinstance(intent, e.ModelRequested) or intent.request_hash == request_hash:
            return
        before = payload_of(intent).get(DIGESTS, {})
        parts = [words for name, words in _NAMES.items() if before.get(name) != digests[name]]
        problem = (
            f"{self._assistant.name}: this request is another one than on record. What differs: "
            f"{'; '.join(parts) or 'who asks'}. What an agent does between two answers must be the same each time: "
            "take the time from ctx.now() and what changes from the node, by deps"
        )
        recorded, now = describe_call("model", intent.request_hash), describe_call("model", request_hash)
        payload = {"slot": slot, "recorded": recorded, "now": now, "problem": problem}
        self._visit.stop(Broken("non_determinism", payload))

    def _must_be_all(self) -> None:
        """Stop if the agent ended before all recorded turns were replayed."""
        slot = self._visit.places.at(f"{self._path}/{self._turn}/0")
        intent = self._visit.tape.slot(slot).now.intent
        if isinstance(intent, e.ModelRequested):
            problem = (
                f"{self._assistant.name}: it gave its output before the turns on record are all told. An output "
                "validator, or what decides when it is done, must say the same each time"
            )
            recorded, now = describe_call("model", intent.request_hash), describe_call("nothing")
            payload = {"slot": slot, "recorded": recorded, "now": now, "problem": problem}
            self._visit.stop(Broken("non_determinism", payload))

    def _placed(self, response: Any, turn: int) -> Any:
        self._places = {
            part.tool_call_id: f"{self._path}/{turn}/{n}" for n, part in enumerate(response.tool_calls, start=1)
        }
        return response

    # --- a tool call --------------------------------------------------------------------------------------------------

    async def _called(self, place: str, live: Live) -> Any:
        visit, slot = self._visit, self._visit.places.at(place)
        arguments = _recordable(self._assistant.name, live)
        tool = self._assistant.tool(live.name)
        if tool is None:
            return await self._from_outside(slot, place, live.name, arguments)
        with about_to_call(replace(live, context=_told(live.context, tool, arguments))):
            args = tool.input.model_validate(arguments)
            answer = await call_tool(visit, slot, CallSpec(tool, args, source="model", name=self._assistant.name))
        whole = given(answer)  # type: ignore[arg-type]
        return whole if answer.whole is not None else shown(whole, None)  # type: ignore[attr-defined]

    async def _from_outside(self, slot: str, place: str, name: str, arguments: Any) -> Any:
        visit, outside = self._visit, self._assistant.outside[name]
        if outside.schema is not None:
            title = f"{name}: {', '.join(f'{k}={v}' for k, v in arguments.items())}"[:200]
            answer = await ask(
                visit,
                slot,
                outside.ask,
                title=title,
                schema=outside.schema,
                prefilled={},
                within=outside.within,
                or_else=RAISE,
            )
            return plain(answer)
        called = "".join(c if c.isalnum() else "_" for c in name.lower()).strip("_")[:40]
        return await await_signal(visit, slot, f"{called}.{place.replace('/', '-')}", None, outside.within, RAISE)


def _recordable(name: str, live: Live) -> Any:
    """Return the arguments to record; the model is told of bad values, the author of types JSON can't hold."""
    from pydantic_ai.exceptions import ModelRetry

    try:
        arguments = plain(as_json(live.arguments))
        canonical(arguments)
        return arguments
    except ValueError as error:
        if isinstance(error.__cause__, TypeError):
            raise DefinitionError(f"{name}: the arguments of {live.name}: {error}") from error
        raise ModelRetry(f"The arguments can't be used: {error}") from error


def _told(context: Any, tool: Tool, arguments: Any) -> Any:
    """Return the tool's context, including whether a person approved the call."""
    is_asked = tool.gate is not None and tool.gate.is_needed(tool.input.model_validate(arguments))
    return replace(context, tool_call_approved=is_asked or context.tool_call_approved)


def _parts(messages: list[Any], settings: Any, parameters: Any) -> dict[str, Any]:
    """Return a request's parts without times and generated ids, so that processes can compare them."""
    said, instructions = [], None
    for message in messages:
        instructions = getattr(message, "instructions", None) or instructions
        said.append([_part(part) for part in message.parts])
    tools = [
        [t.name, t.description, t.parameters_json_schema, t.kind, t.strict]
        for t in (*parameters.function_tools, *parameters.output_tools)
    ]
    output = [parameters.output_mode, parameters.allow_text_output]
    return {
        "instructions": instructions or "",
        "tools": [tools, output],
        "history": said,
        "settings": {name: str(value) for name, value in sorted((settings or {}).items())},
    }


def _part(part: Any) -> list[Any]:
    fields = ("content", "args", "tool_name", "tool_call_id", "outcome")
    return [part.part_kind, *(_data(getattr(part, name, None)) for name in fields)]


def _data(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    data = to_jsonable_python(value, fallback=repr)
    try:
        canonical(data)
    except ValueError:  # such as a 64-bit number
        return repr(data)
    return data


def _first(messages: list[Any]) -> dict[str, Any]:
    parts = [part for message in messages for part in message.parts]
    instructions = [getattr(message, "instructions", None) for message in messages]
    system = [part.content for part in parts if part.part_kind == "system-prompt"]
    user = [part.content for part in parts if part.part_kind == "user-prompt"]
    return {
        "instructions": "\n\n".join([*system, *(text for text in instructions if text)]),
        "prompt": "\n\n".join(user) if all(isinstance(each, str) for each in user) else _together(user),
    }


def _together(prompts: list[Any]) -> Any:
    return as_data([each for prompt in prompts for each in ([prompt] if isinstance(prompt, str) else prompt)])
