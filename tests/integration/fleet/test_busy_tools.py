"""A worker's heartbeat names the tools whose threads are all busy; the fleet page and the API show them."""

from __future__ import annotations

import os
import threading
from datetime import datetime
from typing import Any

import psycopg
import pytest

from durableagents import Context, End, ReplayClass, ToolCall, tool
from runs.connections import dsn
from runs.engine.threads import ToolThreads
from runs.fleet import members
from tests.integration.console.conftest import Reader, reader
from tests.integration.runs.conftest import stage
from tests.integration.runs.hosts import TidyHost, working
from tests.integration.runs.stage import Stage
from tests.waiting import eventually
from tests.world import Done, Item, Notes, agent_of, only_for_now

__all__ = ["reader", "stage"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)


class OneThread(TidyHost):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._threads = ToolThreads(1)


def beat(host: TidyHost) -> None:
    identity = members.identify(os.getpid())
    assert identity is not None
    with psycopg.connect(dsn(), autocommit=True) as link:
        members.beat_anchored(link, members.Sign("worker", identity, host.slots_used, host.slots, host.busy_tools))


def test_fleet_names_the_tool_that_holds_all_its_threads(reader: Reader, stage: Stage) -> None:
    free = threading.Event()

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=60)
    def lookup(args: Item, call: ToolCall) -> Done:
        assert free.wait(60)
        return Done(ref=args.name)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(lookup, Item(name="a"))).ref)

    def listed() -> list[Any]:
        return [each for row in operator.get("/api/v1/fleet").json()["results"] for each in row["busy_tools"]]

    operator = reader("operator").client
    with only_for_now(), working(stage, kind=OneThread) as host:
        stage.start(agent_of(node, tools=[lookup]))
        eventually(lambda: host.busy_tools, what="the call holding the thread")
        beat(host)
        (busy,) = listed()
        assert (busy["tool"], busy["busy"], busy["threads"]) == ("lookup", 1, 1)
        assert datetime.fromisoformat(busy["since"]).tzinfo is not None
        assert "lookup: 1 of 1 threads busy" in operator.get("/fleet").content.decode()
        free.set()
        eventually(lambda: not host.busy_tools, what="the thread coming free")
        beat(host)
        assert listed() == [] and "threads busy" not in operator.get("/fleet").content.decode()
