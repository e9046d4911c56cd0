from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Agent, Context, End
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migration_requests import MigrateBody
from durableagents.contrib.replay.files import InvalidRecording
from durableagents.contrib.replay.reading import make_test
from ledger import events as e
from runs.models import Run
from runs.services import lifecycle, signals
from tests.contrib.replay.test_to_test import run as tell
from tests.integration.runs.stage import Stage, events
from tests.world import OLGA, SHOP, Asked, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db(transaction=True)
NODES = {"take": "take", "hold": "hold"}


def version(tools: Toolbox, number: str, looks_for: str, *, orders: str = "first", waits: str = "go") -> Agent:
    async def take(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.order, Item(name=orders))
        await ctx.uuid()
        return "hold"

    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name=looks_for))
        await ctx.signal(waits, within=timedelta(days=1), or_else=None)
        return End((await ctx.call(tools.order, Item(name=f"last {looks_for}"))).ref)

    return agent_of(
        take,
        hold,
        tools=tools.all(),
        name="retold",
        version=number,
        input=Asked,
        initial=lambda asked: Notes(asked=asked),
    )


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Any:
    def name(agent: Agent) -> Agent:
        monkeypatch.setattr(sys.modules[__name__], f"retold_{agent.version[0]}", agent, raising=False)
        return agent

    return name


def moved(run: Run, of: str, to: str) -> str:
    body = {"from_version": of, "to_version": to, "nodes": NODES, "runs": [run.pk], "justification": "the old is wrong"}
    (found,) = migrating.migrate("retold", MigrateBody.model_validate(body), by=OLGA)
    assert found.is_moved, found
    return events(run, e.RunMigrated)[-1].how


def go(stage: Stage, run: Run, name: str = "go") -> None:
    signals.signal(run.pk, name, None, by=SHOP)
    stage.settle(run)


@pytest.mark.parametrize("payloads", ["redacted", "full"])
def test_a_run_moved_before_its_first_node_is_told_by_the_version_that_did_it(
    stage: Stage, tools: Toolbox, named: Any, payloads: str
) -> None:
    version(tools, "1.0.0", "a"), named(version(tools, "2.0.0", "b", orders="other"))
    run = lifecycle.start("retold@1.0.0", {}, by=SHOP)
    assert moved(run, "1.0.0", "2.0.0") == "unbegun"
    assert stage.settle(run) == "parked"
    go(stage, run)
    text = make_test(run.pk, paths=(), salt=b"salt", payloads=payloads)
    tell(text)
    assert "'0.2/3'" in text and "'1." not in text
    with pytest.raises(AssertionError, match=r"0\.1/1"):
        tell(text, agent=version(tools, "2.0.0", "b"))


def test_a_visit_that_a_move_left_is_not_told(stage: Stage, tools: Toolbox, named: Any) -> None:
    version(tools, "1.0.0", "a"), version(tools, "2.0.0", "b"), named(version(tools, "3.0.0", "c", waits="on"))
    run = lifecycle.start("retold@1.0.0", {}, by=SHOP)
    assert stage.settle(run) == "parked"
    assert moved(run, "1.0.0", "2.0.0") == "reentered"
    assert moved(run, "2.0.0", "3.0.0") == "reentered", "it had not entered its node yet"
    assert stage.settle(run) == "parked"
    go(stage, run, "on")
    text = make_test(run.pk, paths=(), salt=b"salt", payloads="full")
    tell(text)
    assert "'name': 'a'" not in text and "'name': 'c'" in text and "'0.2/3'" in text and "'0.3" not in text


def test_a_run_whose_earlier_visits_the_newest_code_would_do_otherwise_is_refused(
    stage: Stage, tools: Toolbox, named: Any
) -> None:
    version(tools, "1.0.0", "a"), named(version(tools, "2.0.0", "b", orders="other"))
    run = lifecycle.start("retold@1.0.0", {}, by=SHOP)
    stage.settle(run)
    assert moved(run, "1.0.0", "2.0.0") == "reentered"
    stage.settle(run)
    go(stage, run)
    with pytest.raises(InvalidRecording, match=r"fails when run in memory.*0\.1/1"):
        make_test(run.pk, paths=(), salt=b"salt", payloads="full")


def test_a_visit_that_two_versions_did_is_refused(stage: Stage, tools: Toolbox, named: Any) -> None:
    version(tools, "1.0.0", "a"), named(version(tools, "2.0.0", "a"))
    run = lifecycle.start("retold@1.0.0", {}, by=SHOP)
    stage.settle(run)
    assert moved(run, "1.0.0", "2.0.0") == "replayed"
    go(stage, run)
    with pytest.raises(
        InvalidRecording, match=r"migrated from retold@1\.0\.0 to retold@2\.0\.0: neither version's code"
    ):
        make_test(run.pk, paths=(), salt=b"salt", payloads="full")
