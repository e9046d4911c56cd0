"""One model request through Pydantic AI: a real provider where one is configured, else the assistant's own scripted
function."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from runs.engine.assistants import SCRIPTED, UNAVAILABLE, Assistant, ModelRefused, ModelTurn, responses
from runs.engine.errors import NotServed, TransportError
from runs.engine.steps.retry import seconds_asked
from runs.engine.thinking.streaming import Hear, only_streams, streamed
from runs.engine.tools import FINAL

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

_PASSING = frozenset({408, 409, 425, 429})
# It is this provider, or this model of its, that won't: no key, no credit, no right, no such model, a region's law.
_ELSEWHERE = frozenset({401, 402, 403, 404, 410, 451})


async def request_model(
    assistant: Assistant, messages: list[Any], model: str = SCRIPTED, hear: Hear | None = None
) -> ModelTurn:
    """Ask `model` once; one that begins with `scripted:` is the assistant's own function. `hear` is told the answer's
    text as it comes, where the provider streams. Raises NotServed (worth
    asking again, and costs nothing), TransportError (worth asking again, and may have been paid for) or ModelRefused
    (it isn't)."""
    from pydantic_ai.direct import model_request
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError

    own = None if assistant.request is None else assistant.request.own_model(model)
    chosen = own or (_scripted(assistant) if model.startswith(SCRIPTED) else _real_model(model))
    try:
        response = await (model_request if hear is None and not only_streams(chosen) else streamed(hear))(
            chosen,
            messages,
            model_settings=cast("ModelSettings", _settings(assistant)),
            model_request_parameters=_parameters(assistant),
        )
    except ModelHTTPError as error:
        if error.status_code >= 500 or error.status_code in _PASSING:
            problem = f"the model's provider answered {error.status_code}"
            raise NotServed(problem, retry_after=_retry_after(error)) from error
        raise ModelRefused(UNAVAILABLE if error.status_code in _ELSEWHERE else "model_refused", str(error)) from error
    except ModelAPIError as error:
        trouble = NotServed if _is_unreached(error) else TransportError
        raise trouble(f"the model's provider can't be reached: {error}") from error
    except (UserError, UnexpectedModelBehavior) as error:
        raise ModelRefused("model_error", str(error)) from error
    used = response.usage
    plain = responses().dump_python(response, mode="json")
    return ModelTurn(response.model_name or model, plain, used.input_tokens or 0, used.output_tokens or 0)


def _real_model(name: str) -> Model:
    from pydantic_ai.exceptions import UserError

    try:
        return real_model(name)
    except (UserError, ImportError, ValueError) as error:  # no such provider here, or its key is missing
        raise ModelRefused(UNAVAILABLE, str(error)) from error


def real_model(name: str) -> Model:
    """A provider's model, whose client asks once: how often, and after which pause, is the engine's own policy, which
    the journal tells of. Raises UserError or ImportError for a name that no installed provider knows, and where its key
    is missing."""
    from pydantic_ai.models import infer_model

    model = infer_model(name)
    client = getattr(model, "client", None)
    if getattr(client, "max_retries", 0):
        client.max_retries = 0  # type: ignore[union-attr]
    return model


def _is_unreached(error: BaseException) -> bool:
    """Whether no connection to the provider came about: the client's error is somewhere among the causes."""
    import httpx

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (ConnectionRefusedError, httpx.ConnectError, httpx.ConnectTimeout)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _retry_after(error: BaseException) -> float | None:
    """What the provider's `Retry-After` says: its own client's error, the cause of ours, has the response."""
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
    """What the provider is told, also what can't be put on record."""
    own = {} if assistant.request is None else assistant.request.settings
    return {**assistant.settings(), **own}


def _parameters(assistant: Assistant) -> ModelRequestParameters:
    """The assistant's tools, and its answer's type as the tool that ends the loop."""
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
