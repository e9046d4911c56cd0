"""One model request through Pydantic AI: to a configured provider, or to the assistant's own scripted function."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from runs.engine.assistants import SCRIPTED, UNAVAILABLE, Assistant, ModelRefused, ModelTurn, responses
from runs.engine.errors import NotServed, Passing, TransportError
from runs.engine.extras import missing_for_model
from runs.engine.steps.retry import seconds_asked
from runs.engine.thinking.answers import is_not_connected
from runs.engine.tools import FINAL

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

Hear = Callable[[str], None]
# Pydantic AI reports this finish reason also if a stream ended without one. Some providers never send one.
_ASSUMED = "stop"


def is_scripted(model: Model) -> bool:
    """Return whether a model is a function of an author or a test, rather than a provider's model."""
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    while hasattr(model, "wrapped"):
        model = model.wrapped
    return isinstance(model, (FunctionModel, TestModel))


def only_streams(model: Model) -> bool:
    """Return whether a scripted model can only stream."""
    from pydantic_ai.models.function import FunctionModel

    return isinstance(model, FunctionModel) and model.function is None


def can_stream(model: Model) -> bool:
    from pydantic_ai.models.function import FunctionModel

    return not isinstance(model, FunctionModel) or model.stream_function is not None


async def streamed(model: Model, messages: list[Any], hear: Hear | None, **how: Any) -> ModelResponse:
    """Request an answer as a stream, and pass its text to `hear` as it arrives.

    Raises the errors of the model's client, NotImplementedError for a model that doesn't stream, and TransportError if
    the stream ended before the answer was complete.
    """
    from pydantic_ai.direct import model_request_stream

    async with model_request_stream(model, messages, **how) as stream:
        async for event in stream:
            text = _event_text(event)
            if text and hear is not None:
                hear(text)
        response = stream.get()
    if not is_scripted(model) and not _is_whole(response):
        raise TransportError("the model's answer broke off: the stream ended before its finish reason")
    return response


def _is_whole(response: ModelResponse) -> bool:
    details = response.provider_details or {}
    return bool(details.get("finish_reason")) or response.finish_reason not in (None, _ASSUMED)


def _event_text(event: Any) -> str:
    """Return an event's text, or a tool's name and arguments. The model's thinking is left out."""
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


_PASSING = frozenset({408, 409, 425, 429})
# With these codes only this provider or model refuses: no key, no credit, no permission, no such model, blocked in the
# region.
_ELSEWHERE = frozenset({401, 402, 403, 404, 410, 451})
# Models are cached per event loop, because a provider's client keeps connections that belong to one loop.
_MODELS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Model]] = WeakKeyDictionary()


async def request_model(
    assistant: Assistant, messages: list[Any], model: str = SCRIPTED, hear: Hear | None = None
) -> ModelTurn:
    """Make one request to `model`. `scripted:…` stands for the assistant's own function.

    `hear` is called with the answer's text as it arrives, if the provider streams. If the provider refuses to stream,
    the request is made without streaming, so that subscribers don't change the result. Raises NotServed (retry; costs
    nothing), TransportError (retry; may have been billed) or ModelRefused (don't retry).
    """
    own = assistant.own_model(model)
    chosen = _lenient(own or (_scripted(assistant) if model.startswith(SCRIPTED) else _real_model(model)))
    how = {"model_settings": _settings(assistant), "model_request_parameters": _parameters(assistant)}
    response = await _response(chosen, messages, hear, how)
    used = response.usage
    plain = responses().dump_python(response, mode="json", warnings=False)
    return ModelTurn(response.model_name or model, plain, used.input_tokens or 0, used.output_tokens or 0)


async def _response(model: Model, messages: list[Any], hear: Hear | None, how: dict[str, Any]) -> ModelResponse:
    from pydantic_ai.direct import model_request

    if only_streams(model) or (hear is not None and can_stream(model)):
        try:
            return await streamed(model, messages, hear, **how)
        except Exception as error:
            trouble = _trouble(error, model)
            if trouble is error:
                raise
            if only_streams(model) or not isinstance(trouble, ModelRefused):
                raise trouble from error
    try:
        response = await model_request(model, messages, **how)
    except Exception as error:
        trouble = _trouble(error, model)
        if trouble is error:
            raise
        raise trouble from error
    if response.finish_reason == "error":
        raise TransportError("the model's provider says that it failed while it answered")
    return response


