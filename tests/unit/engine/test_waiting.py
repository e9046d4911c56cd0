from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from durableagents import BadSignal, Context, Expired, Rejected, TimedOut
from ledger import events as e
from tests.cases import each_case
from tests.unit.engine.gathers import Body, gathering, ring
from tests.unit.engine.story import Story
from tests.world import Item, Outside, Toolbox


class Visit(BaseModel):
    day: str
    people: int = Field(ge=1)

    @field_validator("day")
    @classmethod
    def not_sunday(cls, day: str) -> str:
        if day == "sunday":
            raise ValueError("nobody works then")
        return day


def story_of(tools: Toolbox, body: Body) -> Story:
    return Story(gathering(tools, body))


def time_out(story: Story, kind: str) -> None:
    for wait_id, _ in story.waiting(kind):
        story.run.resolve(wait_id, "timed_out")


# --- signals ---


async def test_a_signal_wakes_anyone_who_waits_and_its_payload_is_stored_once(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        return await ctx.signal("shipped")

    story = story_of(tools, body)
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    ((_, wait),) = story.waiting("signal")
    assert wait.spec.detail["name"] == "shipped"
    assert story.run.signal("shipped", {"parcel": 7}) == 1
    assert await story.drive() == "completed" and story.output == {"parcel": 7}
    assert [x.KIND for x in story.run.events if x.payload == {"parcel": 7}] == ["SignalReceived", "RunCompleted"]


@each_case("has_else", [True, False])
async def test_when_time_runs_out_the_node_takes_its_declared_way(tools: Toolbox, has_else: bool) -> None:
    async def body(ctx: Context) -> Any:
        within = timedelta(minutes=5)
        if has_else:
            return await ctx.signal("go", within=within, or_else="never mind")
        with pytest.raises(TimedOut, match="signal go did not arrive"):
            await ctx.signal("go", within=within)
        return "told"

    story = story_of(tools, body)
    assert await story.drive() == "parked"
    time_out(story, "signal")
    assert await story.drive() == "completed" and story.output == ("never mind" if has_else else "told")


async def test_one_that_comes_too_late_is_kept_for_the_next_who_waits(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        first = await ctx.signal("go", or_else="nothing")
        await ctx.sleep(0)
        return [first, await ctx.signal("go")]

    story = story_of(tools, body)
    assert await story.drive() == "parked"
    time_out(story, "signal")
    assert await story.drive() == "parked"
    story.run.signal("go", "late")
    assert await story.settle() == "completed" and story.output == ["nothing", "late"]


async def test_a_signal_comes_as_what_the_node_wants_or_the_node_is_told(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        try:
            await ctx.signal("visit", Visit)
        except BadSignal as bad:
            problem = bad.problem
        return [problem, (await ctx.signal("visit", Visit)).people]

    story = story_of(tools, body)
    story.run.signal("visit", {"day": "monday", "people": 0})
    story.run.signal("visit", {"day": "monday", "people": 2})
    assert await story.drive() == "completed"
    assert story.output == ["people: Input should be greater than or equal to 1", 2]


async def test_nobody_catches_it_and_the_run_fails_by_name(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        await ctx.signal("visit", Visit)

    story = story_of(tools, body)
    story.run.signal("visit", "what?")
    assert await story.drive() == "failed" and story.failure.code == "bad_signal"
    other = story_of(tools, body)
    assert await other.drive() == "parked"
    time_out(other, "signal")
    assert await other.drive() == "failed" and other.failure.code == "timed_out"


@each_case("name", ["", "Go", "a b", "ü", "x" * 65, "1st", "a/b"])
async def test_a_name_that_is_none_is_the_nodes_mistake(tools: Toolbox, name: str) -> None:
    async def body(ctx: Context) -> Any:
        with pytest.raises(ValueError, match="signal name"):
            await ctx.signal(name)
        return "well"

    story = story_of(tools, body)
    assert await story.drive() == "completed"


# --- questions ---


async def test_an_answer_comes_back_as_what_was_asked_for(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        visit = await ctx.ask("legal", title="When?", schema=Visit, prefilled={"day": "monday"})
        return visit.model_dump()

    story = story_of(tools, body)
    assert await story.drive() == "parked" and story.run.state == "waiting_human"
    ((_, wait),) = story.waiting("input")
    assert wait.spec.detail == {
        "title": "When?",
        "of": "legal",
        "prefilled": {"day": "monday"},
        "schema": Visit.model_json_schema(),
    }
    story.run.answer({"day": "friday", "people": 3})
    assert await story.drive() == "completed" and story.output == {"day": "friday", "people": 3}


async def test_an_answer_that_only_the_schemas_own_code_refuses_is_asked_for_again(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        return (await ctx.ask("legal", title="When?", schema=Visit)).day

    story = story_of(tools, body)
    for day in ("sunday", "sunday", "tuesday"):
        assert await story.drive() == "parked"
        story.run.answer({"day": day, "people": 1})
    assert await story.drive() == "completed" and story.output == "tuesday"
    payloads = [x.payload for x in story.events(e.WaitOpened)]
    assert [x.get("problem") for x in payloads] == [None, *["day: Value error, nobody works then"] * 2]
    assert payloads[1]["prefilled"] == {"day": "sunday", "people": 1}, "what was typed is not lost"


@each_case("has_else", [True, False])
async def test_a_question_that_nobody_answers_takes_the_declared_way(tools: Toolbox, has_else: bool) -> None:
    async def body(ctx: Context) -> Any:
        if has_else:
            return await ctx.ask("legal", title="When?", schema=Visit, or_else=None)
        with pytest.raises(TimedOut, match="answer to 'When"):
            await ctx.ask("legal", title="When?", schema=Visit)
        return "told"

    story = story_of(tools, body)
    assert await story.drive() == "parked"
    time_out(story, "input")
    assert await story.drive() == "completed" and story.output == (None if has_else else "told")


async def test_a_person_a_signal_and_a_clock_are_waited_for_together(tools: Toolbox, outside: Outside) -> None:
    async def guarded(ctx: Context) -> str:
        got = await ctx.signal("go", within=timedelta(hours=1), or_else="nobody said so")
        await ctx.call(tools.mail, Item(name="after the signal"))
        return str(got)

    async def body(ctx: Context) -> Any:
        day, got, _ = await ctx.gather(ctx.ask("legal", title="When?", schema=Visit), guarded(ctx), ctx.sleep(60))
        return [day.day, got]

    story = story_of(tools, body)
    assert await story.drive() == "parked" and story.run.state == "waiting_human"
    assert sorted(w.spec.kind for w in story.run.open_waits()) == ["input", "signal", "timer"]
    time_out(story, "signal")
    assert await story.drive() == "parked" and len(outside.requests) == 1
    story.run.answer({"day": "friday", "people": 1})
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    ring(story)
    assert await story.drive() == "completed" and story.output == ["friday", "nobody said so"]
    assert len(outside.requests) == 1


# --- gates ---


async def test_a_gate_that_nobody_decides_is_told_from_one_that_somebody_denied(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        try:
            await ctx.call(tools.pay, Item(name="a", amount=5000))
        except Expired as late:
            return ["nobody", late.verdict]
        except Rejected as no:
            return ["somebody", no.verdict]

    for verdict, expected in (("expired", "nobody"), ("rejected", "somebody")):
        story = story_of(tools, body)
        assert await story.drive() == "parked"
        story.decide(verdict)
        assert await story.drive() == "completed" and story.output == [expected, verdict]


# --- retrying a failed run ---


async def test_what_came_before_a_wait_is_past_for_a_retry(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        await ctx.signal("go")
        raise RuntimeError("later")

    story = story_of(tools, body)
    story.run.signal("go", 1)
    assert await story.drive() == "failed"
    story.retry_run()
    assert await story.drive() == "failed" and len(story.events(e.SignalTaken)) == 1, (
        "the same signal answers the same call"
    )


# --- a retry asks again ---


@each_case("kind", ["signal", "input"])
async def test_a_retry_waits_again_for_what_nobody_sent_or_answered_in_time(tools: Toolbox, kind: str) -> None:
    async def body(ctx: Context) -> Any:
        if kind == "signal":
            return await ctx.signal("go")
        return (await ctx.ask("finance_po", title="What?", schema=Item)).name

    story = story_of(tools, body)
    for attempt in range(3):
        assert await story.drive() == "parked"
        ((_, wait),) = story.waiting(kind)
        assert (wait.spec.attempt, wait.spec.n) == (attempt, 0)
        if attempt < 2:
            time_out(story, kind)
            assert await story.drive() == "failed" and story.failure.code == "timed_out"
            story.retry_run()
    if kind == "signal":
        story.run.signal("go", "at last")
    else:
        story.run.answer({"name": "at last", "amount": 1})
    assert await story.drive() == "completed" and story.output == "at last"


async def test_a_time_that_ran_out_and_that_the_node_went_on_from_stays_the_past(tools: Toolbox) -> None:
    async def body(ctx: Context) -> Any:
        came = await ctx.signal("go", or_else="nobody")
        await ctx.call(tools.order, Item(name=came))
        await ctx.signal("on")

    story = story_of(tools, body)
    await story.drive()
    time_out(story, "signal")
    await story.drive()
    time_out(story, "signal")
    assert await story.drive() == "failed"
    story.retry_run()
    assert await story.drive() == "parked" and [wait.spec.detail["name"] for _, wait in story.waiting("signal")] == [
        "on"
    ]
