"""Version 2 compensates: the order is cancelled and the vendor deactivated, in this order, once each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from durableagents.demo import vendor_onboard
from ledger import events as e
from runs.engine.agents import Agent, registry
from tests.system.sandbox.harness import Receiver, Sandbox

from .onboarding import Onboarding

DONE = ["portal.request_w9", "erp.create_vendor", "erp.file_purchase_order"]
UNDONE = ["erp.cancel_order", "erp.deactivate_vendor"]
Start = Callable[..., Onboarding]


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Register version 2 for this test only: other tests start the first version by name."""
    from durableagents.demo.vendor_onboard_2 import agent as second

    registry.add(second)
    yield second
    registry.remove(second.graph_id)


@pytest.fixture
def onboard(sandbox: Sandbox, agent: Agent) -> Iterator[Start]:
    sandbox.fault(system="portal", w9_delay_seconds=0)
    receiver = Receiver()

    def start(amount: str = "500.00", crash_at: set[tuple[str, str]] = frozenset()) -> Onboarding:  # type: ignore[assignment]
        whole: dict[str, Any] = copy.deepcopy(agent.samples[0].input)
        whole["first_order"] |= {"amount_usd": amount}
        return Onboarding(sandbox, receiver, whole, set(crash_at), agent)

    yield start
    receiver.close()


def test_it_stands_beside_the_first_version_whose_way_it_goes(agent: Agent) -> None:
    agent.validate()
    assert agent.graph_id == "vendor-onboard@2.0.0" and [*agent.nodes] == [*vendor_onboard.agent.nodes]
    assert [(n.edges, n.title) for n in agent.nodes.values()] == [
        (n.edges, n.title) for n in vendor_onboard.agent.nodes.values()
    ]
    assert not vendor_onboard.agent.all_undos()
    assert {t.name for t in agent.all_tools() if t.undo is not None} == {"create_vendor", "file_purchase_order"}


async def test_where_all_goes_well_nothing_is_undone(onboard: Start) -> None:
    story = onboard()
    assert await story.drive() == "completed"
    assert story.executed() == [*DONE, "credentials.provision", "email.send_welcome"]


@pytest.mark.parametrize(
    "crash_at",
    [set(), {(point, tool) for point in ("CP1", "CP2", "CP4") for tool in ("cancel_order", "deactivate_vendor")}],
)
async def test_credentials_that_are_refused_cancel_the_order_and_deactivate_the_vendor(
    onboard: Start, sandbox: Sandbox, crash_at: set[tuple[str, str]]
) -> None:
    sandbox.fault(system="credentials", operation="provision", refuse_rate=1)
    story = onboard(crash_at=crash_at)
    assert await story.drive() == "failed" and not story.crash_at
    assert story.executed() == DONE + UNDONE
    assert story.run.events[-1].code == "http_403"  # type: ignore[attr-defined]
    told = story.ended["undo"]
    assert [(x["tool"], x["external_id"][:3]) for x in told["undone"]] == [
        ("file_purchase_order", "PO-"),
        ("create_vendor", "VND"),
    ]
    assert [x["tool"] for x in told["stays"]] == ["request_w9"] and not told["left"]
    compensated = [(x.tool, x.slot) for x in story.run.entries if x.fact == "compensated"]
    assert [tool for tool, _ in compensated] == ["file_purchase_order", "create_vendor"]
    shown = sandbox.client.get("/erp").text
    assert "cancelled" in shown and "deactivated" in shown


async def test_a_no_of_finance_deactivates_the_vendor_that_was_made(onboard: Start) -> None:
    story = onboard(amount="84000.00")
    assert await story.drive() == "parked"
    for _ in range(2):
        assert await story.decide("rejected", "too expensive") == "parked"
    assert await story.decide("rejected", "we don't need it") == "failed"
    assert story.executed() == [*DONE[:2], "erp.deactivate_vendor"]


async def test_an_erp_that_will_not_cancel_stops_for_an_operator(onboard: Start, sandbox: Sandbox) -> None:
    sandbox.fault(system="credentials", operation="provision", refuse_rate=1)
    sandbox.fault(system="erp", operation="cancel_order", refuse_rate=1)
    story = onboard()
    assert await story.drive() == "parked" and story.executed() == DONE
    (asked,) = [w.spec for w in story.run.open_waits() if w.spec.kind == "input"]
    assert asked.detail["title"].startswith("file_purchase_order (PO-") and asked.detail["of"] == "operator"
    sandbox.fault(system="erp", operation="cancel_order")
    story.run.answer({"decision": "retry", "justification": "It is open for that again."})
    assert await story.drive() == "failed" and story.executed() == DONE + UNDONE
    assert sum(isinstance(x, e.EffectUndone) for x in story.run.events) == 2


def test_what_takes_back_is_keyed_and_found_by_its_key(sandbox: Sandbox) -> None:
    vendor = {"legal_name": "A", "country": "DE", "tax_id": "DE1234", "contact_email": "a@b.example", "category": "c"}
    made = sandbox.post("/api/erp/vendors", vendor, "v1").json()["vendor_id"]
    for _ in range(2):
        answer = sandbox.post("/api/erp/vendor-deactivations", {"vendor_id": made}, "d1")
        assert (answer.status_code, answer.json()) == (201, {"vendor_id": made, "status": "inactive"})
    assert sum(row["executed"] for row in sandbox.effects("deactivate_vendor") if row["idempotency_key"] == "d1") == 1
    found = sandbox.client.get("/api/erp/vendor-deactivations", params={"idempotency_key": "d1"}).json()["results"]
    assert [x["vendor_id"] for x in found] == [made]
    assert sandbox.post("/api/erp/vendor-deactivations", {"vendor_id": "VND-999999"}, "d2").status_code == 422
    assert sandbox.post("/api/erp/order-cancellations", {"po_number": "nonsense"}, "d3").status_code == 422
