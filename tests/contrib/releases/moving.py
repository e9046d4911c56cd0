"""Two versions of an agent, for tests of migrations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from durableagents import Agent, Context, End, Migration
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migrating import MovedRow
from durableagents.contrib.releases.migration_requests import MigrateBody, MigrationPreviewBody
from runs.models import Run
from tests.world import OLGA, Notes, Toolbox, agent_of

NAME = "mover"


def old(tools: Toolbox, **more: Any) -> Agent:
    async def take(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.order, {"name": "first"})
        return "hold"

    async def hold(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.look, {"name": "a"})
        await ctx.signal("go")
        return "settle"

    async def settle(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "old end"})
        return End("old")

    return agent_of(take, hold, settle, tools=tools.all(), name=NAME, version="1.0.0", **more)


def renamed(tools: Toolbox, **more: Any) -> Agent:
    """Return the same work under other node names, with another end."""

    async def take(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.order, {"name": "first"})
        return "wait_here"

    async def wait_here(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.look, {"name": "a"})
        await ctx.signal("go")
        return "finish"

    async def finish(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "new end"})
        return End("new")

    return agent_of(take, wait_here, finish, tools=tools.all(), name=NAME, version="2.0.0", **more)


def rewritten(tools: Toolbox, **more: Any) -> Agent:
    """Return a version whose `wait_here` does something else before it waits."""

    async def take(state: Notes, ctx: Context) -> str:
        return "wait_here"

    async def wait_here(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.look, {"name": "b"})
        await ctx.signal("resume")
        return "finish"

    async def finish(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "new end"})
        return End("new")

    return agent_of(take, wait_here, finish, tools=tools.all(), name=NAME, version="2.0.0", **more)


NODES = {"take": "take", "hold": "wait_here", "settle": "finish"}
BACK = {new: old for old, new in NODES.items()}


def asked(*runs: Run | UUID, nodes: dict[str, str] | None = None, of: str = "1.0.0", to: str = "2.0.0") -> Any:
    ids = [run.pk if isinstance(run, Run) else run for run in runs] or None
    return {"from_version": of, "to_version": to, "nodes": NODES if nodes is None else nodes, "runs": ids}


def seen(*runs: Run | UUID, **more: Any) -> MovedRow:
    (found,) = migrating.preview(NAME, MigrationPreviewBody.model_validate(asked(*runs, **more)))
    return found


def moved(*runs: Run | UUID, by: Any = OLGA, **more: Any) -> MovedRow:
    body = MigrateBody.model_validate(asked(*runs, **more) | {"justification": "the old one is wrong"})
    (found,) = migrating.migrate(NAME, body, by=by)
    return found


def looks(read: Any) -> Migration:
    return Migration("1.0.0", NODES, read)
