"""Helpers for branches: agents that gather, calls that wait for one another, and recorded slots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from durableagents import Context, End, ToolCall
from runs.engine.agents import Agent
from tests.unit.engine.story import Story
from tests.world import Notes, Toolbox, agent_of

Body = Callable[[Context], Awaitable[Any]]


def gathering(tools: Toolbox, body: Body, assistants: Any = ()) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End(await body(ctx))

    return agent_of(node, tools=tools.all(), assistants=list(assistants))


def ring(story: Story) -> None:
    for wait_id, _ in story.waiting("timer"):
        story.run.resolve(wait_id, "fired")


def slots(story: Story) -> list[tuple[str, str]]:
    found = [x for x in story.run.events if x.slot and x.FACT == "result"]
    return sorted((str(x.slot).partition("/")[2], getattr(x, "tool", getattr(x, "what", ""))) for x in found)


class Meeting:
    """Makes calls wait until all have come, or until released."""

    def __init__(self, size: int) -> None:
        self.size, self.names = size, []  # type: ignore[var-annotated]
        self.full, self.over = asyncio.Event(), asyncio.Event()

    async def come(self, call: ToolCall) -> None:
        self.names.append(call.tool)
        if len(self.names) == self.size:
            self.full.set()
        await (self.full if self.size else self.over).wait()
