"""A deadline that no list could show is refused where it is given, and never stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import Context, End, Gate, Pending, ReplayClass, ToolCall, WorkingHours, tool
from durableagents.testing.family import DeclaredTiming
from ledger import events as e
from runs.engine.errors import DefinitionError
from runs.engine.journal import WaitSpec
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, Outside, agent_of

AGES = timedelta(days=4_000_000)
LAST, FIRST = (
    datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=12))),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))),
)


class Answer(BaseModel):
    text: str = ""


@each_case("deadline", [LAST, FIRST, datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
def test_no_wait_is_made_with_a_deadline_outside_the_calendar(deadline: datetime) -> None:
    with pytest.raises(ValueError, match="not within the years 1 to 9999 in UTC"):
        WaitSpec("run", "0.1/1", 0, "timer", 0, deadline)


def test_the_calendar_reaches_far() -> None:
    for year in (2, 9999):
        assert WaitSpec("run", "0.1/1", 0, "timer", 0, datetime(year, 6, 1, tzinfo=UTC)).deadline.year == year


@each_case(
    "wrong",
    [
        lambda ctx: ctx.sleep(until=LAST),
        lambda ctx: ctx.sleep(until=FIRST),
        lambda ctx: ctx.sleep(AGES.total_seconds()),
        lambda ctx: ctx.sleep(float("nan")),
        lambda ctx: ctx.signal("word", within=AGES),
        lambda ctx: ctx.ask("operator", title="What?", schema=Answer, within=AGES),
        lambda ctx: ctx.approve("finance_po", title="May I?", within=AGES),
    ],
)
async def test_the_node_that_gives_such_a_deadline_is_told(wrong: Any) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        with pytest.raises(ValueError, match=r"year|not a finite time"):
            await wrong(ctx)
        return End("told")

    story = Story(agent_of(node))
    assert await story.drive() == "completed" and story.output == "told"
    assert not story.run.waits and not story.events(e.WaitOpened) and not story.events(e.ApprovalRequested)


async def test_a_tool_that_answers_after_the_end_of_time_has_a_bug_and_its_run_says_so(outside: Outside) -> None:
    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Done)
    async def order(args: Item, call: ToolCall) -> Pending:
        outside.take("order", args, call)
        return Pending(within=AGES)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(order, Item(name="a"))
        return End()

    story = Story(agent_of(node, tools=[order]))
    assert await story.drive() == "failed" and story.failure.code == "tool_error"
    assert "Pending(within=" in story.failure.payload["message"]


@each_case("within", [AGES, timedelta(0), -timedelta(days=1), 5])
def test_a_gates_time_is_checked_when_it_is_declared(within: Any) -> None:
    with pytest.raises(DefinitionError, match="within"):
        Gate("finance_po", "any", within=within)


async def test_a_gate_says_what_comes_when_nobody_answers_and_the_plan_stays_what_it_was() -> None:
    async def asks(ctx: Context, **more: Any) -> End:
        return End((await ctx.approve("finance_po", title="May I?", **more)).by)

    plans = []
    for more in ({}, {"within": WorkingHours(8), "on_timeout": "remind"}):

        async def node(state: Notes, ctx: Context, more: Any = more) -> End:
            return await asks(ctx, **more)

        story = Story(agent_of(node, name="asker"), queue_timing=DeclaredTiming())
        assert await story.drive() == "parked"
        ((_, wait),) = story.waiting("approval")
        timed = story.events(e.ApprovalTimed)
        assert [x.on_timeout for x in timed] == (["remind"] if more else [])
        assert wait.spec.detail.get("on_timeout") == ("remind" if more else None)
        plan = story.events(e.ApprovalRequested)[0].payload
        plans.append({name: value for name, value in plan.items() if name != "run_id"})
        story.decide()
        assert await story.settle() == "completed" and story.events(e.ApprovalTimed) == timed, (
            "nothing is settled again"
        )
    assert plans[0] == plans[1]


@each_case(
    "more", [{"on_timeout": "approve"}, {"escalate_to": "board"}, {"on_timeout": "remind", "escalate_to": "board"}]
)
def test_a_gate_that_says_something_else_is_refused(more: Any) -> None:
    with pytest.raises(DefinitionError, match="on_timeout"):
        Gate(queue="finance_po", rule="any", **more)
