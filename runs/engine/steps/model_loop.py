"""The engine's own LLM loop: model → tools → model …, every turn and every tool call a step.

Messages are Pydantic AI's types, so any of its providers serves; a recorded turn is never asked again. A turn's request
adds only what no other event holds (the prompt, or a correction): tool results are read back from their own events.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine.assistants import Assistant, ModelRefused, ModelTurn, responses
from runs.engine.budget.amounts import Usage
from runs.engine.budget.prices import Route
from runs.engine.canonical import plain
from runs.engine.errors import (
    ModelFailure,
    NotServed,
    Passing,
    Rejected,
    ToolFailure,
    TransportError,
    brief,
    traceback_of,
)
from runs.engine.journal import Batch, WaitSpec
from runs.engine.outcomes import Broken, Crashed
from runs.engine.places import path_of
from runs.engine.runtime import is_being_cancelled
from runs.engine.steps.branches import fork
from runs.engine.steps.call import call_tool
from runs.engine.steps.retry import attempts, park_for_retry
from runs.engine.steps.spending import debit, lost, wanted_by
from runs.engine.tape import Attempt, payload_of
from runs.engine.tools import FINAL
from runs.engine.visit import Visit

T = TypeVar("T")
# What is set aside for an answer whose length nobody limits, in tokens; and of what is asked, characters for a token:
# fewer than there mostly are, so that it is rather too much.
USUAL_ANSWER = 4096
PRICE_REST_SECONDS = 0.5
CHARACTERS_A_TOKEN = 3


async def think(visit: Visit, slot: str, assistant: Assistant, prompt: str) -> BaseModel:
    """Run the loop until the model gives a valid final result. Raises ModelFailure, Rejected (a gate in the loop was
    denied)."""
    from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

    path = visit.open_path(slot, "think")
    task = {
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
        request_hash = visit.runtime.hasher({**task, "turn": turn})
        place = visit.places.at(f"{path}/{turn}/0")
        response = await _Question(visit, place, assistant, messages, path, turn, request_hash, added).answer()
        messages.append(response)
        result, parts = await _act(visit, f"{path}/{turn}", assistant, response)
        if result is not None:
            return result
        messages.append(ModelRequest(parts=parts, instructions=assistant.instructions))
    raise ModelFailure("too_many_turns", f"{assistant.name} gave no final result in {assistant.max_turns} turns")


async def _act(visit: Visit, path: str, assistant: Assistant, response: Any) -> tuple[BaseModel | None, list[Any]]:
    """Make the calls that a turn asks for. A valid final result ends the loop, after the calls before it; what can't be
    done goes back as text, in the order of the request."""
    from pydantic_ai.messages import RetryFeedbackPart, RetryInfo, ToolCallPart, ToolReturnPart

    calls: list[ToolCallPart] = []
    result = None
    for part in (p for p in response.parts if isinstance(p, ToolCallPart)):
        result = _final(assistant, part)
        if result is not None:
            break
        calls.append(part)
    answers = await _make(visit, path, assistant, calls)
    if result is not None:
        return result, []
    parts: list[Any] = [
        ToolReturnPart(part.tool_name, content, part.tool_call_id, outcome=outcome)  # type: ignore[arg-type]
        for part, (content, outcome) in zip(calls, answers, strict=True)
    ]
    return None, parts or [RetryFeedbackPart(f"End by calling {FINAL}.", retry=RetryInfo("no_output"))]


def _final(assistant: Assistant, part: Any) -> BaseModel | None:
    """The loop's result, if this is the call that gives one and what it gives fits."""
    given = _read(assistant.output, part) if part.tool_name == FINAL else None
    return given if isinstance(given, BaseModel) else None


