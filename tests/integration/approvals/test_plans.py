"""The plan: what is asked is what is shown is what is hashed is what is executed; a rejected one leads to the next
revision."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785

from approvals.api.present import approval_row
from approvals.brief import plan_of
from approvals.models import Approval
from approvals.votes.shown import stages_of
from durableagents import Context, End, Evidence, Rejected
from ledger import events as e
from runs.engine.agents import Agent
from runs.journal.digests import hasher
from tests.integration.runs.stage import Stage, events
from tests.world import FIONA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db

ODD: list[Any] = [
    {"note": "line\nbreak \u2028 <script>alert(1)</script> \u202egnp.exe"},
    {"amount": 84_000, "share": 0.1, "big": 2**53 - 1, "small": -1e-7, "none": None},
    {"ключ": "значение", "🧾": ["日本", "é", "e\u0301"]},
    ["deep", [[[[["deeper"]]]]]],
    "",
]


def revising(tools: Toolbox, evidence: Any = None) -> Agent:
    """An agent that lowers its order each time it is rejected, up to three times."""

    async def node(state: Notes, ctx: Context) -> str | End:
        amount = 5000 - 1000 * len(state.seen)
        shown = [Evidence("quote", "vendor", evidence)]
        try:
            done = await ctx.call(
                tools.pay, Item(name="po", amount=amount), evidence=shown, why="the vendor's best price"
            )
        except Rejected as no:
            state.seen.append(no.reason)
            return "node"
        return End([done.amount, *state.seen])

    return agent_of(node, tools=tools.all())


def asked(stage: Stage, tools: Toolbox, evidence: Any = None) -> Approval:
    stage.start(revising(tools, evidence))
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


@pytest.mark.parametrize("evidence", ODD, ids=range(len(ODD)))
def test_the_bytes_that_are_hashed_are_the_bytes_that_are_shown(stage: Stage, tools: Toolbox, evidence: Any) -> None:
    approval = asked(stage, tools, evidence)
    raw = bytes(approval.plan)
    plan = json.loads(raw)
    assert raw == rfc8785.dumps(plan), "the one canonical form"
    assert hasher()(plan) == approval.plan_hash
    (event,) = events(approval.run, e.ApprovalRequested)
    assert event.payload == plan and event.plan_hash == approval.plan_hash
    assert plan_of(approval) == plan, "the console reads it from the very bytes"
    public = approval_row(approval, stages_of([approval], [])[approval.id], None).shown()
    assert public["arguments"] == plan["arguments"] == {"name": "po", "amount": 5000}
    assert public["evidence"] == plan["evidence"] == [{"label": "quote", "source": "vendor", "content": evidence}]
    assert public["plan_hash"] == approval.plan_hash


def test_the_plan_names_who_does_what_where_by_which_rule(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, tools)
    plan = json.loads(bytes(approval.plan))
    assert (plan["agent"], plan["run_id"], plan["slot"]) == (approval.run.graph_id, str(approval.run_id), "0.1/1")
    assert (plan["queue"], plan["rule"], plan["tool"]) == ("finance_po", "orders from 1000", "pay")
    assert (plan["effect"], plan["headline"]) == ("pays something", "$5000")
    for name in ("queue", "rule", "tool", "effect", "title"):
        assert getattr(approval, name) == plan[name], "the columns beside it say the same"


def test_other_evidence_is_another_plan(stage: Stage, tools: Toolbox) -> None:
    """The same call on other evidence is another question: nobody's yes carries over."""
    approval = asked(stage, tools, {"price": 1})
    plan = json.loads(bytes(approval.plan))
    plan["evidence"][0]["content"]["price"] = 2
    assert hasher()(plan) != approval.plan_hash


def test_the_agents_own_words_are_shown_and_bind_nothing(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, tools)
    assert approval.why == "the vendor's best price" and "why" not in json.loads(bytes(approval.plan))


def test_revisions_form_one_chain_from_first_to_last(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    approval = asked(stage, tools)
    run = approval.run
    for n in (1, 2, 3):
        assert (approval.revision, approval.previous_id is None) == (n, n == 1)
        assert json.loads(bytes(approval.plan))["arguments"]["amount"] == 6000 - 1000 * n
        if n < 3:
            stage.decide(run, "reject", why=f"no. {n}")
            assert stage.drive() == "parked"
            following = Approval.objects.get(run=run, state="open")
            assert following.previous_id == approval.id and approval.next == following
            assert following.plan_hash != approval.plan_hash
            approval = following
    stage.decide(run)
    assert stage.drive() == "completed"
    assert [json.loads(r.body)["amount"] for r in outside.requests] == [3000]
    assert [a.state for a in run.approvals.order_by("revision")] == ["rejected", "rejected", "approved"]


def test_a_question_about_something_else_is_no_revision(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for tool in (tools.pay, tools.wire):
            try:
                await ctx.call(tool, Item(name="po", amount=5000))
            except Rejected:
                continue
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    stage.decide(run, "reject")
    assert stage.drive() == "parked"
    second = Approval.objects.get(run=run, state="open")
    assert (second.tool, second.revision, second.previous) == ("wire", 1, None)


def test_what_is_executed_is_what_was_approved_and_not_what_is_next_to_it(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """Two gates open in one run, one after the other: a yes to the first is no yes to the second."""

    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.call(tools.pay, Item(name="one", amount=1000))
        second = await ctx.call(tools.pay, Item(name="two", amount=1000))
        return End([first.ref, second.ref])

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    first = stage.decide(run)
    assert stage.drive() == "parked" and [json.loads(r.body)["name"] for r in outside.requests] == ["one"]
    second = Approval.objects.get(run=run, state="open")
    assert second.plan_hash != first.plan_hash
    from approvals.services import StalePlan, decide

    with pytest.raises(StalePlan):
        decide(second.id, verdict="approve", plan_hash=first.plan_hash, justification="as seen", by=FIONA)
    stage.decide(run)
    assert stage.drive() == "completed"
    intents = events(run, e.ToolInvoked)
    assert [(x.slot, x.grant) for x in intents] == [("0.1/1", "0.1/1"), ("0.1/2", "0.1/2")]
