"""An outage fails no run, however long: the run waits without a slot, and leaves a bounded trace."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from durableagents import BusinessFailure, Context, End, NotSent, TransportError
from ledger import events as e
from runs.engine.call import BURST
from runs.engine.runtime import RetryPolicy
from runs.engine.steps.retry import seconds_asked
from tests.cases import each_case
from tests.tiers import many
from tests.unit.engine.story import Story
from tests.world import AT_ONCE, IN_PLACE, Item, Notes, Outside, Toolbox, agent_of

HOURS = many(300, 40)  # rounds of at most five minutes each: together more than a day


def one_call(tools: Toolbox, name: str) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(getattr(tools, name), Item(name="a"))).ref)

    return agent_of(node, tools=tools.all())


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_outage_of_a_day_is_waited_for_and_has_one_effect(tools: Toolbox, outside: Outside, when: Any) -> None:
    outside.trouble("order", *[TransportError("away")] * HOURS, when=when)
    story = Story(one_call(tools, "order"), retry=AT_ONCE)
    for _ in range(HOURS):
        assert await story.drive() == "parked"
        ((wait_id, _wait),) = story.waiting("timer")
        story.run.resolve(wait_id, "fired")
    assert await story.drive() == "completed"
    assert len(outside.executed("order")) == 1 and len({(r.key, r.body) for r in outside.seen("order")}) == 1
    counts = Counter(story.kinds())
    assert counts["ToolRedispatched"] == counts["WaitOpened"] == HOURS, "one announcement a round"


async def test_what_is_not_sent_for_a_day_is_sent_in_the_end_though_unsafe(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("mail", *[NotSent("refused")] * HOURS)
    story = Story(one_call(tools, "mail"), retry=AT_ONCE)
    for _ in range(HOURS):
        assert await story.drive() == "parked"
        ((wait_id, _wait),) = story.waiting("timer")
        story.run.resolve(wait_id, "fired")
    assert await story.drive() == "completed"
    assert len(outside.seen("mail")) == 1


async def test_a_key_in_progress_is_asked_again_under_one_announcement(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", *[TransportError("409: this key is in progress")] * BURST)
    story = Story(one_call(tools, "order"), retry=IN_PLACE)
    assert await story.drive() == "completed"
    (found,) = story.events(e.ToolRedispatched)
    assert (found.n, found.tries) == (1, BURST)


async def test_more_tries_than_were_announced_are_announced_again(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", *[TransportError("409")] * (2 * BURST + 1))
    story = Story(one_call(tools, "order"), retry=IN_PLACE)
    assert await story.drive() == "completed"
    assert [event.n for event in story.events(e.ToolRedispatched)] == [1, 2, 3]


async def test_an_unsafe_call_is_announced_try_by_try(tools: Toolbox, outside: Outside) -> None:
    """Each proof that it was not sent makes it known; the next try must make it unknown again."""
    outside.trouble("mail", *[NotSent("refused")] * 3)
    story = Story(one_call(tools, "mail"), retry=IN_PLACE)
    assert await story.drive() == "completed"
    assert [event.tries for event in story.events(e.ToolRedispatched)] == [1, 1, 1]


@pytest.mark.parametrize("wish", ["is_cancel_requested", "is_pause_requested"])
async def test_a_wish_between_two_tries_of_a_burst_is_heard(tools: Toolbox, outside: Outside, wish: str) -> None:
    story = Story(one_call(tools, "order"), retry=IN_PLACE)

    def ask(call: Any) -> None:
        setattr(story.run, wish, True)
        raise TransportError("409")

    outside.trouble("order", TransportError("409"), TransportError("409"), ask, when="after")
    assert await story.drive() in ("paused", "parked")
    assert len(outside.seen("order")) == 3, "nothing was sent after it"


async def test_an_answer_that_comes_between_two_tries_of_a_burst_ends_it(tools: Toolbox, outside: Outside) -> None:
    story = Story(one_call(tools, "ask"), retry=IN_PLACE)

    def answer(call: Any) -> None:
        answered = e.CallbackReceived(slot=call.slot, attempt=0, tool="ask", payload={"ref": "came"})
        story.run.append([answered])
        raise TransportError("409")

    outside.trouble("ask", TransportError("409"), TransportError("409"), answer, when="after")
    assert await story.drive() == "completed" and story.output == "came"
    assert len(outside.seen("ask")) == 3


async def test_a_refusal_after_an_outage_comes_to_the_node_as_data(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(tools.order, Item(name="a"))).ref)
        except Exception as error:
            return End(str(error))

    outside.trouble("order", TransportError("away"), BusinessFailure("out of stock"))
    story = Story(agent_of(node, tools=tools.all()), retry=IN_PLACE)
    assert await story.drive() == "completed" and story.output == "order: out of stock"


# --- how long ---


async def test_what_the_other_side_asks_for_is_kept_to(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", TransportError("503", retry_after=120))
    story = Story(one_call(tools, "order"), retry=RetryPolicy())
    assert await story.drive() == "parked", "longer than is waited in place"
    ((_, wait),) = story.waiting("timer")
    assert 119 < (wait.spec.deadline - story.run.claim().now()).total_seconds() <= 150


def test_in_place_nobody_is_asked_sooner_than_they_said_and_nobody_waits_forever() -> None:
    policy = RetryPolicy()
    assert all(policy.delay(n, retry_after=1.5) >= 1.5 for n in range(1, 40))
    assert policy.delay(1, retry_after=10**9) <= policy.asked_longest + policy.longest
    assert policy.timer(0, retry_after=10**9) <= policy.asked_longest * 1.25
    assert policy.delay(1, retry_after=-5) >= 0


def test_rounds_grow_with_the_outage_and_do_not_come_in_step() -> None:
    policy = RetryPolicy()
    for round_, least in enumerate((5, 10, 20, 40, 80, 160, 300, 300, 300)):
        lengths = {policy.timer(round_) for _ in range(50)}
        assert all(least <= length <= least * 1.25 for length in lengths) and len(lengths) > 25
    assert not policy.is_over(11, 0) and policy.is_over(11, 1), "later rounds only look whether it is back"


@each_case(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("9" * 40, 999_999_999.0),
        ("-3", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_other_sides_clock(header: str | None, seconds: float | None) -> None:
    date = {"date": "Thu, 01 Jan 1970 00:00:10 GMT"}
    assert seconds_asked(date if header is None else {**date, "retry-after": header}) == seconds


def test_a_date_without_a_clock_to_read_it_by_asks_for_nothing() -> None:
    assert seconds_asked({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}) is None