async def _make(visit: Visit, path: str, assistant: Assistant, calls: Sequence[Any]) -> list[tuple[Any, str]]:
    """All calls of a turn at once, or one after the other where one of their tools says so."""
    used = [assistant.tool(part.tool_name) for part in calls]
    works = [(f"{path}/{i}", part) for i, part in enumerate(calls, start=1)]
    if len(works) < 2 or any(tool is not None and tool.sequential for tool in used):
        return [await _use(visit, visit.places.at(place), assistant, part) for place, part in works]
    branches = await fork(
        visit, [(f"{place}/", _use(visit, visit.places.at(place), assistant, part)) for place, part in works]
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


async def ask_once(visit: Visit, slot: str, assistant: Assistant, prompt: str) -> str:
    """One request without tools; the text of the answer. Raises ModelFailure."""
    from pydantic_ai.messages import ModelRequest, TextPart, UserPromptPart

    task = {"assistant": assistant.name, "instructions": assistant.instructions, "prompt": prompt}
    request = ModelRequest(parts=[UserPromptPart(content=prompt)], instructions=assistant.instructions)
    question = _Question(visit, slot, assistant, [request], path_of(slot), 0, visit.runtime.hasher(task), task)
    response = await question.answer()
    return "".join(p.content for p in response.parts if isinstance(p, TextPart))


class _Question:
    """One model request: replayed if it is on record, else made, with its intent before and its response after."""

    def __init__(
        self, visit: Visit, slot: str, assistant: Assistant, messages: list[Any],
        conversation: str, turn: int, request_hash: str, added: Any,
    ) -> None:  # fmt: skip
        self.visit, self.slot, self.assistant, self.messages, self.turn = visit, slot, assistant, messages, turn
        self.conversation = visit.places.at(conversation)
        self.request_hash, self.added = request_hash, added
        record = visit.recall(slot, "model", request_hash)
        self.past: Attempt = record.now
        self.attempt = record.current
        self.sent: e.ModelRouted | None = None  # the request under way, and what is set aside for it
        self.route: Route | None = None

    async def answer(self) -> Any:
        """The model's response. Raises ModelFailure."""
        visit, past = self.visit, self.past
        match past.result:
            case e.ModelResponded():
                return responses().validate_python(payload_of(past.result)["response"])
            case e.ModelFailed():
                raise ModelFailure(past.result.code, payload_of(past.result).get("message", ""))
        waiting = past.open_wait("timer")
        if waiting is not None:
            visit.park(WaitSpec(visit.run_id, self.slot, self.attempt, "timer", waiting, visit.journal.now()))
        if past.route is not None:
            await self._lose(past.route)
        given = await attempts(visit, self._try, past, self._come_back_later)
        return await self._record(given)

    async def _intend(self) -> e.ModelRouted:
        """Put on record that the request goes out, to which model, and what is set aside for the answer."""
        visit, past = self.visit, self.past
        route = await self._routed()
        tokens_in = tokens_of(self.messages) + _tokens_of_tools(self.assistant)
        tokens_out = self.assistant.most_tokens or USUAL_ANSWER
        event = e.ModelRouted(
            slot=self.slot, attempt=self.attempt, n=past.routes, model=route.model, price=route.version,
            tokens_in=tokens_in, tokens_out=tokens_out, usd_micro=route.cost(tokens_in, tokens_out),
        )  # fmt: skip
        visit.check_stop()
        if event.usd_micro is None and visit.meter.caps.usd_micro is not None:
            problem = f"the run has a cap in dollars, and {route.model} has no price: put one in, then retry"
            visit.stop(Broken("no_price", {"model": route.model, "problem": problem}))
        visit.afford(self.slot, self.attempt, wanted_by(event), is_reserved=True)
        events: list[e.Event] = [event]
        if past.intent is None:
            past.intent = e.ModelRequested(
                slot=self.slot, attempt=self.attempt, conversation=self.conversation, turn=self.turn,
                model=self.assistant.name, request_hash=self.request_hash, payload=self.added,
            )  # fmt: skip
            events.insert(0, past.intent)
        await visit.commit(Batch(events, is_intent=True))
        past.routes += 1
        self.route = route
        return event

    async def _routed(self) -> Route:
        """Where it goes, and what that costs. A price that was put in a moment ago may not have come here yet: under a
        cap in dollars it is waited for, before anybody is asked for it."""
        visit, until = self.visit, time.monotonic() + self.visit.runtime.price_patience
        while True:
            route = visit.runtime.route(self.assistant)
            is_needed = visit.meter.caps.usd_micro is not None and route.price is None
            if not is_needed or time.monotonic() >= until:
                return route
            await visit.rest(PRICE_REST_SECONDS)

    async def _lose(self, sent: e.ModelRouted) -> None:
        """A request whose answer nobody will hear may have been paid for: it stands on record with what was set
        aside."""
        await self.visit.commit(Batch([lost(sent)]))
        self.sent = self.past.route = None

    async def _try(self, number: int) -> ModelTurn:
        """One request; an outage of the provider is tried again, and never fails the run."""
        visit = self.visit
        if self.sent is None:
            self.sent = await self._intend()
        try:
            visit.runtime.hit("CP2", "model")
            given = await _unless_cancelled(visit, self._in_time())
            visit.runtime.hit("CP4", "model")
            plain(given.response)  # what can't be put on record would be asked for again and again
            return given
        except ModelRefused as refusal:
            await self._refused(refusal)
        except Passing as trouble:
            if not isinstance(trouble, NotServed):
                await self._lose(self.sent)
            raise
        except (Exception, asyncio.CancelledError) as bug:
            if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
                raise
            visit.stop(Crashed("model_error", f"{self.assistant.name}: {brief(bug)}", traceback_of(bug)))

    async def _in_time(self) -> ModelTurn:
        """A provider that neither answers nor hangs up is an outage, whatever its own client thinks of it."""
        limit, name = self.assistant.timeout, self.assistant.name
        try:
            async with asyncio.timeout(limit):
                return await self.visit.runtime.request_model(self.assistant, self.messages)
        except TimeoutError as error:
            raise TransportError(f"{name}: no answer from the model within {limit:g} s") from error

    async def _refused(self, refusal: ModelRefused) -> NoReturn:
        event = e.ModelFailed(
            slot=self.slot, attempt=self.attempt, conversation=self.conversation, turn=self.turn, code=refusal.code,
            payload={"message": str(refusal)},
        )  # fmt: skip
        batch = Batch([event, self._debit(0, 0)], usage=Usage(steps=1))
        self.visit.boundary(await self.visit.commit(batch))
        raise ModelFailure(refusal.code, str(refusal)) from refusal

    def _debit(self, tokens_in: int, tokens_out: int, *, model_calls: int = 1) -> e.BudgetDebited:
        """What the request under way used."""
        assert self.sent is not None and self.route is not None
        cost = self.route.cost(tokens_in, tokens_out)
        return debit(self.sent, model_calls=model_calls, tokens_in=tokens_in, tokens_out=tokens_out, usd_micro=cost)

    async def _come_back_later(self, trouble: Exception) -> NoReturn:
        if self.sent is not None:  # nobody served it: what was set aside for it is free again
            await self.visit.commit(Batch([self._debit(0, 0, model_calls=0)]))
        await park_for_retry(
            self.visit, self.slot, self.past, trouble,
            attempt=self.attempt, tool="model", title="Model request", call={},
        )  # fmt: skip

    async def _record(self, given: ModelTurn) -> Any:
        event = e.ModelResponded(
            slot=self.slot, attempt=self.attempt, conversation=self.conversation, turn=self.turn,
            tokens_in=given.tokens_in, tokens_out=given.tokens_out,
            payload={"model": given.model, "response": given.response},
        )  # fmt: skip
        batch = Batch([event, self._debit(given.tokens_in, given.tokens_out)], usage=Usage(steps=1))
        reply = await self.visit.commit(batch)
        self.visit.runtime.hit("CP6", "model")
        self.visit.boundary(reply)
        return responses().validate_python(given.response)


async def _unless_cancelled(visit: Visit, asking: Coroutine[Any, Any, T]) -> T:
    """Await something that has no effect; a cancel of the run doesn't wait for its answer."""
    answer = asyncio.ensure_future(asking)
    cancelled = asyncio.ensure_future(visit.control.cancelled.wait())
    try:
        await asyncio.wait({answer, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            visit.check_stop()
        return await answer
    finally:
        answer.cancel()
        cancelled.cancel()


def tokens_of(messages: Sequence[Any]) -> int:
    """About how many tokens a conversation has: what is set aside for it, before the provider has counted."""
    characters = 0
    for message in messages:
        characters += len(getattr(message, "instructions", None) or "")
        for part in message.parts:
            characters += len(str(getattr(part, "content", "") or getattr(part, "args", "") or ""))
    return characters // CHARACTERS_A_TOKEN + 1


def _tokens_of_tools(assistant: Assistant) -> int:
    """About how many tokens its tools and its answer's type take in each request: their schemas go with it."""
    known = _TOOLS.get(id(assistant))
    if known is None or known[0] is not assistant:
        models = [assistant.output, *(tool.input for tool in assistant.tools)]
        texts = [json.dumps(model.model_json_schema()) for model in models]
        texts += [tool.description or tool.title for tool in assistant.tools]
        known = _TOOLS[id(assistant)] = assistant, sum(map(len, texts)) // CHARACTERS_A_TOKEN
    return known[1]


_TOOLS: dict[int, tuple[Assistant, int]] = {}


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
