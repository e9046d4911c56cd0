"""Agents of the clock's tests, which another process imports and drives."""

from __future__ import annotations

from pydantic import BaseModel

from durableagents import Agent, Context, End, Gate, ReplayClass, ToolCall, tool


class Plan(BaseModel):
    """A sleep of some seconds, or a wait for a person."""

    sleep_seconds: float = 0.0
    is_gated: bool = False


class Told(BaseModel):
    text: str


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, gate=Gate("finance_po", "always"))
async def spend(args: Told, call: ToolCall) -> Told:
    """Needs a person first."""
    return args


agent = Agent("clockwork", "1.0.0", input=Plan, state=Plan, output=Told, initial=lambda plan: plan, tools=[spend])


@agent.node(start=True)
async def wait(state: Plan, ctx: Context) -> End:
    """Sleep, or ask."""
    began = await ctx.now()
    if state.is_gated:
        await ctx.call(spend, Told(text="x"))
    await ctx.sleep(state.sleep_seconds)
    return End(Told(text=began.isoformat()))
