"""The engine's own LLM loop: model → tools → model …, every turn and every tool call a step.

Messages are Pydantic AI's types, so any of its providers serves; a recorded turn is never asked again. A turn's request adds only
what no other event holds (the prompt, or a correction): tool results are read back from their own events.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from ledger import events as e
from runs.engine.branches import fork
from runs.engine.calls import call_tool
from runs.engine.canonical import plain
from runs.engine.dispatch import brief, opened_event, story
from runs.engine.errors import DefinitionError, ModelFailure, NotSent, Rejected, ToolFailure, TransportError
from runs.engine.journal import Usage, WaitSpec
from runs.engine.outcomes import Crashed
from runs.engine.tape import Attempt, payload_of
from runs.engine.tools import FINAL, LONGEST, Tool, must_be_stable
from runs.engine.visit import Visit, is_being_cancelled


@dataclass(frozen=True)
class Assistant:
    """Who thinks: instructions, the tools it may use, and the model of its answer.

    `offline(messages, info)` is a Pydantic AI `FunctionModel` function that answers when no real model is configured. `timeout` is in
    seconds, for one request to the model; one that takes longer is asked again as after any outage.
    """

    name: str
    instructions: str
    output: type[BaseModel]
    tools: Sequence[Tool] = ()
    offline: Callable[..., Any] | None = None
    max_turns: int = 12
    timeout: float = 300.0

    def __post_init__(self) -> None:
        whose = f"assistant {self.name!r}"
        if not isinstance(self.name, str) or not isinstance(self.instructions, str):
            raise DefinitionError(f"{whose}: name and instructions are texts")
        must_be_stable(f"{whose}, output", self.output)
        for t in self.tools:
            if not isinstance(t, Tool):
                raise DefinitionError(f"{whose}: {t!r} is not a tool: register it with @tool(replay_class=…)")
        if isinstance(self.max_turns, bool) or not isinstance(self.max_turns, int) or self.max_turns < 1:
            raise DefinitionError(f"{whose}: max_turns is {self.max_turns!r}: give a whole number from 1")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, (int, float)) or not 0 < self.timeout < LONGEST.total_seconds():
            raise DefinitionError(f"{whose}: timeout is {self.timeout!r}: give seconds, more than none")

    def tool(self, name: str) -> Tool | None:
        """The assistant's tool of that name."""
        return next((t for t in self.tools if t.name == name), None)


@dataclass(frozen=True)
class ModelTurn:
    """One answer of a model: the response message as plain data, and what it used."""

    model: str
    response: Any
    tokens_in: int
    tokens_out: int


class ModelRefused(Exception):
    """The provider refused the request for good."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def think(visit: Visit, slot: str, assistant: Assistant, prompt: str) -> BaseModel:
    """Run the loop until the model gives a valid final result. Raises ModelFailure, Rejected (a gate in the loop was denied)."""
    from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

    path = visit.open_path(slot, "think")
    asked = {
        "assistant": assistant.name,
        "instructions": assistant.instructions,
        "prompt": prompt,
        "tools": [t.name for t in assistant.tools],
    }
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content=prompt)], instructions=assistant.instructions)
    ]
    for turn in range(assistant.max_turns):
        added = (
            {"instructions": assistant.instructions, "prompt": prompt, "assistant": assistant.name}
            if turn == 0
            else None
        )
        request_hash = visit.runtime.hasher({**asked, "turn": turn})
        response = await ask_model(
            visit, visit.slot_at(f"{path}/{turn}/0"), assistant, messages, path, turn, request_hash, added
        )
        messages.append(response)
        result, parts = await _act(visit, f"{path}/{turn}", assistant, response)
        if result is not None:
            return result
        messages.append(ModelRequest(parts=parts, instructions=assistant.instructions))
    raise ModelFailure("too_many_turns", f"{assistant.name} gave no final result in {assistant.max_turns} turns")


async def _act(visit: Visit, path: str, assistant: Assistant, response: Any) -> tuple[BaseModel | None, list[Any]]:
    """Make the calls that a turn asks for. A valid final result ends the loop, after the calls before it; what can't be done goes
    back as text, in the order of the request."""
    from pydantic_ai.messages import RetryFeedbackPart, RetryInfo, ToolCallPart, ToolReturnPart

    asked: list[ToolCallPart] = []
    result = None
    for part in (p for p in response.parts if isinstance(p, ToolCallPart)):
        result = _final(assistant, part)
        if result is not None:
            break
        asked.append(part)
    answers = await _make(visit, path, assistant, asked)
    if result is not None:
        return result, []
    parts: list[Any] = [
        ToolReturnPart(part.tool_name, content, part.tool_call_id, outcome=outcome)  # type: ignore[arg-type]
        for part, (content, outcome) in zip(asked, answers, strict=True)
    ]
    return None, parts or [RetryFeedbackPart(f"End by calling {FINAL}.", retry=RetryInfo("no_output"))]


def _final(assistant: Assistant, part: Any) -> BaseModel | None:
    """The loop's result, if this is the call that gives one and what it gives fits."""
    given = _read(assistant.output, part) if part.tool_name == FINAL else None
    return given if isinstance(given, BaseModel) else None


