from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest
from django.db import connection
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End, Handoff, Renew
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migration_requests import MigrateBody
from durableagents.contrib.replay import declared_secrets
from durableagents.contrib.replay.exporting import ExportFailed, ExportOptions, export
from durableagents.contrib.replay.files import InvalidRecording
from durableagents.contrib.replay.reading import make_test
from ledger.clock import database_now
from runs.engine.agents import registry
from runs.models import Run
from runs.services import lifecycle, signals
from tests.integration.runs.stage import Stage, fresh
from tests.integration.runs.test_children import everything
from tests.tampering import tamper
from tests.world import OLGA, SHOP, agent_of

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "tango-7-foxtrot"
WHY = "because it must be"


class Open(BaseModel):
    """Nothing here says that `code` is secret."""

    code: str = ""
    what: str = ""


class Closed(BaseModel):
    code: str = Field(default="", json_schema_extra={"writeOnly": True})
    what: str = ""


def holder(name: str, model: type[BaseModel], version: str = "1.0.0", **more: Any) -> Agent:
    async def take(state: Any, ctx: Context) -> str:
        return "keep"

    async def keep(state: Any, ctx: Context) -> End:
        await ctx.signal("go")
        return End({"code": state.code})

    fields = {"input": model, "state": model, "initial": lambda given: given} | more
    return agent_of(take, keep, name=name, version=version, **fields)


def started(stage: Stage, agent: Agent) -> Run:
    run = lifecycle.start(agent.graph_id, {"code": SECRET}, by=SHOP)
    everything(stage)
    return fresh(run)


def moved(run: Run, to: str) -> Run:
    of = fresh(run).version
    body = {"from_version": of, "to_version": to, "runs": [run.pk], "justification": WHY}
    nodes = {"take": "take", "keep": "keep"}
    (found,) = migrating.migrate(run.agent, MigrateBody.model_validate(body | {"nodes": nodes}), by=OLGA)
    assert found.is_moved, found
    return fresh(run)


def go(stage: Stage, run: Run) -> None:
    signals.signal(run.pk, "go", None, by=SHOP)
    everything(stage)


# --- the ways it gets there -------------------------------------------------------------------------------------------


def by_a_move(stage: Stage) -> tuple[Run, str]:
    holder("moved-holder", Closed), holder("moved-holder", Open, "2.0.0")
    return moved(started(stage, registry.find("moved-holder@1.0.0")), "2.0.0"), "moved-holder@1.0.0"


def by_an_earlier_move(stage: Stage) -> tuple[Run, str]:
    holder("twice-moved", Open), holder("twice-moved", Closed, "2.0.0"), holder("twice-moved", Open, "3.0.0")
    return moved(moved(started(stage, registry.find("twice-moved@1.0.0")), "2.0.0"), "3.0.0"), "twice-moved@2.0.0"


def by_a_fork(stage: Stage) -> tuple[Run, str]:
    run = started(stage, holder("forked-holder", Closed))
    holder("forked-holder", Open, "2.0.0")
    made = forking.fork(run.pk, ForkRequest(2, version="2.0.0"), by=OLGA, justification=WHY)
    everything(stage)
    return fresh(made), "forked-holder@1.0.0"


def by_a_fork_of_a_fork(stage: Stage) -> tuple[Run, str]:
    run, version = by_a_fork(stage)
    made = forking.fork(run.pk, ForkRequest(1), by=OLGA, justification=WHY)
    everything(stage)
    return fresh(made), version


def by_a_renewal(stage: Stage) -> tuple[Run, str]:
    """The run was migrated before its continuation."""

    def renewing(model: type[BaseModel], version: str) -> Agent:
        async def take(state: Any, ctx: Context) -> Any:
            if state.what == "again":
                await ctx.signal("stay")
            return "keep"

        async def keep(state: Any, ctx: Context) -> Any:
            await ctx.signal("go")
            return Renew(model.model_validate({"code": state.code, "what": "again"}), node="take")

        return agent_of(
            take, keep, name="renewed-holder", version=version, input=model, state=model, initial=lambda given: given
        )

    first, _ = renewing(Closed, "1.0.0"), renewing(Open, "2.0.0")
    run = moved(started(stage, first), "2.0.0")
    go(stage, run)
    return Run.objects.get(pk=fresh(run).goes_on_as), "renewed-holder@1.0.0"


def by_a_handoff(stage: Stage) -> tuple[Run, str]:
    successor = holder("handed-holder", Open)

    async def take(state: Any, ctx: Context) -> Any:
        return Handoff(successor, Open(code=state.code))

    first = agent_of(take, name="handing-holder", input=Closed, state=Closed, initial=lambda given: given)
    run = started(stage, first)
    return Run.objects.get(pk=run.goes_on_as), "handing-holder@1.0.0"


