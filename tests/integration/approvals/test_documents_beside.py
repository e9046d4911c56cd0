"""Documents with everything else that a gate has: stages, changes, policies, grants, yeses that lapsed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from approvals.cases.amending import amend
from approvals.documents.checking import NotShown
from approvals.models import Approval
from approvals.services import decide
from durableagents import Context, End
from durableagents import Document as Given
from durableagents import Stage as Further
from runs.models import Wait
from tests.integration.approvals.setup import say, somebody, sound
from tests.integration.approvals.test_documents import _nothing_drawn, asked, damage, opened, paying
from tests.integration.runs.stage import Stage, now
from tests.papers import pdf, text
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
__all__ = ["_nothing_drawn"]


def test_each_stage_is_shown_the_same(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()], then=[Further("legal")]))
    first = approval.documents
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    assert second.queue == "legal" and second.documents == first == json.loads(bytes(second.plan))["documents"]
    lee = replace(somebody("lee", "approver_legal"), role="approver_legal")
    damage(text().digest, b"other")
    with pytest.raises(NotShown):
        decide(second.id, verdict="approve", plan_hash=second.plan_hash, justification="as read", by=lee)
    damage(text().digest, text().bytes)
    decide(second.id, verdict="approve", plan_hash=second.plan_hash, justification="as read", by=lee)
    assert stage.drive() == "completed"
    sound(approval.run)


def test_what_is_changed_keeps_its_documents_and_a_damaged_one_can_not_be_changed(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    made: list[int] = []

    def documents(args: Item) -> list[Given]:
        made.append(args.amount)
        return [text(f"Pay {args.amount} USD.\n")]

    approval = asked(stage, paying(tools, editable=["amount"], documents=documents))
    ann = replace(somebody("ann", "approver_finance"), role="approver_finance")
    given = {"plan_hash": approval.plan_hash, "arguments": {"amount": 4000}, "justification": "less", "by": ann}
    digest = approval.documents[0]["sha256"]
    damage(digest, b"other")
    with pytest.raises(NotShown):
        amend(approval.id, **given)
    damage(digest, b"Pay 5000 USD.\n")
    following = amend(approval.id, **given).approval
    assert following.state == "approved" and following.documents == approval.documents
    assert stage.drive() == "completed" and [json.loads(x.body)["amount"] for x in outside.requests] == [4000]
    assert set(made) == {5000}, "what they were shown is of what was asked for"
    sound(approval.run)


def test_a_yes_that_lapsed_is_asked_for_again_with_the_same_documents(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()]))
    say(approval, somebody("ann", "approver_finance"))
    Wait.objects.filter(kind="approval").update(grant_expires_at=now() - timedelta(seconds=1))
    assert stage.drive() == "parked"
    again = Approval.objects.get(state="open")
    assert again.id != approval.id and again.documents == approval.documents
    assert opened(again).documents[0].problem == ""


def test_a_grant_carries_what_was_shown(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """`ctx.approve` for a call that is made later: what was shown with the yes is shown with the next question."""

    async def node(state: Notes, ctx: Context) -> End:
        body = Item(name="po", amount=5000)
        grant = await ctx.approve("finance_po", title="Pay", tool=tools.pay, body=body, documents=[text(), pdf()])
        return End((await ctx.call(tools.pay, body, grant=grant)).ref)

    approval = asked(stage, agent_of(node, tools=tools.all()))
    say(approval, somebody("ann", "approver_finance"))
    Wait.objects.filter(kind="approval").update(grant_expires_at=now() - timedelta(seconds=1))
    assert stage.drive() == "parked"
    again = Approval.objects.get(state="open")
    assert again.documents == approval.documents and outside.requests == []
    say(again, somebody("bob", "approver_finance"))
    assert stage.drive() == "completed"
