"""Two versions of an agent between which a ramp moves starts while workers are killed."""

from __future__ import annotations

from durableagents import Agent, Context, End
from tests.system.crash.calls import Answer, Arguments, keyed


def _agent(version: str) -> Agent:
    return Agent("crash-ramped", version, input=Arguments, state=Arguments, output=Answer, tools=[keyed])


ramped, ramped_2 = _agent("1.0.0"), _agent("2.0.0")


@ramped.node(start=True, to=["finish"], title="Begin")
async def begin(state: Arguments, ctx: Context) -> str:
    """Make a call."""
    await ctx.call(keyed, Arguments(n=state.n))
    return "finish"


@ramped.node(title="Finish")
async def finish(state: Arguments, ctx: Context) -> End:
    """Rest, and make another."""
    await ctx.sleep(0.01)
    return End(await ctx.call(keyed, Arguments(n=state.n + 1)))


@ramped_2.node(start=True, title="All at once")
async def all_at_once(state: Arguments, ctx: Context) -> End:
    """Make three calls: how many there are says which version it was."""
    for n in range(2):
        await ctx.call(keyed, Arguments(n=state.n + n))
    return End(await ctx.call(keyed, Arguments(n=state.n + 2)))
