from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import connection
from pydantic_ai.messages import ModelResponse, ToolCallPart

from durableagents import Assistant, Context, End, ReplayClass, ToolCall, tool
from ledger import events as e
from runs.models import Run
from tests.integration.runs.hosts import TidyHost, working
from tests.integration.runs.stage import Stage, events, facts, fresh, kinds, now, output
from tests.world import Done, Item, Notes, agent_of


class Door:
    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        while not self._open.is_set():  # noqa: ASYNC110  opened from another thread
            await asyncio.sleep(0.005)

    def open(self) -> None:
        self._open.set()


def agent_with(replay_class: ReplayClass, door: Door, *, timeout: float = 30.0) -> Any:
    @tool(replay_class=replay_class, timeout=timeout)
    async def slow(args: Item, call: ToolCall) -> Done:
        await door.pass_through()
        return Done(ref="slow")

    async def first(state: Notes, ctx: Context) -> str:
        await ctx.call(slow, Item(name="x"))
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End("done")

    return agent_of(first, second, tools=[slow])


def rings() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_q_ormq")
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("replay_class", list(ReplayClass))
def test_drain_finishes_a_step_and_hands_the_run_over(stage: Stage, replay_class: ReplayClass) -> None:
    door = Door()
    run = stage.start(agent_with(replay_class, door))
    with working(stage) as host:
        assert door.reached.wait(30)
        before = rings()
        host.drain(30)
        assert host.has_looked.wait(30)
        door.open()
    assert kinds(run)[-1] == "RunReleased" and events(run, e.RunReleased)[0].reason == "drain"
    assert fresh(run).owner is None and fresh(run).ready_at <= now() and rings() == before + 1, (
        "the next one is rung for"
    )
    assert stage.drive(stage.hire()) == "completed"
    assert [x.cause for x in events(run, e.RunClaimed)] == ["start", "released"]
    assert "ToolRedispatched" not in kinds(run)


@pytest.mark.parametrize("replay_class", [ReplayClass.PURE, ReplayClass.IDEMPOTENT_WITH_KEY])
def test_drain_cuts_a_repeatable_call_at_its_deadline(stage: Stage, replay_class: ReplayClass) -> None:
    door = Door()
    run = stage.start(agent_with(replay_class, door))
    with working(stage) as host:
        assert door.reached.wait(30)
        before = rings()
        host.drain(0)
    assert events(run, e.RunReleased)[0].reason == "drain deadline" and rings() == before + 1
    door.open()
    assert stage.drive(stage.hire()) == "completed"
    assert kinds(run).count("ToolRedispatched") == (replay_class is ReplayClass.IDEMPOTENT_WITH_KEY)


def test_an_unsafe_call_is_not_cut_at_the_deadline(stage: Stage) -> None:
    door = Door()
    run = stage.start(agent_with(ReplayClass.UNSAFE_ON_REPLAY, door))
    with working(stage) as host:
        assert door.reached.wait(30)
        assert host.unsafe_calls == 1
        host.drain(0)
        door.open()
    assert facts(run) == ["pending", "committed"] and kinds(run)[-1] == "RunReleased"
    assert host.unsafe_calls == 0 and stage.drive(stage.hire()) == "completed" and output(run) == "done"


def test_a_run_hears_of_the_drain_also_while_its_host_looks_for_more(stage: Stage) -> None:
    class SlowlyLooking(TidyHost):
        """While it drives something, its claim takes until it no longer does."""

        async def _claim(self, *args: Any) -> bool:
            while self.slots_used:  # noqa: ASYNC110  emptied by the runs
                await asyncio.sleep(0.005)
            return await super()._claim(*args)

    door = Door()
    run = stage.start(agent_with(ReplayClass.PURE, door))
    with working(stage, kind=SlowlyLooking) as host:
        assert door.reached.wait(30)
        host.drain(30)
        door.open()
    assert kinds(run)[-1] == "RunReleased" and fresh(run).owner is None, "it began no other step"
    assert kinds(run).count("RunClaimed") == 1, "nor did its host take it back"


def test_what_is_claimed_while_the_drain_is_asked_for_calls_nothing_and_is_handed_over(stage: Stage) -> None:
    class ToldMeanwhile(TidyHost):
        """Its drain is requested during a claim."""

        async def _claim(self, *args: Any) -> bool:
            asyncio.get_running_loop().call_soon(self.drain, 5)
            return await super()._claim(*args)

    run = stage.start(agent_with(ReplayClass.PURE, Door()))
    with working(stage, kind=ToldMeanwhile) as host:
        while host._drain_at is None:
            threading.Event().wait(0.005)
    assert kinds(run) == ["RunCreated", "RunClaimed", "VisitEntered", "RunReleased"], "it called nothing"
    assert events(run, e.RunReleased)[0].reason == "drain" and fresh(run).owner is None, "nor was it cut off"


def test_an_unsafe_call_that_never_answers_has_its_own_timeout_and_is_then_unknown(stage: Stage) -> None:
    run = stage.start(agent_with(ReplayClass.UNSAFE_ON_REPLAY, door := Door(), timeout=0.3))
    with working(stage) as host:
        assert door.reached.wait(30)
        host.drain(0)
    (unknown,) = events(run, e.ToolOutcomeUnknown)
    assert unknown.is_sender_done, "its sender said so itself: nobody has to prove that it is gone"
    assert str(fresh(run).state) == "waiting_human" and fresh(run).owner is None


def test_a_model_request_is_cut_at_the_deadline_and_asked_again(stage: Stage) -> None:
    door, items = Door(), []

    async def offline(messages: list[Any], info: Any) -> ModelResponse:
        items.append(1)
        await door.pass_through()
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "thought"})])

    thinker = Assistant(name="thinker", instructions="Think.", output=Done, offline=offline)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(thinker, "go")).ref)

    run = stage.start(agent_of(node, assistants=[thinker]))
    with working(stage) as host:
        assert door.reached.wait(30)
        host.drain(0)
    assert events(run, e.RunReleased)[0].reason == "drain deadline"
    door.open()
    assert stage.drive(stage.hire()) == "completed" and output(run) == "thought" and len(items) == 2
    assert kinds(run).count("ModelRequested") == 1, "its intent stands"


def test_a_draining_worker_claims_nothing_more(stage: Stage) -> None:
    door = Door()
    first = stage.start(agent_with(ReplayClass.UNSAFE_ON_REPLAY, door))
    with working(stage) as host:
        assert door.reached.wait(30)
        host.drain(30)
        assert host.has_looked.wait(30)
        second = stage.start(agent_with(ReplayClass.PURE, Door()))
        host.ring()
        door.open()
    assert kinds(second) == ["RunCreated"] and fresh(first).owner is None
    assert Run.objects.filter(owner__isnull=False).count() == 0
