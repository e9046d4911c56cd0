from __future__ import annotations

import os
import threading
from uuid import UUID

import pytest
from django.db import connection

from durableagents import Context, End, ReplayClass, ToolCall, tool
from durableagents.contrib.halts.models import Held
from durableagents.contrib.halts.queries import HaltRow, find_halts
from runs.models import Process
from tests.contrib.halts.halting import calls, halt, lift
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, facts, fresh, problems
from tests.waiting import eventually
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def of(halt: object) -> HaltRow:
    (one,) = find_halts([halt.halt])  # type: ignore[attr-defined]
    return one


def test_a_halt_is_requested_until_the_worker_has_confirmed_with_what_is_in_flight(stage: Stage) -> None:
    release, began = threading.Event(), threading.Event()

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=60)
    def slow(args: Item, call: ToolCall) -> Item:
        began.set()
        release.wait(60)
        return args

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(slow, Item(name="a"))
        return End((await ctx.call(slow, Item(name="b"))).name)

    run = stage.start(agent_of(node, tools=[slow]))
    it = halt("tool", "order")
    assert of(it).state == "requested" and [one.says for one in of(it).unconfirmed] == ["unheard"]
    lift(it)
    with working(stage):
        assert began.wait(60)
        it = halt("all")
        eventually(lambda: of(it).state == "confirmed", what="the worker's word")
        (call,) = of(it).in_flight
        assert (call.run, call.what, call.timeout) == (run.id, "tool:slow", 60.0)
        release.set()
        eventually(lambda: fresh(run).owner is None and not of(it).in_flight)
        assert facts(run) == ["pending", "committed"] and str(fresh(run).state) == "running"
        assert Held.objects.filter(run_id=run.id).exists() and of(it).held == 1
        lift(it)
        eventually(lambda: fresh(run).ended_at is not None)
    assert not Held.objects.exists() and problems(run) == []


@pytest.mark.parametrize(
    "calls",
    [
        "[{}]",
        "[5]",
        "5",
        '"x"',
        '{"a": 1}',
        '[{"run": "x", "slot": "s", "what": "w", "since": "now", "timeout": 1}]',
        f'[{{"run": "{UUID(int=1)}", "slot": "s", "what": "w", "since": "2026-01-01", "timeout": 1}}]',
        "[" * 3000 + "]" * 3000,
        f"[1{'0' * 5000}]",
    ],
    ids=range(9),
)
def test_what_can_not_be_read_of_a_worker_s_calls_is_nothing_said(stage: Stage, calls: str) -> None:
    """And the page for halts still works for everybody."""
    it, worker = halt("all"), Process.objects.get()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_haltseen (line, worker, seen_at, confirmed_at, running, calls, told_at) "
            "VALUES (%s, %s, now(), now(), 0, %s::jsonb, now())",
            [it.pk, worker.pk, calls],
        )
    assert (of(it).state, [one.says for one in of(it).unconfirmed], of(it).in_flight) == ("requested", ["unheard"], [])


def test_a_worker_that_gives_no_sign_of_life_has_not_confirmed(stage: Stage) -> None:
    it = halt("agent", "importer")
    Process.objects.update(last_heartbeat_at="2026-01-01T00:00Z")
    (one,) = of(it).unconfirmed
    assert one.says == "silent" and one.name.endswith(f"/{os.getpid()}")
    Process.objects.update(ended_at="2026-01-01T00:00Z")
    assert of(it).state == "confirmed", "one whose end is on record drives nothing"


def test_reads_and_requests_of_a_worker_stop_within_its_round(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(calls(tools, *["look"] * 400))
    with working(stage):
        eventually(lambda: len(outside.seen("look")) > 3)
        it = halt("tool", "look")
        eventually(lambda: of(it).state == "confirmed")
        seen = len(outside.seen("look"))
        eventually(lambda: fresh(run).owner is None)
        assert len(outside.seen("look")) == seen < 400, "no read leaves once it is confirmed"
        lift(it)
        eventually(lambda: fresh(run).ended_at is not None)
    assert problems(run) == []
