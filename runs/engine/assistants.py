"""Assistants and model turns: data types shared by the loop, the providers and agent definitions."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, TypeAdapter

from runs.engine.errors import DefinitionError
from runs.engine.gating.timing import MAX_WAIT
from runs.engine.secrets import takes_secrets
from runs.engine.tools import Tool, must_be_stable

if TYPE_CHECKING:
    from runs.engine.content.files import Prompt
    from runs.engine.visit import Visit

SCRIPTED = "scripted:"
UNAVAILABLE = "model_unavailable"
# Key in the payload of a wrapped agent's model request: digests of the request's parts, by name.
DIGESTS = "digests"
SMALLEST_WINDOW = 1000
MAX_MODELS = 8
_MODEL = re.compile(r"[A-Za-z0-9_.-]{1,100}:[^\s\x00-\x1f\x7f]{1,200}")


def check_models(where: str, models: Sequence[str]) -> list[str]:
    """Return `models` as a list. Raises DefinitionError if an entry can't be a model's name."""
    if isinstance(models, str) or len(models) > MAX_MODELS or len(set(models)) < len(models):
        raise DefinitionError(f"{where}: give a list of at most {MAX_MODELS} different models")
    for model in models:
        if not isinstance(model, str) or not _MODEL.fullmatch(model):
            raise DefinitionError(f"{where}: {model!r} is not a model: give provider:model, such as openai:gpt-5")
    return list(models)


def _whole(whose: str, name: str, value: Any, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        none = ", or None" if name in ("most_tokens", "window") else ""
        raise DefinitionError(f"{whose}: {name} is {value!r}: give a whole number from {least}{none}")


def _number(whose: str, name: str, value: Any, most: float, *, is_zero_fine: bool = False) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (0 < value < most or (is_zero_fine and 0 <= value <= most)):
        unit = "a number of seconds above 0" if name == "timeout" else f"a number from 0 to {most:g}"
        raise DefinitionError(f"{whose}: {name} is {value!r}: give {unit}")


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of one request that replace the assistant's own tools and typed answer. `tokens` is their size."""

    parameters: Any
    settings: Mapping[str, Any]
    tokens: int


@dataclass(frozen=True)
class Assistant:
    """A model with instructions, tools and a typed answer.

    `name` identifies it in records, `instructions` is its system prompt, `output` is the Pydantic model of its final
    answer; its docstring is shown to the model. `tools` are the tools that it may call, each with its own replay class
    and gate. `offline(messages, info)` is a Pydantic AI `FunctionModel` function that answers when no real model is
    configured; without it such a request fails. `max_turns` (12) limits the requests of one `think`; beyond that, the
    node gets ModelFailure. `timeout` is in seconds (300) for one request to the model; a slower one is retried like any
    outage. `most_tokens` is the maximum length of one answer, passed to the provider (None: the provider's default; a
    budget then reserves 4096).

    `models` are names like `provider:model`; the next one is used when one is unavailable (none: the installation's
    models). A run keeps its first models until a person changes them. `window` is the models' context size in tokens: a
    conversation that nearly fills it is compacted in a recorded step (None: never). `max_repairs` (3) is the number of
    unusable answers in a row that are returned to the model for repair before the node gets ModelFailure. `temperature`
    is sent to the provider if given.

    Raises DefinitionError for a value of the wrong type or out of range.
    """

    name: str
    instructions: str
    output: type[BaseModel]
    tools: Sequence[Tool] = ()
    offline: Callable[..., Any] | None = None
    max_turns: int = 12
    timeout: float = 300.0
    most_tokens: int | None = None
    models: Sequence[str] = ()
    window: int | None = None
    max_repairs: int = 3
    temperature: float | None = None
    # This is set for requests for text, and for requests made by an agent of another library.
    request: Request | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whose = f"assistant {self.name!r}"
        if not isinstance(self.name, str) or not isinstance(self.instructions, str):
            raise DefinitionError(f"{whose}: name and instructions must be strings")
        must_be_stable(f"{whose}, output", self.output)
        for t in self.tools:
            if not isinstance(t, Tool):
                raise DefinitionError(f"{whose}: {t!r} is not a tool: register it with @tool(replay_class=…)")
            if takes_secrets(t.input):
                problem = "takes a secret by reference, so the model could choose any secret"
                raise DefinitionError(f"{whose}: {t.name!r} {problem}: declare it with @tool(secrets=[…]) instead")
        _whole(whose, "max_turns", self.max_turns)
        _whole(whose, "max_repairs", self.max_repairs, least=0)
        if self.most_tokens is not None:
            _whole(whose, "most_tokens", self.most_tokens)
        if self.window is not None:
            _whole(whose, "window", self.window, least=SMALLEST_WINDOW)
        _number(whose, "timeout", self.timeout, MAX_WAIT.total_seconds())
        if self.temperature is not None:
            _number(whose, "temperature", self.temperature, 2.0, is_zero_fine=True)
        for model in check_models(f"{whose}, models", self.models):
            if model.startswith(SCRIPTED):
                raise DefinitionError(f"{whose}, models: {model!r} is reserved for `offline`: name another model")

    def settings(self) -> dict[str, Any]:
        """Return the settings sent to the provider with the messages. They are also recorded."""
        known = {"timeout": self.timeout, "max_tokens": self.most_tokens, "temperature": self.temperature}
        return {name: value for name, value in known.items() if value is not None}

    def described(self) -> dict[str, Any]:
        """Return additional parts for the fingerprint: plain data, in which functions remain objects."""
        return {}

    def asking(self, request: Request) -> Self:
        """Return a copy for a `request` that doesn't come from the assistant's own loop."""
        made = copy.copy(self)
        object.__setattr__(made, "request", request)
        return made

    def own_model(self, name: str) -> Any:
        """Return the assistant's own model object recorded as `name`; None if the installation creates that model."""
        return None

    def tool(self, name: str) -> Tool | None:
        """Return the assistant's tool called `name`; None if there is none."""
        return next((t for t in self.tools if t.name == name), None)


@dataclass(frozen=True)
class WrappedAgent(Assistant):
    """An agent of another library, with its own loop. `agent` is the object passed to `ctx.think`."""

    agent: Any = None

    async def think(self, visit: Visit, slot: str, prompt: Prompt, deps: Any) -> Any:
        """Run the agent with the `prompt` at this slot, and return its output. Raises ModelFailure."""
        raise NotImplementedError


def find_wrapped(assistants: Sequence[Assistant], agent: Any) -> WrappedAgent:
    """Return the assistant that wraps another library's `agent`. Raises DefinitionError if there is none."""
    for assistant in assistants:
        if isinstance(assistant, WrappedAgent) and assistant.agent is agent:
            return assistant
    name = getattr(agent, "name", None) or repr(agent)
    raise DefinitionError(
        f"ctx.think({name}): the agent doesn't declare it: add durable(it, tools={{…}}) to its assistants=[…]"
    )


@dataclass(frozen=True)
class ModelTurn:
    """One answer of a model: the response message as plain data, and its usage."""

    model: str
    response: Any
    tokens_in: int
    tokens_out: int


class ModelRefused(Exception):
    """The provider refused the request permanently. With the code UNAVAILABLE, another model may be used."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@cache
def responses() -> TypeAdapter[Any]:
    """Return the adapter for model responses.

    The adapter is cached, because building it is the most expensive part of a turn.
    """
    from pydantic_ai.messages import ModelResponse

    return TypeAdapter(ModelResponse)
