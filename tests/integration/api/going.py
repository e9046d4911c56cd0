"""Runs with continuations: `keeper` takes a signal and continues as new, three times; the third hands off to `desk`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from durableagents import Context, End, Handoff, Renew
from runs.engine.agents import Agent, registry
from tests.integration.api.family import Job, Notes, made


class Kept(Notes):
    heard: list[Any] = []


@contextmanager
def going_on() -> Iterator[None]:
    keeper = Agent(
        "keeper", "1.0.0", input=Job, state=Kept, initial=lambda job: Kept(job=job), title="Keeper", signals=["go"]
    )

    async def keep(state: Kept, ctx: Context) -> Any:
        state.heard.append(await ctx.signal("go"))
        if len(state.heard) == 3:
            return Handoff("desk", Job(letters="".join(state.heard), title=state.job.title))
        return Renew(state)

    async def answer(state: Notes, ctx: Context) -> End:
        return End(state.job)

    keeper.node(start=True)(keep)
    keeper.validate()
    desk = made("desk", answer, Job)
    try:
        yield
    finally:
        for agent in (keeper, desk):
            registry.remove(agent.graph_id)
