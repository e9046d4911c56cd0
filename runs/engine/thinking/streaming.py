"""A model's answer as it comes, told to whoever listens. What is put on record is the whole of it, as without."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from runs.engine.errors import TransportError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

Hear = Callable[[str], None]


def only_streams(model: Model) -> bool:
    """Whether it is a scripted model that gives its answers in pieces and no other way."""
    from pydantic_ai.models.function import FunctionModel

    return isinstance(model, FunctionModel) and model.function is None


def streamed(hear: Hear | None) -> Callable[..., Coroutine[Any, Any, ModelResponse]]:
    """`pydantic_ai.direct.model_request`, with the text told as it comes; of a model that doesn't stream nothing is
    told. Raises TransportError besides, where the answer breaks off."""

    async def request(model: Model, messages: list[Any], **how: Any) -> ModelResponse:
        from pydantic_ai.direct import model_request, model_request_stream
        from pydantic_ai.exceptions import AgentRunError, UserError

        if not _may_stream(model):
            return await model_request(model, messages, **how)
        has_begun = False
        try:
            async with model_request_stream(model, messages, **how) as stream:
                has_begun = True
                async for event in stream:
                    said = _said(event)
                    if said and hear is not None:
                        hear(said)
                return stream.get()
        except NotImplementedError:
            if has_begun:
                raise
            return await model_request(model, messages, **how)  # it refused before anything left
        except (AgentRunError, UserError, AssertionError):
            raise
        except Exception as error:
            if _is_scripted(model):
                raise
            raise TransportError(f"the model's answer broke off: {type(error).__name__}: {error}") from error

    return request


def _may_stream(model: Model) -> bool:
    from pydantic_ai.models.function import FunctionModel

    return not isinstance(model, FunctionModel) or model.stream_function is not None


def _is_scripted(model: Model) -> bool:
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    return isinstance(model, (FunctionModel, TestModel))


def _said(event: Any) -> str:
    """What came with an event: text, a tool's name and its arguments. What a model thinks to itself stays there."""
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
