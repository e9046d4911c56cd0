"""Runs that start runs: `helper` does what one letter says, `parent` starts one for each, `top` starts a parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from durableagents import Agent, ChildFailure, Context, End, Failure
from runs.engine.agents import registry
from runs.models import Run


class Job(BaseModel):
    letters: str
    title: str = ""


class Notes(BaseModel):
    job: Job


class Number(BaseModel):
    number: int


def made(name: str, node: Callable[[Notes, Context], Any], output: Any = None) -> Agent:
    agent = Agent(
        name, "1.0.0", input=Job, state=Notes, output=output, initial=lambda job: Notes(job=job), title=name.title()
    )
    agent.node(start=True)(node)
    agent.validate()
    return agent


@contextmanager
def family() -> Iterator[None]:
    async def help(state: Notes, ctx: Context) -> End:
        match state.job.letters:
            case "f":
                raise Failure("it was to fail", code="no_luck")
            case "s":
                await ctx.signal("go")
            case "a":
                await ctx.ask("operator", title="How many?", schema=Number)
        return End(state.job)

    async def part(state: Notes, ctx: Context) -> End:
        job = state.job
        calls = (ctx.child("helper", Job(letters=x, title=f"{job.title} {x}".strip())) for x in job.letters)
        found = await ctx.gather(*calls, return_exceptions=True)
        return End([x.code if isinstance(x, ChildFailure) else x["letters"] for x in found])

    async def begin(state: Notes, ctx: Context) -> End:
        return End(await ctx.child("parent", state.job))

    agents = [made("helper", help, Job), made("parent", part), made("top", begin)]
    try:
        yield
    finally:
        for agent in agents:
            registry.remove(agent.graph_id)


def children(run: Run, *states: str) -> list[Run]:
    return list(Run.objects.filter(parent=run.pk, state__in=states).order_by("created_at"))
