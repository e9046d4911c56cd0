"""Refunds: an approval, amended or not, pays once; a rejection is answered, and expiry ends differently."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from durableagents.demo.customer_refund import agent
from durableagents.demo.customer_refund.tools import refund_customer
from ledger import events as e
from tests.system.sandbox.harness import Sandbox
from tests.unit.engine.amending import amend
from tests.unit.engine.story import HASHER, Story

HOTEL, CAFE, MUSEUM, BISTRO = (sample.input for sample in agent.samples)
# The shop remembers orders and refunds only what is left, so each test has its own order.
_numbers = (f"SO-7{n:05d}" for n in count())


def told(wanted: str = "60.00", **more: Any) -> Story:
    return Story(agent, {"order_number": next(_numbers), "complaint": "Broken.", "wanted_usd": wanted, **more})


def paid(sandbox: Sandbox, story: Story) -> int:
    return len([row for row in sandbox.executed("refund") if row["run_id"] == story.run.id])


def question(story: Story) -> dict[str, Any]:
    return dict(story.events(e.ApprovalRequested)[-1].payload)


def changed(story: Story, **arguments: Any) -> None:
    ((wait_id, _),) = story.waiting("approval")
    amend(story.run, wait_id, arguments, tool=refund_customer, hasher=HASHER)


async def test_what_was_proposed_is_paid_after_the_yes(sandbox: Sandbox) -> None:
    story = Story(agent, HOTEL)
    assert await story.settle() == "parked" and paid(sandbox, story) == 0
    request = question(story)
    assert request["arguments"] == {
        "customer": "Hotel Inselhof",
        "order_number": "SO-004711",
        "amount_usd": "640.00",
        "note": request["arguments"]["note"],
    }
    assert request["amount"] == {"value": "640.00", "currency": "USD"}
    assert set(request["editable"]["properties"]) == {"amount_usd", "note"}
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


@pytest.mark.parametrize("wanted", ["9999.00", "640.01"])
async def test_nobody_gets_more_than_they_paid(sandbox: Sandbox, wanted: str) -> None:
    story = Story(agent, HOTEL | {"wanted_usd": wanted})
    await story.settle()
    assert question(story)["arguments"]["amount_usd"] == "640.00"


@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6"])
async def test_wherever_the_worker_dies_it_is_paid_once(sandbox: Sandbox, point: str) -> None:
    story = told()
    await story.settle()
    changed(story, amount_usd="25.00")
    story.kill_at = [(point, "refund_customer")]
    assert await story.settle() == "completed" and paid(sandbox, story) == 1 and story.kill_at == []
    assert story.output["amount_usd"] == "25.00" and story.output["changed_by"] == "user:finance"
