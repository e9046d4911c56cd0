"""Receiving a delivery: events in any order, and a missing report."""

from __future__ import annotations

from typing import Any

from durableagents.demo.warehouse import agent
from tests.cases import each_case
from tests.unit.engine.story import Story

INPUT: dict[str, Any] = agent.samples[0].input
HANDOVER = {"carrier": "Hafen Logistik", "pallets": 4}


@each_case("first", ["signal", "answer"])
async def test_the_goods_are_received_no_matter_who_tells_first(first: str) -> None:
    story = Story(agent, INPUT)
    acts = [lambda: story.run.signal("delivered", HANDOVER), lambda: story.run.answer({"pallets": 4, "damaged": 0})]
    for act in acts if first == "signal" else acts[::-1]:
        assert await story.drive() == "parked"
        act()
    assert await story.drive() == "completed"
    assert story.output == {
        "order_number": "PO-000052",
        "verdict": "complete",
        "counted": 4,
        "missing": 0,
        "carrier": "Hafen Logistik",
    }


@each_case(("kind", "how"), [("signal", "completed"), ("input", "failed")])
async def test_a_carrier_may_be_silent_but_somebody_has_to_count(kind: str, how: str) -> None:
    story = Story(agent, INPUT)
    assert await story.drive() == "parked"
    for wait_id, _ in story.waiting(kind):
        story.run.resolve(wait_id, "timed_out")
    assert await story.drive() == "parked", "the other is still waited for"
    if kind == "signal":
        story.run.answer({"pallets": 4, "damaged": 0})
    else:
        story.run.signal("delivered", HANDOVER)
    assert await story.drive() == how
    assert story.output["carrier"] is None if how == "completed" else story.failure.code == "not_counted"
