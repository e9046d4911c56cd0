"""An agent with two versions, blue and green; the environment chooses those of a process."""

from __future__ import annotations

import os

from pydantic import BaseModel

from durableagents import Agent, Context, End
from tests.system.fleet.agents import Line, add_line

NAME = "fleet-release"
OLD, NEW = "1.0.0", "2.0.0"


class Order(BaseModel):
    customer: str


def _declare(version: str) -> None:
    agent = Agent(NAME, version, input=Order, state=Order, output=Order, tools=[add_line], title="Released")

    @agent.node(start=True, to=("second",), title="First")
    async def first(state: Order, ctx: Context) -> str:
        """An effect, and then the run is parked for a while."""
        await ctx.call(add_line, Line(text=f"{ctx.run_id} {version} first"))
        await ctx.sleep(3)
        return "second"

    @agent.node(title="Second")
    async def second(state: Order, ctx: Context) -> End:
        """Another one."""
        await ctx.call(add_line, Line(text=f"{ctx.run_id} {version} second"))
        return End(state)


for each in os.environ.get("RELEASE_VERSIONS", f"{OLD},{NEW}").split(","):
    _declare(each)
