"""Wrappers of a Pydantic AI agent's model and tools.

The classes are created at first use, since importing Pydantic AI is slow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from durableagents.contrib.pydantic_ai.tools import LiveCall

if TYPE_CHECKING:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.models import Model

Ask = Callable[[list[Any], Any, Any], Awaitable[Any]]
Make = Callable[[LiveCall], Awaitable[Any]]
Check = Callable[[str, str], None]


@cache
def model_class() -> Callable[[Ask], Model]:
    """Return the model class for recorded runs. All models use the same class, so that replays don't differ."""
    from pydantic_ai.models import CompletedStreamedResponse, Model

    class RecordedModel(Model):
        def __init__(self, ask: Ask) -> None:
            super().__init__()
            self._ask = ask

        @property
        def model_name(self) -> str:
            return "recorded"

        @property
        def system(self) -> str:
            return "durableagents"

        async def request(self, messages: list[Any], model_settings: Any, model_request_parameters: Any) -> Any:
            settings, parameters = self.prepare_request(model_settings, model_request_parameters)
            return await self._ask(messages, settings, parameters)

        @asynccontextmanager
        async def request_stream(
            self, messages: list[Any], model_settings: Any, model_request_parameters: Any, run_context: Any = None
        ) -> AsyncGenerator[CompletedStreamedResponse]:
            """Stream the complete response to an agent with an event handler. A replay also streams it."""
            response = await self.request(messages, model_settings, model_request_parameters)
            yield CompletedStreamedResponse(
                response, model_request_parameters=model_request_parameters, replay_events=True
            )

    return RecordedModel


@cache
def toolset_class() -> Callable[..., Any]:
    """Return the toolset class.

    The toolset presents all tools as plain functions, because the run handles approvals and external tools."""
    from pydantic_ai.toolsets import WrapperToolset

    @dataclass
    class RecordedToolset(WrapperToolset[Any]):
        make: Make
        check: Check

        async def get_tools(self, ctx: Any) -> dict[str, Any]:
            tools = await super().get_tools(ctx)
            for name, tool in tools.items():
                self.check(name, tool.tool_def.kind)
            return {n: replace(t, tool_def=replace(t.tool_def, kind="function")) for n, t in tools.items()}

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            return await self.make(LiveCall(name, tool_args, ctx, tool, super().call_tool))

    return RecordedToolset


@cache
def capability_class() -> Callable[..., AbstractCapability[Any]]:
    """Return the class of the outermost capability of an agent's run."""
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.tools import DeferredToolResults, ToolDenied

    @dataclass
    class Recorded(AbstractCapability[Any]):
        model: Model
        make: Make
        check: Check
        denials: Mapping[str, str] = field(default_factory=dict)

        def get_wrapper_toolset(self, toolset: Any) -> Any:
            return toolset_class()(toolset, self.make, self.check)

        def get_wrapper_model(self, model: Model) -> Model | None:
            """Return our model instead of any other, so that all requests are recorded."""
            return None if model is self.model else self.model

        async def handle_deferred_tool_calls(self, ctx: Any, *, requests: Any) -> Any:
            """Report a person's denial in the same way as Pydantic AI does."""
            denied = {
                call.tool_call_id: ToolDenied(self.denials[call.tool_call_id])
                for call in requests.approvals
                if call.tool_call_id in self.denials
            }
            return DeferredToolResults(approvals=dict(denied)) if denied else None

    return Recorded
