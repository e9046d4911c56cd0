"""Who thinks, and what one request to a model gives: plain data that the loop, the provider and an agent's definition
share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from runs.engine.errors import DefinitionError
from runs.engine.tools import LONGEST, Tool, must_be_stable


@dataclass(frozen=True)
class Assistant:
    """Who thinks: a model with instructions, tools and a typed answer.

    `name` is what the record calls it, `instructions` its system prompt, `output` the Pydantic model of its final
    answer, whose docstring tells the model what is wanted. `tools` are those it may call, each with its own replay
    class and gate. `offline(messages, info)` is a Pydantic AI `FunctionModel` function that answers when no real model
    is configured; without it such a request fails. `max_turns` (12) bounds the requests of one `think`; beyond it the
    node gets ModelFailure. `timeout` is in seconds (300), for one request to the model; one that takes longer is asked
    again as after any outage. `most_tokens` is the most that one answer may have, which the provider is told
    (None: what the provider thinks fit, and a budget sets aside 4096 for it).

    Raises DefinitionError for what is no text, model, tool, or positive number.
    """

    name: str
    instructions: str
    output: type[BaseModel]
    tools: Sequence[Tool] = ()
    offline: Callable[..., Any] | None = None
    max_turns: int = 12
    timeout: float = 300.0
    most_tokens: int | None = None

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
        most = self.most_tokens
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise DefinitionError(f"{whose}: most_tokens is {most!r}: give a whole number from 1, or None")
        if (
            isinstance(self.timeout, bool)
            or not isinstance(self.timeout, (int, float))
            or not 0 < self.timeout < LONGEST.total_seconds()
        ):
            raise DefinitionError(f"{whose}: timeout is {self.timeout!r}: give seconds, more than none")

    def tool(self, name: str) -> Tool | None:
        """The assistant's tool of that `name`; None for any other."""
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


@cache
def responses() -> TypeAdapter[Any]:
    """Reads and writes a model's response. Kept: to make one costs more than anything else that this engine does in a
    turn."""
    from pydantic_ai.messages import ModelResponse

    return TypeAdapter(ModelResponse)