async def _make(visit: Visit, path: str, assistant: Assistant, asked: Sequence[Any]) -> list[tuple[Any, str]]:
    """All calls of a turn at once, or one after the other where one of their tools says so."""
    used = [assistant.tool(part.tool_name) for part in asked]
    works = [(f"{path}/{i}", part) for i, part in enumerate(asked, start=1)]
    if len(works) < 2 or any(tool is not None and tool.sequential for tool in used):
        return [await _use(visit, visit.slot_at(place), assistant, part) for place, part in works]
    branches = await fork(
        visit, [(f"{place}/", _use(visit, visit.slot_at(place), assistant, part)) for place, part in works]
    )
    for branch in branches:
        if branch.error is not None:
            raise branch.error
    return [branch.result for branch in branches]


async def _use(visit: Visit, slot: str, assistant: Assistant, part: Any) -> tuple[Any, str]:
    """One tool call of a turn: what goes back to the model, and how that is to be read."""
    if part.tool_name == FINAL:
        return _read(assistant.output, part), "retried"  # in words: one that fits has ended the loop
    tool = assistant.tool(part.tool_name)
    if tool is None:
        return (
            f"There is no tool {part.tool_name!r}. Tools: {', '.join(t.name for t in assistant.tools) or 'none'}.",
            "retried",
        )
    args = _read(tool.input, part)
    if isinstance(args, str):
        return args, "retried"
    try:
        return plain(await call_tool(visit, slot, tool, args)), "success"
    except ToolFailure as failure:
        return {"failed": failure.code, "message": failure.message}, "failed"
    except Rejected as denied:
        return {"rejected_by": denied.queue, "reason": denied.reason}, "denied"


async def ask_model(
    visit: Visit,
    slot: str,
    assistant: Assistant,
    messages: list[Any],
    conversation: str,
    turn: int,
    request_hash: str,
    added: Any,
) -> Any:
    """One model request: replayed if it is on record, else made, with its intent before and its response after."""
    record = visit.remember(slot, "model", request_hash)
    past, attempt = record.now, record.current
    whole = f"{visit.slot_at(conversation)}"
    match past.result:
        case e.ModelResponded():
            return responses().validate_python(payload_of(past.result)["response"])
        case e.ModelFailed():
            raise ModelFailure(past.result.code, payload_of(past.result).get("message", ""))
    waiting = past.open_wait("timer")
    if waiting is not None:
        raise visit.park(WaitSpec(visit.run_id, slot, attempt, "timer", waiting, visit.journal.now()))
    if past.intent is None:
        asked = e.ModelRequested(
            slot=slot,
            attempt=attempt,
            conversation=whole,
            turn=turn,
            model=assistant.name,
            request_hash=request_hash,
            payload=added,
        )
        await visit.intend(asked)
    else:
        visit.check_stop()
    given = await _request(visit, slot, attempt, past, assistant, messages, whole, turn)
    event = e.ModelResponded(
        slot=slot, attempt=attempt, conversation=whole, turn=turn, tokens_in=given.tokens_in, tokens_out=given.tokens_out,
        payload={"model": given.model, "response": given.response},
    )  # fmt: skip
    reply = await visit.record(
        event, usage=Usage(steps=1, model_calls=1, tokens_in=given.tokens_in, tokens_out=given.tokens_out)
    )
    visit.runtime.hit("CP6", "model")
    visit.boundary(reply)
    return responses().validate_python(given.response)


