"""Wrappers of a Pydantic AI agent's model and tools. Classes are built at first use, since its import is slow."""

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
    """Return the model class of recorded runs; it is the same whichever model answers, so replays don't differ."""
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
            """Stream a complete response for an agent with an event handler, on a replay too."""
            response = await self.request(messages, model_settings, model_request_parameters)
            yield CompletedStreamedResponse(
                response, model_request_parameters=model_request_parameters, replay_events=True
            )

    return RecordedModel


@cache
def toolset_class() -> Callable[..., Any]:
    """Return the toolset class. The run handles approvals and external tools, so all count as callable."""
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
    """Return the outermost capability for one run of an agent."""
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
            """Send all requests through the record, also of another model."""
            return None if model is self.model else self.model

        async def handle_deferred_tool_calls(self, ctx: Any, *, requests: Any) -> Any:
            """Report a person's denial as Pydantic AI does."""
            denied = {
                call.tool_call_id: ToolDenied(self.denials[call.tool_call_id])
                for call in requests.approvals
                if call.tool_call_id in self.denials
            }
            return DeferredToolResults(approvals=dict(denied)) if denied else None

    return Recorded
