"""Scripted models, which answer in place of a story's real ones. No request is ever sent to a provider."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from durableagents.testing.clock import Stopped
from ledger import events as e
from runs.engine.assistants import SCRIPTED, Assistant, ModelTurn, responses
from runs.engine.thinking.request import request_model
from runs.engine.tools import FINAL

Turn = Any  # One turn: a ModelResponse, a model response as plain data, a text, or an error of the request.
Script = Sequence[Turn] | Callable[..., Any]
_ids = itertools.count(1)


def calls(tool: str, **arguments: Any) -> Any:
    """Return a model's turn that makes one call of this `tool` with these `arguments`.

    For several calls in one turn, use `together(calls(…), calls(…))`.
    """
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    return ModelResponse(parts=[ToolCallPart(tool, arguments, tool_call_id=f"call-{next(_ids)}")])


def answers(**fields: Any) -> Any:
    """Return a model's turn with the assistant's final answer, whose output has these `fields`."""
    return calls(FINAL, **fields)


def says(text: str) -> Any:
    """Return a model's turn that consists of `text` only, for `ctx.model`."""
    from pydantic_ai.messages import ModelResponse, TextPart

    return ModelResponse(parts=[TextPart(content=text)])


def together(*turns: Any) -> Any:
    """Return one turn with the parts of several `turns`, for concurrent calls."""
    from pydantic_ai.messages import ModelResponse

    return ModelResponse(parts=[part for turn in turns for part in turn.parts])


class Minds:
    """The assistants of a story by name. Each has a list of turns, or a function of (messages, info).

    An assistant without a script uses its own `offline` function.
    """

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self._turns: dict[str, list[Turn]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, script in scripts.items():
            if callable(script):
                self._functions[name] = script
            else:
                self._turns[name] = list(script)
        self._cursor: dict[str, int] = {}
        self.asked: list[tuple[str, Any]] = []  # the assistant and the prompt that was sent

    def begin(self, runs: Iterable[Sequence[e.Event]]) -> None:
        """Find the position in each script from the journals, so that recorded turns aren't repeated."""
        self._cursor = {}
        for events in runs:
            whose = {(x.slot, x.attempt): x.model for x in events if isinstance(x, e.ModelRequested)}
            for x in (x for x in events if isinstance(x, e.ModelResponded)):
                name = whose.get((x.slot, x.attempt), "")
                self._cursor[name] = self._cursor.get(name, 0) + 1

    async def request(self, assistant: Assistant, messages: list[Any], model: str = SCRIPTED, *_: Any) -> ModelTurn:
        """Answer a request in place of the provider."""
        self.asked.append((assistant.name, messages))
        if assistant.name in self._turns:
            return _as_turn(assistant, self._next(assistant.name))
        if assistant.name in self._functions:
            own = copy.copy(assistant)
            object.__setattr__(own, "offline", self._functions[assistant.name])
            object.__setattr__(own, "request", assistant.request)
            return await request_model(own, messages, f"{SCRIPTED}{assistant.name}")
        own_model = assistant.own_model(f"{SCRIPTED}{assistant.name}")
        if assistant.offline is None and own_model is None:
            raise Stopped(
                f"assistant {assistant.name!r} is asked and has nothing to say: "
                f"give models={{{assistant.name!r}: [turns]}}"
            )
        return await request_model(assistant, messages, f"{SCRIPTED}{assistant.name}")

    def _next(self, name: str) -> Turn:
        turns, at = self._turns[name], self._cursor.get(name, 0)
        if at >= len(turns):
            raise Stopped(f"assistant {name!r} is asked for its turn number {at + 1}, and its script has {len(turns)}")
        turn = turns[at]
        if isinstance(turn, BaseException):
            del turns[at]  # errors are raised once and not recorded
            raise turn
        self._cursor[name] = at + 1
        return turn


def _as_turn(assistant: Assistant, turn: Turn) -> ModelTurn:
    if isinstance(turn, str):
        turn = says(turn)
    if inspect.isfunction(turn):
        raise Stopped(f"a turn of {assistant.name!r} is a function: give the function itself as its script")
    response = turn if isinstance(turn, Mapping) else responses().dump_python(turn, mode="json")
    used = response.get("usage") or {}
    size = len(json.dumps(response, default=str))
    return ModelTurn(
        f"{SCRIPTED}{assistant.name}",
        dict(response),
        used.get("input_tokens") or 0,
        used.get("output_tokens") or size // 4,
    )
