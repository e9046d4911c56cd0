"""An e-mail before the decision leaves once, wherever the worker dies. Nothing is committed without approval."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents.demo.mail_before_gate import agent
from ledger import events as e
from tests.system.sandbox.harness import Sandbox
from tests.unit.engine.story import Story

ACME: dict[str, Any] = agent.samples[0].input
MAILED = ["email.send_announcement"]
DONE = [*MAILED, "erp.create_vendor"]
# Where a call can be interrupted. (A real process dies at CP3, inside the tool, in tests/system/crash; CP4 leaves the
# same.)
POINTS = ("CP1", "CP2", "CP4", "CP6")


def executed(sandbox: Sandbox, story: Story) -> list[str]:
    rows = [row for row in sandbox.executed() if row["run_id"] == story.run.id]
    return [f"{row['system']}.{row['operation']}" for row in rows]


def path(story: Story) -> list[str]:
    return [event.node for event in story.run.events if isinstance(event, e.VisitEntered)]


async def test_the_e_mail_leaves_before_the_yes_and_the_commit_after_it(sandbox: Sandbox) -> None:
    story = Story(agent, ACME)
    assert await story.settle() == "parked" and executed(sandbox, story) == MAILED
    story.decide("approved")
    assert await story.settle() == "completed" and executed(sandbox, story) == DONE
    assert path(story) == ["read", "plan", "send", "wait", "commit"]
    assert story.output["is_committed"] and story.output["vendor_id"].startswith("VND-")


async def test_a_no_commits_nothing_and_says_who_and_why(sandbox: Sandbox) -> None:
    story = Story(agent, ACME)
    await story.settle()
    story.decide("rejected", "We have enough pallets.")
    assert await story.settle() == "completed" and executed(sandbox, story) == MAILED
    assert story.output["reason"] == "We have enough pallets." and story.output["vendor_id"] is None


@pytest.mark.parametrize("tool", ["send_announcement", "create_vendor"])
@pytest.mark.parametrize("point", POINTS)
async def test_wherever_the_worker_dies_the_e_mail_has_left_once(sandbox: Sandbox, point: str, tool: str) -> None:
    """A mail that reached the server is found there; otherwise a person decides, and it is sent."""
    story = Story(agent, ACME, kill_at=[(point, tool)])
    assert await story.settle() == "parked"
    if story.waiting("reconcile"):
        assert (point, tool) == ("CP2", "send_announcement") and executed(sandbox, story) == []
        story.reconcile("did_not")
        assert await story.settle() == "parked"
    assert executed(sandbox, story) == MAILED
    story.decide("approved")
    assert await story.settle() == "completed" and executed(sandbox, story) == DONE
    assert story.kill_at == [], "the worker was to die there"


async def test_a_mail_whose_answer_was_lost_is_found_in_the_list_and_never_sent_twice(sandbox: Sandbox) -> None:
    sandbox.fault(system="email", operation="send_announcement", drop_after_execute_rate=1)
    story = Story(agent, ACME)
    assert await story.settle() == "parked" and story.waiting("approval") and not story.waiting("reconcile")
    (found,) = story.events(e.ToolReconciled)
    assert (found.by, found.verdict) == ("hook", "happened")
    story.decide("approved")
    assert await story.settle() == "completed" and executed(sandbox, story) == DONE
    assert story.output["message_id"] == found.payload["result"]["message_id"]
    assert len([row for row in sandbox.effects("send_announcement") if row["run_id"] == story.run.id]) == 1


async def test_a_mailbox_that_can_not_be_asked_is_no_proof(sandbox: Sandbox) -> None:
    """The server took the mail and died: without its list, the run stops for a person and sends nothing."""
    story = Story(agent, ACME, kill_at=[("CP4", "send_announcement")])
    assert await story.drive() == "killed"
    sandbox.kill()
    try:
        assert await story.drive() == "parked"
        assert not story.waiting("approval")
    finally:
        sandbox.start()
    if story.waiting("reconcile"):
        story.reconcile("happened", {"message_id": "seen"})
    assert await story.settle() == "parked" and story.waiting("approval")
    assert executed(sandbox, story) == MAILED