@cache
def responses() -> TypeAdapter[Any]:
    """Reads and writes a model's response. Kept: to make one costs more than anything else that this engine does in a turn."""
    from pydantic_ai.messages import ModelResponse

    return TypeAdapter(ModelResponse)


async def _request(
    visit: Visit,
    slot: str,
    attempt: int,
    past: Attempt,
    assistant: Assistant,
    messages: list[Any],
    conversation: str,
    turn: int,
) -> ModelTurn:
    """Ask until there is an answer; an outage of the provider parks the run on a timer and never fails it."""
    policy, tries, began = visit.runtime.retry, 0, time.monotonic()
    while True:
        tries += 1
        try:
            visit.runtime.hit("CP2", "model")
            given = await visit.interruptible(_in_time(assistant, visit.runtime.request_model(assistant, messages)))
            visit.runtime.hit("CP4", "model")
            plain(given.response)  # what can't be put on record would be asked for again and again
            return given
        except ModelRefused as refusal:
            event = e.ModelFailed(
                slot=slot,
                attempt=attempt,
                conversation=conversation,
                turn=turn,
                code=refusal.code,
                payload={"message": str(refusal)},
            )
            visit.boundary(await visit.record(event, usage=Usage(steps=1, model_calls=1)))
            raise ModelFailure(refusal.code, str(refusal)) from refusal
        except (NotSent, TransportError, TimeoutError) as error:
            trouble = error
        except (Exception, asyncio.CancelledError) as bug:
            if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
                raise
            raise visit.unwind(Crashed("model_error", f"{assistant.name}: {brief(bug)}", story(bug))) from bug
        delay = policy.delay(tries, asked=getattr(trouble, "retry_after", None))
        if policy.is_over(time.monotonic() - began + delay, past.waits_of("timer")):
            raise await _try_later(visit, slot, attempt, past, trouble)
        await visit.rest(delay)


async def _in_time(assistant: Assistant, asking: Coroutine[Any, Any, ModelTurn]) -> ModelTurn:
    """A provider that neither answers nor hangs up is an outage, whatever its own client thinks of it."""
    try:
        async with asyncio.timeout(assistant.timeout):
            return await asking
    except TimeoutError as error:
        raise TransportError(f"{assistant.name}: no answer from the model within {assistant.timeout:g} s") from error


async def _try_later(visit: Visit, slot: str, attempt: int, past: Attempt, trouble: Exception) -> BaseException:
    """The outage lasts: free the worker slot and come back by a durable timer."""
    n = past.waits_of("timer")
    seconds = visit.runtime.retry.timer(n, asked=getattr(trouble, "retry_after", None))
    deadline = visit.journal.now() + timedelta(seconds=seconds)
    detail = {"tool": "model", "title": "Model request", "retry": n + 1, "error": brief(trouble)}
    wait = WaitSpec(visit.run_id, slot, attempt, "timer", n, deadline, detail)
    await visit.record(opened_event(wait, {"error": story(trouble)}), wait=wait)
    return visit.park(wait)


def _arguments(part: Any) -> Any:
    """A tool call's arguments as data; what isn't JSON is passed on as it is, to fail validation by name."""
    if not isinstance(part.args, str):
        return part.args or {}
    try:
        return json.loads(part.args)
    except ValueError:
        return part.args


def _read(wanted: type[BaseModel], part: Any) -> BaseModel | str:
    """A tool call's arguments, or what is wrong with them, in words a model can act on."""
    try:
        return wanted.model_validate(_arguments(part))
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, p['loc'])) or 'value'}: {p['msg']}" for p in error.errors())[:2000]
