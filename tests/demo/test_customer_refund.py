"""Refunds: what a person says yes to, or makes of it, is paid once; a no is answered, silence is an end of its own."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from durableagents.demo.customer_refund import agent
from durableagents.demo.customer_refund.agent import AT_ONCE_UP_TO, REVISIONS
from durableagents.demo.customer_refund.tools import Refund, refund_at_once, refund_customer
from ledger import events as e
from tests.engine.amending import amend
from tests.engine.story import HASHER, Story
from tests.sandbox.harness import Sandbox

HOTEL, CAFE, MUSEUM, BISTRO = (sample.input for sample in agent.samples)
# The shop pays no more than what is left of an order, and remembers: each story has one of its own.
_numbers = (f"SO-7{n:05d}" for n in count())


def told(wanted: str = "60.00", **more: Any) -> Story:
    return Story(agent, {"order_number": next(_numbers), "complaint": "Broken.", "wanted_usd": wanted, **more})


def paid(sandbox: Sandbox, story: Story) -> int:
    return len([row for row in sandbox.executed("refund") if row["run_id"] == story.run.id])


def question(story: Story) -> dict[str, Any]:
    """What is asked now."""
    return dict(story.events(e.ApprovalRequested)[-1].payload)


def changed(story: Story, **arguments: Any) -> None:
    """As finance, who approves with changes."""
    ((wait_id, _),) = story.waiting("approval")
    amend(story.run, wait_id, arguments, tool=refund_customer, hasher=HASHER)


async def test_what_was_proposed_is_paid_after_the_yes(sandbox: Sandbox) -> None:
    story = Story(agent, HOTEL)
    assert await story.settle() == "parked" and paid(sandbox, story) == 0
    asked = question(story)
    assert asked["arguments"] == {
        "customer": "Hotel Inselhof",
        "order_number": "SO-004711",
        "amount_usd": "640.00",
        "note": asked["arguments"]["note"],
    }
    assert asked["amount"] == {"value": "640.00", "currency": "USD"}
    assert set(asked["editable"]["properties"]) == {"amount_usd", "note"}
    story.decide("approved")
    assert await story.settle() == "completed" and paid(sandbox, story) == 1
    assert story.output["outcome"] == "paid" and story.output["changed_by"] is None


async def test_what_a_person_made_of_it_is_what_is_paid_and_the_result_says_who(sandbox: Sandbox) -> None:
    story = told("60.00")
    await story.settle()
    changed(story, amount_usd="25.00", note="Half of it, as we said on the phone.")
    assert await story.settle() == "completed" and paid(sandbox, story) == 1
    assert (story.output["amount_usd"], story.output["changed_by"]) == ("25.00", "user:finance")


async def test_a_no_that_names_an_amount_is_answered_with_that_amount(sandbox: Sandbox) -> None:
    story = told("60.00")
    await story.settle()
    story.decide("rejected", "At most $40, the rest was fine.")
    assert await story.settle() == "parked" and question(story)["arguments"]["amount_usd"] == "40.00"
    story.decide("approved")
    assert await story.settle() == "completed" and story.output["amount_usd"] == "40.00"


async def test_who_says_no_to_every_proposal_ends_it_and_nothing_is_paid(sandbox: Sandbox) -> None:
    story = told()
    for turn in range(REVISIONS + 1):
        assert await story.settle() == "parked", turn
        story.decide("rejected", "They have had enough of us.")
    assert await story.settle() == "completed" and paid(sandbox, story) == 0
    assert (story.output["outcome"], story.output["reason"]) == ("refused", "They have had enough of us.")


async def test_silence_is_told_apart_from_a_no(sandbox: Sandbox) -> None:
    story = told()
    await story.settle()
    story.decide("expired", "nobody decided in time")
    assert await story.settle() == "completed" and paid(sandbox, story) == 0
    assert story.output["outcome"] == "not_decided"


@pytest.mark.parametrize("wanted", ["9999.00", "640.01"])
async def test_nobody_gets_more_than_they_paid(sandbox: Sandbox, wanted: str) -> None:
    story = Story(agent, HOTEL | {"wanted_usd": wanted})
    await story.settle()
    assert question(story)["arguments"]["amount_usd"] == "640.00"


async def test_what_a_person_makes_more_than_was_paid_the_shop_refuses_and_nothing_leaves(sandbox: Sandbox) -> None:
    story = told()
    await story.settle()
    changed(story, amount_usd="99999.00")
    assert await story.settle() == "failed" and paid(sandbox, story) == 0


async def test_who_is_on_the_phone_is_asked_about_for_two_minutes_up_to_a_small_sum(sandbox: Sandbox) -> None:
    story = Story(agent, BISTRO)
    await story.settle()
    assert question(story)["tool"] == "refund_at_once"
    assert refund_at_once.gate is not None and refund_at_once.gate.within == timedelta(minutes=2)
    dear = Story(agent, CAFE | {"is_on_the_phone": True, "wanted_usd": str(AT_ONCE_UP_TO + 1)})
    await dear.settle()
    assert question(dear)["tool"] == "refund_customer"


@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6"])
async def test_wherever_the_worker_dies_it_is_paid_once(sandbox: Sandbox, point: str) -> None:
    story = told()
    await story.settle()
    changed(story, amount_usd="25.00")
    story.kill_at = [(point, "refund_customer")]
    assert await story.settle() == "completed" and paid(sandbox, story) == 1 and story.kill_at == []
    assert story.output["amount_usd"] == "25.00" and story.output["changed_by"] == "user:finance"


async def test_an_answer_that_was_lost_is_found_under_the_key(sandbox: Sandbox) -> None:
    sandbox.fault(system="shop", operation="refund", drop_after_execute_rate=1)
    story = told()
    await story.settle()
    story.decide("approved")
    assert await story.settle() == "completed" and paid(sandbox, story) == 1
    assert story.output["refund_id"].startswith("RFD-")


async def test_an_order_that_nobody_made_fails_before_anybody_is_asked(sandbox: Sandbox) -> None:
    story = Story(agent, HOTEL | {"order_number": "SO-000000"})
    assert await story.settle() == "failed" and story.events(e.ApprovalRequested) == []


@pytest.mark.parametrize("wrong", ["0", "-5", "1000000.01", "1.005", "NaN", "much", True, None])
def test_an_amount_that_is_none_is_refused(wrong: Any) -> None:
    given = {"customer": "A", "order_number": "SO-004711", "amount_usd": "5", "note": "n"}
    assert Refund.model_validate(given).model_dump(mode="json")["amount_usd"] == "5.00"
    with pytest.raises(ValueError, match="amount_usd"):
        Refund.model_validate(given | {"amount_usd": wrong})


def test_its_samples_show_a_limit_a_policy_and_a_clock() -> None:
    assert [float(each["wanted_usd"]) for each in (HOTEL, CAFE, MUSEUM, BISTRO)] == [640, 3800, 7400, 95]
    assert BISTRO["is_on_the_phone"]
