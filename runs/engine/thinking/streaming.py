"""A model's answer as it comes, told to those who watch the run. What is recorded is the whole answer, as without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runs.engine.errors import TransportError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

Hear = Callable[[str], None]
# Pydantic AI gives a stream that ended without a finish reason this one, as some providers never send any.
_ASSUMED = "stop"


def is_scripted(model: Model) -> bool:
    """Whether a model is a function of the author's or a test's, and no provider's."""
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    while hasattr(model, "wrapped"):
        model = model.wrapped
    return isinstance(model, (FunctionModel, TestModel))


def only_streams(model: Model) -> bool:
    """Whether it is a scripted model that gives its answers in pieces and no other way."""
    from pydantic_ai.models.function import FunctionModel

    return isinstance(model, FunctionModel) and model.function is None


def can_stream(model: Model) -> bool:
    """Whether it is worth asking a model for its answer in pieces."""
    from pydantic_ai.models.function import FunctionModel

    return not isinstance(model, FunctionModel) or model.stream_function is not None


async def streamed(model: Model, messages: list[Any], hear: Hear | None, **how: Any) -> ModelResponse:
    """Ask `model`, and tell `hear` the answer's text as it comes.

    Raises what the model's client raises, NotImplementedError for a model that doesn't stream, and TransportError where
    the stream ended before the answer did: half an answer is none.
    """
    from pydantic_ai.direct import model_request_stream

    async with model_request_stream(model, messages, **how) as stream:
        async for event in stream:
            said = _said(event)
            if said and hear is not None:
                hear(said)
        response = stream.get()
    if not is_scripted(model) and not _is_whole(response):
        raise TransportError("the model's answer broke off: the stream ended before its finish reason")
    return response


def _is_whole(response: ModelResponse) -> bool:
    """Whether the provider itself said that the answer has ended."""
    details = response.provider_details or {}
    return bool(details.get("finish_reason")) or response.finish_reason not in (None, _ASSUMED)


def _said(event: Any) -> str:
    """The text of an event, or a tool's name and its arguments. What a model thinks to itself is not shown."""
    match event.event_kind:
        case "part_start" if event.part.part_kind == "text":
            return str(event.part.content)
        case "part_start" if event.part.part_kind == "tool-call":
            return f"\n{event.part.tool_name} {_arguments(event.part.args)}"
        case "part_delta" if event.delta.part_delta_kind == "text":
            return str(event.delta.content_delta)
        case "part_delta" if event.delta.part_delta_kind == "tool_call":
            return f"{event.delta.tool_name_delta or ''}{_arguments(event.delta.args_delta)}"
    return ""


def _arguments(args: Any) -> str:
    return "" if args is None else str(args)
