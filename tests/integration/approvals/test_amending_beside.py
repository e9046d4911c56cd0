"""Approving with changes beside everything else: several people, policies, deadlines, halts, what a yes has to show."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from approvals.cases.amending import amend
from approvals.models import Approval
from approvals.services import AlreadyVoted, decide
from durableagents import Context, End, Gate, PolicyDenied
from durableagents import Stage as Then
from durableagents.testing import replay_checkpoints
from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import InvalidInput
from runs.engine.agents import Agent
from runs.queries.recordings.folder import Wish, export
from tests.integration.approvals.setup import boss, limited, somebody, sound
from tests.integration.approvals.test_amending import ROLE, asked, change, paying
from tests.integration.approvals.test_policies import put as put_policy
from tests.integration.approvals.test_stepup import fresh, plan, rule
from tests.integration.approvals.timing import SOON, make_late, sweep, timing
from tests.integration.halts.test_standing_still import HOUR
from tests.integration.runs.stage import Stage, events, output
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
LEGAL = "approver_legal"


def say(by: Actor, verdict: str = "approve", role: str = ROLE, **more: Any) -> Approval:
    of = Approval.objects.get(state="open")
    by = replace(by, role=role)
    return decide(of.id, verdict=verdict, plan_hash=of.plan_hash, justification="as quoted", by=by, **more)


def sent(outside: Outside) -> list[Any]:
    return [json.loads(request.body)["amount"] for request in outside.requests]


def staged(tools: Toolbox, gate: Gate) -> Agent:
    pay = replace(tools.pay, gate=replace(gate, editable=["amount"]))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=5000))).amount)

    return agent_of(node, tools=[pay])


# --- several people -----------------------------------------------------------------------------------------------


def test_a_change_at_a_later_stage_is_put_to_all_of_them_anew(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    lena = somebody("lena", LEGAL)
    first = asked(stage, staged(tools, Gate("legal", "large sums", then=[Then("finance_po")])))
    say(lena, role=LEGAL)
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    done = change(second, fiona, amount=2500)
    assert done.approval.state == "open" and "decides in legal" in done.why_open
    anew = Approval.objects.get(state="open")
    assert (anew.queue, anew.case_id, anew.revision) == ("legal", anew.id, second.revision + 1)
    assert "passed" not in plan(anew) and plan(anew)["stage"] == 1
    assert stage.drive() != "completed" and outside.requests == []
    say(lena, role=LEGAL)
    assert stage.drive() == "parked" and outside.requests == []
    say(fiona)
    assert stage.drive() == "completed" and sent(outside) == [2500]
    sound(first.run)


def test_a_change_takes_back_the_yes_of_others_and_counts_as_one(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    frank = somebody("frank", ROLE)
    first = asked(stage, staged(tools, Gate("finance_po", "large sums", quorum=2)))
    say(frank)
    with pytest.raises(AlreadyVoted):
        change(Approval.objects.get(), frank, amount=1)
    done = change(Approval.objects.get(), fiona, amount=2500)
    assert done.approval.state == "open" and "counted" in done.why_open
    with pytest.raises(AlreadyVoted):
        say(fiona)
    say(frank)
    assert stage.drive() == "completed" and sent(outside) == [2500]
    sound(first.run)


# --- policies -----------------------------------------------------------------------------------------------------


def test_what_it_became_is_judged_by_the_policies_again(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    agent, admin, lena = paying(tools, 1000), boss(), somebody("lena", LEGAL)
    put_policy(admin, tool="pay", condition="args.amount >= 3000")
    first = asked(stage, agent)
    change(first, fiona, amount=4000)
    assert stage.drive() == "parked" and outside.requests == []
    demanded = Approval.objects.get(state="open")
    assert demanded.queue == "legal" and plan(demanded)["arguments"]["amount"] == 4000
    by = replace(lena, role=LEGAL)
    with pytest.raises(InvalidInput, match="names no field"):
        amend(demanded.id, plan_hash=demanded.plan_hash, arguments={"amount": 1}, justification="so be it", by=by)
    say(lena, role=LEGAL)
    assert stage.drive() == "completed" and sent(outside) == [4000]
    sound(first.run)


def test_what_it_became_may_be_forbidden_and_then_nothing_leaves(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    pay = replace(tools.pay, gate=Gate("finance_po", "any", editable=["amount"]))

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(pay, Item(name="po", amount=1000))
        except PolicyDenied as no:
            return End(no.policy)
        return End("paid")

    agent = agent_of(node, tools=[pay])
    put_policy(boss(), effect="deny", tool="pay", condition="args.amount >= 3000")
    first = asked(stage, agent)
    change(first, fiona, amount=4000)
    assert stage.drive() == "completed" and output(first.run) == "orders" and outside.requests == []
    sound(first.run)


# --- deadlines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_told", [True, False], ids=["legal has its own time", "legal says nothing of time"])
def test_what_goes_back_to_the_first_stage_is_asked_there_under_its_own_terms(
    stage: Stage, tools: Toolbox, fiona: Actor, is_told: bool
) -> None:
    """And has no more time than was left where it was changed."""
    admin, lena = boss(), somebody("lena", LEGAL)
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], remind=[50])
    if is_told:
        timing(admin, "legal", on_timeout="remind", every_hours=3)
    first = asked(stage, staged(tools, Gate("legal", "large sums", then=[Then("finance_po")], within=2 * HOUR)))
    say(lena, role=LEGAL)
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    assert second.timing["steps"] == [{"to": "legal", "minutes": 240}]
    change(second, fiona, amount=2500)
    anew = Approval.objects.get(state="open")
    assert (anew.queue, anew.deadline) == ("legal", second.deadline)
    told = [x.payload for x in events(first.run, e.ApprovalTimed) if x.approval_id == str(anew.id)]
    assert told == ([first.timing] if is_told else [])
    assert anew.timing == first.timing and anew.look_at is None
    assert anew.wait.detail.get("on_timeout") == ("remind" if is_told else None)
    sound(first.run)
    make_late(anew)
    sweep()
    assert Approval.objects.get(pk=anew.pk).state == ("open" if is_told else "expired")
    sound(first.run)


# --- what a yes has to show -------------------------------------------------------------------------------------------


def test_above_a_threshold_the_change_is_made_and_the_yes_to_it_asks_for_more(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    first = asked(stage, paying(tools, 1500, declared="amount USD"))
    rule(minutes=5, type_amount=True, above=Decimal(2000))
    done = change(first, fiona, amount=4000)
    assert done.approval.state == "open" and "Type the amount" in done.why_open
    with pytest.raises(InvalidInput):
        say(fresh(fiona), typed={"amount": "1500"})
    say(fresh(fiona), typed={"amount": "4000"})
    assert stage.drive() == "completed" and sent(outside) == [4000]
    sound(first.run)


# --- what is on record of it ---


def test_what_was_changed_is_replayed_as_it_was(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor, tmp_path: Path
) -> None:
    """By the same code and by a later version: the node asks for what it asked for, and is given what came of it."""
    agent = paying(tools)
    first = asked(stage, agent)
    change(first, fiona, amount=2500)
    assert stage.drive() == "completed"
    done = export(tmp_path / "kept", Wish(50, database_now() - timedelta(days=1), payloads="full"))
    assert done.left_out == []
    (replayed,) = replay_checkpoints(tmp_path / "kept", [agent])
    assert replayed.answered >= 1 and sent(outside) == [2500]


# --- damaged ----------------------------------------------------------------------------------------------------------


# --- rows that other hands have moved ---------------------------------------------------------------------------------


def test_a_change_takes_a_question_from_nobody_who_was_asked_besides(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    """It went to legal because nobody answered; what finance makes of it, legal may decide too, until the same time."""
    admin, lena = boss(), replace(somebody("lena", LEGAL), role=LEGAL)
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], remind=[50])
    limited(admin, "1000")
    first = asked(stage, staged(tools, Gate("finance_po", "large sums", amount="amount USD", within=SOON)))
    sweep()
    first = Approval.objects.get(pk=first.pk)
    change(first, fiona, amount=4000)
    anew = Approval.objects.get(state="open")
    assert anew.escalated_to == ["legal"] == anew.wait.also and anew.deadline == first.deadline
    escalated = events(first.run, e.ApprovalEscalated)
    assert [(x.cause, x.n) for x in escalated] == [("timeout", 0), ("amended", 1)]
    sound(first.run)
    decide(anew.id, verdict="approve", plan_hash=anew.plan_hash, justification="so be it", by=lena)
    assert stage.drive() == "completed" and sent(outside) == [4000]
    sound(first.run)
