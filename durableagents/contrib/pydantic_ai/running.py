"""Runs a Pydantic AI agent in a node.

The agent's loop runs in a task of its own; the node's task makes and records all calls. A replay repeats the loop with
recorded answers, so the loop must be deterministic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from durableagents.contrib.pydantic_ai.tools import (
    GATE_UNDECLARED,
    LATER_UNDECLARED,
    MODEL_RETRY,
    TOOL_FAILED,
    LiveCall,
    from_record,
    set_live_call,
)
from durableagents.contrib.pydantic_ai.wrappers import capability_class, model_class
from ledger import events as e
from ledger.kinds import NO_VALID_ANSWER, TOO_MANY_TURNS
from runs.engine.assistants import DIGESTS, Request
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
from runs.engine.steps.branches import drive
from runs.engine.steps.signals_and_questions import RAISE, ask, await_signal
from runs.engine.tape import payload_of
from runs.engine.thinking.notes import FROM_PEOPLE, Notes, put_in
from runs.engine.thinking.question import Question
from runs.engine.thinking.sizes import CHARACTERS_A_TOKEN, fit_answer
from runs.engine.tools import Tool
from runs.engine.visit import Branch, Visit

if TYPE_CHECKING:
    from durableagents.contrib.pydantic_ai.declaring import PydanticAssistant

# If no call has progressed after this many iterations of the event loop, all calls count as waiting, and the run parks.
# A call that would have started later starts when the run continues, so the limit only affects how often the run parks.
IDLE_ROUNDS = 50
_NAMES = {
    "instructions": "its prompts or dynamic instructions",
    "tools": "its tools, its output type, or functions that prepare them",
    "history": "the messages, or a history processor that changes them",
    "settings": "its model settings",
}


@dataclass(eq=False)
class LoopRequest:
    """A request from the agent's loop to the node's task, for the answer of a model or a tool."""

    work: Callable[[], Awaitable[Any]]
    under: str = ""  # the path of a tool call; empty for a model request, which the node's task makes without a branch
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class AgentLoop:
    """One call of `think`.

    Each turn has a number below `path`. In a turn, `0` is the model request, and `1`, `2` and so on are the tool calls
    that the model's answer contains."""

    def __init__(self, visit: Visit, path: str, assistant: PydanticAssistant) -> None:
        self._visit, self._path, self._assistant = visit, path, assistant
        self._turn = 0
        self._places: dict[str, str] = {}  # path of each tool call of the current turn
        self._requests: asyncio.Queue[LoopRequest] = asyncio.Queue()
        self._tasks: dict[asyncio.Task[None], tuple[LoopRequest, Branch]] = {}
        self._denials: dict[str, str] = {}
        self._notes = Notes(visit)
        # operators' notes, each with the number of the message before it
        self._shown_notes: list[tuple[int, list[str]]] = []

    async def complete(self, prompt: Prompt, deps: Any) -> Any:
        """Let the agent work until it returns its output. Raises ModelFailure."""
        loop = asyncio.create_task(self._run(prompt, deps), name=f"agent {self._assistant.name}")
        try:
            return await self._serve(loop)
        finally:
            await self._end(loop)

    # --- the agent's own loop, in a task of its own -------------------------------------------------------------------

    async def _run(self, prompt: Prompt, deps: Any) -> Any:
        """Run the agent. If it gives up and a person retries the run, continue after that point."""
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
            await self._send(LoopRequest(partial(self._give_up, code, problem)))
            beginning = {"message_history": list(messages)}

    async def _run_from(self, beginning: dict[str, Any], deps: Any) -> Any:
        from pydantic_ai.usage import UsageLimits

        assistant, agent = self._assistant, self._assistant.agent
        model = model_class()(self._ask)
        capability = capability_class()(model, self._make_call, self._assistant.check_tool, self._denials)
        own_id = f"{self._visit.run_id}:{self._path}"
        with agent.parallel_tool_call_execution_mode("parallel_ordered_events"):
            result = await agent.run(
                **beginning,
                deps=deps,
                model=model,
                capabilities=[capability],
                run_id=f"{own_id}:{self._turn}" if self._turn else own_id,
                conversation_id=own_id,
                usage_limits=UsageLimits(request_limit=assistant.max_turns),
                infer_name=False,
            )
        return result.output

    async def _ask(self, messages: list[Any], settings: Any, parameters: Any) -> Any:
        return await self._send(LoopRequest(partial(self._request_model, messages, settings, parameters)))

    async def _make_call(self, live: LiveCall) -> Any:
        from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed

        call_id = live.context.tool_call_id or ""
        place = self._places.get(call_id)
        if place is None:
            problem = f"{self._assistant.name}: {live.name} was not called by the model, so the run can't record it"
            raise MisusedContext(problem)
        try:
            return await self._send(LoopRequest(partial(self._call_tool, place, live), under=f"{place}/"))
        except ToolFailure as failure:
            if failure.code == MODEL_RETRY:
                raise ModelRetry(failure.message) from failure
            if failure.code in (LATER_UNDECLARED, GATE_UNDECLARED):
                raise DefinitionError(f"{self._assistant.name}: {failure.message}") from failure
            code = "" if failure.code == TOOL_FAILED else f"{failure.code}: "
            raise ToolFailed(f"{code}{failure.message}") from failure
        except ContentRefused as refusal:
            raise ToolFailed(f"withheld by {refusal.hook}: {refusal.reason}") from refusal
        except TimedOut as error:
            raise ToolFailed(f"nobody answered in time: {error}") from error
        except Rejected as rejection:
            self._denials[call_id] = f"The tool call was denied by {rejection.queue}: {rejection.reason}"
            raise ApprovalRequired from rejection  # the capability handles it and has the text

    async def _send(self, request: LoopRequest) -> Any:
        self._requests.put_nowait(request)
        return await request.answer

    # --- the node's task ----------------------------------------------------------------------------------------------

    async def _serve(self, loop: asyncio.Task[Any]) -> Any:
        """Answer the loop's requests until the loop ends, or park once all of them wait."""
        waiting: list[Branch] = []
        incoming: asyncio.Task[LoopRequest] = asyncio.create_task(self._requests.get())
        try:
            while True:
                if waiting and not self._tasks and await self._is_idle(loop, incoming):
                    self._visit.park(*(wait for branch in waiting for wait in branch.waits))
                with self._visit.step():
                    await asyncio.wait({loop, incoming, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in self._tasks if task.done()]:
                    waiting += self._finish(task)
                if self._visit.has_ended:
                    await self._stop_when_recorded()
                if loop.done():
                    result = loop.result()
                    self._check_all_replayed()
                    return result
                if incoming.done():
                    request, incoming = incoming.result(), asyncio.create_task(self._requests.get())
                    await self._serve_one(request)
        finally:
            incoming.cancel()

    async def _is_idle(self, loop: asyncio.Task[Any], incoming: asyncio.Task[LoopRequest]) -> bool:
        for _ in range(IDLE_ROUNDS):
            if loop.done() or incoming.done():
                return False
            await asyncio.sleep(0)
        return True

    async def _serve_one(self, request: LoopRequest) -> None:
        if request.under:
            branch = Branch(request.under)
            self._tasks[asyncio.create_task(drive(self._visit, branch, request.work))] = request, branch
            return
        try:
            answer = await request.work()
        except Exception as error:
            if not request.answer.done():
                request.answer.set_exception(error)
            return
        if not request.answer.done():
            request.answer.set_result(answer)

    def _finish(self, task: asyncio.Task[None]) -> list[Branch]:
        """Pass the result of a finished tool call to the loop; if the call is still waiting, return its branch."""
        request, branch = self._tasks.pop(task)
        if task.cancelled():
            raise asyncio.CancelledError
        if (error := task.exception()) is not None:
            raise error
        if branch.waits:
            return [branch]
        if not self._visit.has_ended and not request.answer.done():
            if branch.error is not None:
                request.answer.set_exception(branch.error)
            else:
                request.answer.set_result(branch.result)
        return []

    async def _stop_when_recorded(self) -> NoReturn:
        """Wait until the calls in progress are recorded, then end the visit."""
        if self._tasks:
            with self._visit.step():
                await asyncio.wait(self._tasks)
        raise Unwind

    async def _end(self, loop: asyncio.Task[Any]) -> None:
        """Cancel all tasks and wait for their end."""
        tasks = [loop, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- a model request ----------------------------------------------------------------------------------------------

    async def _request_model(self, messages: list[Any], settings: Any, parameters: Any) -> Any:
        visit, assistant, turn = self._visit, self._assistant, self._turn
        self._turn += 1
        slot, first = visit.places.at(f"{self._path}/{turn}/0"), _first_prompt(messages) if turn == 0 else {}
        if notes := self._notes.new(slot):
            self._shown_notes.append((len(messages) - 1, notes))
            first = {**first, FROM_PEOPLE: notes}
        messages = put_in(messages, self._shown_notes)
        parts = _request_parts(messages, settings, parameters)
        tokens = len(str(parts["tools"])) // CHARACTERS_A_TOKEN
        request = Request(parameters, dict(settings or {}), tokens)
        digests = {name: visit.runtime.hasher(part) for name, part in parts.items()}
        payload = {"assistant": assistant.name, DIGESTS: digests} | first
        request_hash = visit.runtime.hasher({"assistant": assistant.name, "turn": turn, **digests})
        self._check_same_request(slot, request_hash, digests)
        question = Question(visit, slot, assistant.asking(request), messages, self._path, turn, request_hash, payload)
        return self._keep_places(await question.answer(), turn)

    async def _give_up(self, code: str, problem: str) -> None:
        """Record the failure in place of the next request, so that a retry continues from there.

        Raises ModelFailure."""
        slot = self._visit.places.at(f"{self._path}/{self._turn}/0")
        if self._visit.tape.slot(slot).current:
            return
        question = Question(self._visit, slot, self._assistant, [], self._path, self._turn, "", None)
        if question.is_on_record:
            await question.answer()
        await question.give_up(code, problem)

    def _check_same_request(self, slot: str, request_hash: str, digests: dict[str, str]) -> None:
        """Stop the run if a request differs from the recorded one, and name the parts that differ.

        The request is not sent."""
        intent = self._visit.tape.slot(slot).now.intent
        if not isinstance(intent, e.ModelRequested) or intent.request_hash == request_hash:
            return
        before = payload_of(intent).get(DIGESTS, {})
        parts = [words for name, words in _NAMES.items() if before.get(name) != digests[name]]
        problem = (
            f"{self._assistant.name}: this request differs from the recorded one. Differences: "
            f"{'; '.join(parts) or 'the assistant'}. An agent's steps between two answers must be the "
            "same each time: take the time from ctx.now(), and pass changing values from the node in deps"
        )
        recorded, now = describe_call("model", intent.request_hash), describe_call("model", request_hash)
        payload = {"slot": slot, "recorded": recorded, "now": now, "problem": problem}
        self._visit.stop(Broken("non_determinism", payload))

    def _check_all_replayed(self) -> None:
        """Stop the run if the agent returned its output before all recorded turns were replayed."""
        slot = self._visit.places.at(f"{self._path}/{self._turn}/0")
        intent = self._visit.tape.slot(slot).now.intent
        if isinstance(intent, e.ModelRequested):
            problem = (
                f"{self._assistant.name}: it returned its output before all recorded turns were replayed. An output "
                "validator, or code that decides when it is done, must decide the same each time"
            )
            recorded, now = describe_call("model", intent.request_hash), describe_call("nothing")
            payload = {"slot": slot, "recorded": recorded, "now": now, "problem": problem}
            self._visit.stop(Broken("non_determinism", payload))

    def _keep_places(self, response: Any, turn: int) -> Any:
        self._places = {
            part.tool_call_id: f"{self._path}/{turn}/{n}" for n, part in enumerate(response.tool_calls, start=1)
        }
        return response

    # --- a tool call --------------------------------------------------------------------------------------------------

    async def _call_tool(self, place: str, live: LiveCall) -> Any:
        visit, slot = self._visit, self._visit.places.at(place)
        arguments = _recordable_arguments(self._assistant.name, live)
        tool = self._assistant.tool(live.name)
        if tool is None:
            return await self._answer_from_outside(slot, place, live.name, arguments)
        with set_live_call(replace(live, context=_with_approval(live.context, tool, arguments))):
            args = tool.input.model_validate(arguments)
            answer = await call_tool(visit, slot, CallSpec(tool, args, source="model", name=self._assistant.name))
        whole = from_record(answer)  # type: ignore[arg-type]
        return whole if answer.whole is not None else fit_answer(whole, None)  # type: ignore[attr-defined]

    async def _answer_from_outside(self, slot: str, place: str, name: str, arguments: Any) -> Any:
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
        signal = "".join(c if c.isalnum() else "_" for c in name.lower()).strip("_")[:40]
        return await await_signal(visit, slot, f"{signal}.{place.replace('/', '-')}", None, outside.within, RAISE)


def _recordable_arguments(name: str, live: LiveCall) -> Any:
    """Return the arguments in recordable form.

    Raises ModelRetry for bad values, DefinitionError for types unknown to JSON."""
    from pydantic_ai.exceptions import ModelRetry

    try:
        arguments = plain(as_json(live.arguments))
        canonical(arguments)
        return arguments
    except ValueError as error:
        if isinstance(error.__cause__, TypeError):
            raise DefinitionError(f"{name}: the arguments of {live.name}: {error}") from error
        raise ModelRetry(f"The arguments can't be used: {error}") from error


def _with_approval(context: Any, tool: Tool, arguments: Any) -> Any:
    """Return the tool's context, in which `tool_call_approved` says whether a person approved the call."""
    was_approved = tool.gate is not None and tool.gate.is_needed(tool.input.model_validate(arguments))
    return replace(context, tool_call_approved=was_approved or context.tool_call_approved)


def _request_parts(messages: list[Any], settings: Any, parameters: Any) -> dict[str, Any]:
    """Return the parts of a request without times and generated ids, so that they are the same in all processes."""
    history, instructions = [], None
    for message in messages:
        instructions = getattr(message, "instructions", None) or instructions
        history.append([_part(part) for part in message.parts])
    tools = [
        [t.name, t.description, t.parameters_json_schema, t.kind, t.strict]
        for t in (*parameters.function_tools, *parameters.output_tools)
    ]
    output = [parameters.output_mode, parameters.allow_text_output]
    return {
        "instructions": instructions or "",
        "tools": [tools, output],
        "history": history,
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
    except ValueError:  # for example a number of more than 64 bits
        return repr(data)
    return data


def _first_prompt(messages: list[Any]) -> dict[str, Any]:
    parts = [part for message in messages for part in message.parts]
    instructions = [getattr(message, "instructions", None) for message in messages]
    system = [part.content for part in parts if part.part_kind == "system-prompt"]
    user = [part.content for part in parts if part.part_kind == "user-prompt"]
    return {
        "instructions": "\n\n".join([*system, *(text for text in instructions if text)]),
        "prompt": "\n\n".join(user) if all(isinstance(each, str) for each in user) else _join(user),
    }


def _join(prompts: list[Any]) -> Any:
    return as_data([each for prompt in prompts for each in ([prompt] if isinstance(prompt, str) else prompt)])