def _trouble(error: Exception, model: Model) -> Exception:
    """Classify an error.

    A response with status 200 but without an answer is an outage. An error in a scripted model is the author's own, and
    is returned unchanged.
    """
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError

    match error:
        case Passing() | ModelRefused():
            return error
        case ModelHTTPError(in_stream=False):
            return _refusal(error)
        case ModelAPIError() if is_not_connected(error):
            return NotServed(f"the model's provider can't be reached: {error}")
        case ModelAPIError():
            return TransportError(f"the model's provider gave no answer: {error}", retry_after=error.retry_after)
        case UserError() | NotImplementedError():
            return ModelRefused("model_error", str(error))
        case UnexpectedModelBehavior() if is_scripted(model):
            return ModelRefused("model_error", str(error))
        case _ if is_scripted(model):
            return error
        case _:
            return TransportError(f"the model's provider gave no answer: {type(error).__name__}: {error}")


def _refusal(error: Any) -> Exception:
    if error.status_code >= 500 or error.status_code in _PASSING:
        problem = f"the model's provider answered {error.status_code}"
        return NotServed(problem, retry_after=_retry_after(error))
    return ModelRefused(UNAVAILABLE if error.status_code in _ELSEWHERE else "model_refused", str(error))


def _lenient(model: Model) -> Model:
    """Return a model that accepts tool calls from OpenAI-like providers even if name, id or arguments are missing.

    The loop then reports such calls to the model.
    """
    if not hasattr(model, "_validate_completion"):
        return model
    made = copy.copy(model)
    validate: Callable[[Any], Any] = made._validate_completion

    def filled(response: Any) -> Any:
        for choice in response.choices or ():
            for call in getattr(getattr(choice, "message", None), "tool_calls", None) or ():
                call.id = getattr(call, "id", None) or ""
                if (function := getattr(call, "function", None)) is not None:
                    function.name = getattr(function, "name", None) or ""
                    function.arguments = getattr(function, "arguments", None) or ""
        return validate(response)

    made._validate_completion = filled
    return made


def _real_model(name: str) -> Model:
    from pydantic_ai.exceptions import UserError

    known = _MODELS.setdefault(asyncio.get_running_loop(), {})
    if name not in known:
        try:
            known[name] = real_model(name)
        except (UserError, ImportError, ValueError) as error:  # the provider is unknown here, or its key is missing
            raise ModelRefused(UNAVAILABLE, str(error)) from error
    return known[name]


def real_model(name: str) -> Model:
    """Return a provider's model whose client doesn't retry, because the engine does.

    Raises UserError or ImportError.
    """
    from pydantic_ai.models import infer_model

    if lack := missing_for_model(name):
        raise ImportError(lack)
    model = infer_model(name)
    client = getattr(model, "client", None)
    if getattr(client, "max_retries", 0):
        client.max_retries = 0  # type: ignore[union-attr]
    return model


def _retry_after(error: BaseException) -> float | None:
    """Return `Retry-After` from the response that caused the provider's client error."""
    headers = getattr(getattr(error.__cause__, "response", None), "headers", None)
    return None if headers is None else seconds_asked(headers)


def _scripted(assistant: Assistant) -> Model:
    from pydantic_ai.models.function import FunctionModel

    if assistant.offline is None:
        raise ModelRefused("no_model", f"{assistant.name} has no scripted model: set DURABLEAGENTS_MODEL to a real one")
    name = f"{SCRIPTED}{assistant.name}"
    if inspect.isasyncgenfunction(assistant.offline):
        return FunctionModel(stream_function=assistant.offline, model_name=name)
    return FunctionModel(assistant.offline, model_name=name)


def _settings(assistant: Assistant) -> dict[str, Any]:
    own = {} if assistant.request is None else assistant.request.settings
    return {**assistant.settings(), **own}


def _parameters(assistant: Assistant) -> ModelRequestParameters:
    if assistant.request is not None:
        return cast("ModelRequestParameters", assistant.request.parameters)
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=t.name, description=t.description or t.title, parameters_json_schema=t.input.model_json_schema()
        )
        for t in assistant.tools
    ]
    final = ToolDefinition(
        name=FINAL,
        description=inspect.cleandoc(assistant.output.__doc__ or "Give the final result."),
        parameters_json_schema=assistant.output.model_json_schema(),
        kind="output",
    )
    return ModelRequestParameters(
        function_tools=tools, output_tools=[final], output_mode="tool", allow_text_output=False
    )
