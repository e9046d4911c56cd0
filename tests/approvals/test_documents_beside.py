"""Documents with everything else that a gate has: stages, changes, policies, grants, yeses that lapsed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from approvals.cases.amending import amend
from approvals.documents.checking import NotShown
from approvals.models import Approval, Document
from approvals.queues import acts as queues
from approvals.services import decide
from durableagents import Context, End
from durableagents import Document as Given
from durableagents import Stage as Further
from runs.engine.gate.documents import MOST_BYTES
from runs.journal import wait_hooks
from runs.models import Wait
from runs.services import lifecycle
from tests.approvals.setup import WHY, boss, limited, say, somebody, sound
from tests.approvals.test_asked import added, known_as_open
from tests.approvals.test_documents import _nothing_drawn, asked, damage, opened, paying
from tests.approvals.test_policies import put
from tests.papers import jpeg, pdf, text
from tests.runs.stage import Stage, now
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of

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


def test_a_change_that_does_not_count_as_a_yes_needs_them_shown_too(stage: Stage, tools: Toolbox) -> None:
    """Whoever may not approve what it became would leave it to others, of what nobody was shown."""
    approval = asked(stage, paying(tools, [text()], editable=["amount"], amount="amount USD"))
    ann = replace(somebody("ann", "approver_finance"), role="approver_finance")
    limited(boss(), "3000", "ann")
    damage(text().digest, b"other")
    given = {"plan_hash": approval.plan_hash, "arguments": {"amount": 4000}, "justification": "less", "by": ann}
    with pytest.raises(NotShown):
        amend(approval.id, **given)
    assert Approval.objects.get().state == "open"
    damage(text().digest, text().bytes)
    assert amend(approval.id, **given).why_open


def test_the_largest_are_stored_and_shown(stage: Stage, tools: Toolbox) -> None:
    """Ten mebibytes each, twenty together, with a text beside them: in one commit, and on one page."""
    large = [Given(f"{n}.jpg", "image/jpeg", jpeg().bytes.ljust(MOST_BYTES, bytes([n]))) for n in range(2)]
    approval = asked(stage, paying(tools, large))
    assert sum(row.size for row in Document.objects.all()) == 2 * MOST_BYTES
    assert [len(each.pages) for each in opened(approval).documents] == [1, 1]
    assert say(approval, somebody("ann", "approver_finance")).state == "approved"
    assert stage.drive() == "completed"
    sound(approval.run)


def test_a_yes_that_lapsed_is_asked_for_again_with_the_same_documents(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()]))
    say(approval, somebody("ann", "approver_finance"))
    Wait.objects.filter(kind="approval").update(grant_expires_at=now() - timedelta(seconds=1))
    assert stage.drive() == "parked"
    again = Approval.objects.get(state="open")
    assert again.id != approval.id and again.documents == approval.documents
    assert opened(again).documents[0].problem == ""


def test_a_policys_question_shows_them_too(stage: Stage, tools: Toolbox) -> None:
    agent = paying(tools, [text()])
    put(boss(), tool="pay", queue="legal")
    approval = asked(stage, agent)
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    assert second.queue == "legal" and second.documents == approval.documents


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


def test_what_opens_no_question_stores_nothing(stage: Stage) -> None:
    """One transaction: a queue that was closed in this very moment refuses the question, and the bytes with it."""
    admin = boss()
    added(admin)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.approve("refunds", title="Pay back?", documents=[text(), pdf()])).by)

    run = stage.start(agent_of(node))
    queues.close("refunds", by=admin, justification=WHY)
    known_as_open()
    assert stage.drive() == "operator" and not Document.objects.exists()
    wait_hooks.queues.forget()
    queues.open_again("refunds", by=admin, justification=WHY)
    lifecycle.retry(run.pk, by=OLGA, justification="it is there again")
    assert stage.drive() == "parked" and Document.objects.count() == 2
    sound(run)