def parent(name: str, child: Agent) -> Agent:
    async def take(state: Any, ctx: Context) -> str:
        given = await ctx.child(child, {"code": state.code, "what": "asked"})
        state.what = given["code"]
        return "keep"

    async def keep(state: Any, ctx: Context) -> End:
        await ctx.signal("go")
        return End({"code": state.what})

    return agent_of(take, keep, name=name, input=Open, state=Open, initial=lambda given: given)


def gives(name: str, model: type[BaseModel]) -> Agent:
    async def take(state: Any, ctx: Context) -> End:
        return End({"code": state.code})

    return agent_of(take, name=name, input=model, state=model, initial=lambda given: given)


def by_a_child(stage: Stage) -> tuple[Run, str]:
    run = started(stage, parent("asks-a-child", gives("asked-child", Closed)))
    everything(stage)
    return fresh(run), "asked-child@1.0.0"


def by_a_childs_child(stage: Stage) -> tuple[Run, str]:
    """The child between them doesn't declare it."""
    lowest = gives("lowest-child", Closed)

    async def take(state: Any, ctx: Context) -> End:
        return End(await ctx.child(lowest, {"code": state.code}))

    middle = agent_of(take, name="middle-child", input=Open, state=Open, initial=lambda given: given)
    run = started(stage, parent("asks-below", middle))
    return fresh(run), "lowest-child@1.0.0"


def by_its_parent(stage: Stage) -> tuple[Run, str]:
    below = holder("given-child", Open)

    async def take(state: Any, ctx: Context) -> End:
        return End(await ctx.child(below, {"code": state.code}))

    run = started(stage, agent_of(take, name="gives-down", input=Closed, state=Closed, initial=lambda given: given))
    return Run.objects.get(parent=run.pk), "gives-down@1.0.0"


def by_a_sister(stage: Stage) -> tuple[Run, str]:
    """Its parent got it from another child."""
    sister, below = gives("telling-sister", Closed), holder("told-sister", Open)

    async def take(state: Any, ctx: Context) -> End:
        child = await ctx.child(sister, {"code": state.code})
        return End(await ctx.child(below, {"code": child["code"]}))

    agent_of(take, name="mother", input=Open, state=Open, initial=lambda given: given)
    run = started(stage, registry.find("mother@1.0.0"))
    return Run.objects.get(parent=run.pk, agent="told-sister"), "telling-sister@1.0.0"


WAYS = [
    by_a_move,
    by_an_earlier_move,
    by_a_fork,
    by_a_fork_of_a_fork,
    by_a_renewal,
    by_a_handoff,
    by_a_child,
    by_a_childs_child,
    by_its_parent,
    by_a_sister,
]


def wish(run: Run, **said: Any) -> ExportOptions:
    since = database_now() - timedelta(days=1)
    return ExportOptions(**({"limit": 50, "since": since, "agent": fresh(run).graph_id} | said))


def written(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.iterdir()))


@pytest.mark.every(3)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_another_version_declares_is_in_no_file(
    stage: Stage, way: Callable[[Stage], tuple[Run, str]], tmp_path: Path
) -> None:
    run, whose = way(stage)
    export(tmp_path / "full", wish(run, payloads="full"))
    assert SECRET in written(tmp_path / "full"), "the story brings it there"
    done = export(tmp_path / "kept", wish(run))
    assert done.files and SECRET not in written(tmp_path / "kept")
    registry.remove(whose)
    with pytest.raises(
        ExportFailed, match=f"{re.escape(whose)} is not installed here, so its secret fields are unknown"
    ):
        export(tmp_path / "gone", wish(run))
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_another_version_declares_is_in_no_test(stage: Stage, way: Callable[[Stage], tuple[Run, str]]) -> None:
    run, _ = way(stage)
    given = ""
    try:
        given = make_test(run.pk, paths=(), salt=token_bytes(16), payloads="redacted")
    except InvalidRecording as no:
        given = str(no)
    assert given and SECRET not in given


def test_forks_of_a_run_say_nothing_of_it(stage: Stage, tmp_path: Path) -> None:
    run = started(stage, holder("kept-holder", Open))
    holder("kept-holder", Closed, "2.0.0")
    forking.fork(run.pk, ForkRequest(2, version="2.0.0"), by=OLGA, justification=WHY)
    registry.remove("kept-holder@2.0.0")
    assert export(tmp_path / "kept", wish(run)).left_out == []


def test_where_a_run_is_gone_that_it_came_from_nothing_leaves_redacted(stage: Stage, tmp_path: Path) -> None:
    run, _ = by_a_fork(stage)
    tamper("DELETE FROM runs_run WHERE id = %s", run.forked_from)
    with pytest.raises(ExportFailed, match=f"run {run.forked_from}, which contributed to it, no longer exists"):
        export(tmp_path / "kept", wish(run))


def test_a_family_is_found_by_index(stage: Stage) -> None:
    run, _ = by_its_parent(stage)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"EXPLAIN {declared_secrets._RELATED}", [run.pk, run.pk])
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("SET enable_seqscan = on")
    assert "Seq Scan" not in plan and "runs_run_children" in plan, plan
