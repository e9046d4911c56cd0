"""Exported tests of the demo's runs replay in memory, without the sandbox."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from durableagents.contrib.replay.scripts import RecordedRun, proven_source_of_test
from durableagents.demo import customer_refund, mail_before_gate, vendor_onboard, warehouse
from durableagents.testing import Harness
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.memory import MemoryRun
from tests.integration.demo.onboarding import Onboarding
from tests.system.sandbox.harness import Receiver, Sandbox
from tests.unit.engine.story import Story

VENDOR, SANCTIONED = (sample.input for sample in vendor_onboard.agent.samples)


@pytest.fixture
def receiver(sandbox: Sandbox) -> Iterator[Receiver]:
    sandbox.fault(system="portal", w9_delay_seconds=0)
    receiver = Receiver()
    yield receiver
    receiver.close()


def as_test(agent: Agent, run: MemoryRun, sandbox: Sandbox) -> str:
    """Return the test of a run after one replay that must not reach the sandbox."""
    before = len(sandbox.executed())
    began = Harness(warehouse.agent, warehouse.agent.samples[0].input).clock.now
    times = [began + timedelta(seconds=n) for n in range(len(run.events))]
    text = proven_source_of_test(RecordedRun(run.id, agent, run.events[0], run.events[1:], times, run.state))
    assert len(sandbox.executed()) == before
    return text


async def onboarded(sandbox: Sandbox, receiver: Receiver, input: dict[str, Any] = VENDOR, **order: Any) -> Onboarding:
    whole = copy.deepcopy(input)
    whole["first_order"] |= order
    story = Onboarding(sandbox, receiver, whole, set())
    await story.drive()
    return story


async def test_one_that_finance_approves(sandbox: Sandbox, receiver: Receiver) -> None:
    story = await onboarded(sandbox, receiver)
    assert await story.decide("approved", "as quoted") == "completed"
    text = as_test(vendor_onboard.agent, story.run, sandbox)
    assert "story.approve(" in text and "story.call_back(" in text and "send_welcome" in text
    assert "from durableagents.demo.vendor_onboard import agent" in text


async def test_one_that_is_rejected_lowered_and_approved(sandbox: Sandbox, receiver: Receiver) -> None:
    story = await onboarded(sandbox, receiver)
    assert await story.decide("rejected", "At most $9,000, the rest next year") == "parked"
    waiting = as_test(vendor_onboard.agent, story.run, sandbox)
    assert "assert story.state == 'waiting_human'" in waiting
    assert await story.decide("approved", "fine") == "completed"
    text = as_test(vendor_onboard.agent, story.run, sandbox)
    assert text.index("story.reject(") < text.index("story.approve(")


async def test_one_that_legal_rejects(sandbox: Sandbox, receiver: Receiver) -> None:
    story = await onboarded(sandbox, receiver, SANCTIONED)
    assert await story.decide("rejected", "it is them", "legal") == "failed"
    assert "story.assert_failed(" in as_test(vendor_onboard.agent, story.run, sandbox)


@pytest.mark.parametrize("verdict", ["happened", "did_not"])
async def test_one_whose_mail_a_person_reconciled(sandbox: Sandbox, receiver: Receiver, verdict: str) -> None:
    whole = copy.deepcopy(VENDOR)
    whole["first_order"]["amount_usd"] = "500"
    story = Onboarding(sandbox, receiver, whole, {("CP4", "send_welcome")})
    assert await story.drive() == "parked"
    assert await story.settle(verdict, "seen in the inbox" if verdict == "happened" else None) == "completed"
    text = as_test(vendor_onboard.agent, story.run, sandbox)
    assert f"story.settle('{verdict}'" in text and "'unknown': True" in text


async def test_one_that_mails_before_it_asks(sandbox: Sandbox) -> None:
    for verdict in ("approved", "rejected"):
        story = Story(mail_before_gate.agent, mail_before_gate.agent.samples[0].input)
        await story.settle()
        story.decide(verdict)
        assert await story.settle() == "completed"
        as_test(mail_before_gate.agent, story.run, sandbox)


async def test_one_that_refunds_what_a_person_said_yes_to_and_one_that_is_proposed_again(sandbox: Sandbox) -> None:
    for number, verdicts in (("SO-600001", ["approved"]), ("SO-600002", ["rejected", "approved"])):
        given = {"order_number": number, "complaint": "Broken.", "wanted_usd": "50.00"}
        story = Story(customer_refund.agent, given)
        for verdict in verdicts:
            await story.settle()
            story.decide(verdict)
        assert await story.settle() == "completed"
        as_test(customer_refund.agent, story.run, sandbox)


async def test_one_that_waits_for_a_carrier_and_a_person(sandbox: Sandbox) -> None:
    story = Story(warehouse.agent, warehouse.agent.samples[0].input)
    await story.drive()
    story.run.answer({"pallets": 4, "damaged": 0})
    await story.drive()
    for wait_id, _ in story.waiting("signal"):
        story.run.resolve(wait_id, "timed_out")
    assert await story.drive() == "completed"
    text = as_test(warehouse.agent, story.run, sandbox)
    assert "story.answer(" in text and "story.let_pass(" in text
    assert isinstance(story.run.events[-1], e.RunCompleted)
