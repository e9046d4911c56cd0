"""Approving with changes: what was asked for is over, what it became is asked for, and a yes binds that."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from approvals.cases.amending import Amended, amend
from approvals.models import Approval, Decision
from approvals.services import AlreadyDecided, StalePlan, decide
from durableagents import Context, End
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired
from ledger.verification.runs import verify
from runs.engine.agents import Agent, registry
from runs.models import Run, Wait
from tests.integration.approvals.setup import boss, limited, somebody, sound
from tests.integration.runs.stage import Stage, at_once, events, output
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
ROLE = "approver_finance"


def paying(tools: Toolbox, amount: int = 5000, declared: str | None = None, **more: Any) -> Agent:
    """An agent that pays so much once finance says yes, who may change how much."""
    assert tools.pay.gate is not None
    gate = replace(tools.pay.gate, amount=declared, **({"editable": ["amount"]} | more))
    pay = replace(tools.pay, gate=gate)

    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.call(pay, Item(name="po", amount=amount))
        told = ctx.amendment(done)
        return End([done.amount, None if told is None else [told.by, told.why, told.changes]])

    return agent_of(node, tools=[pay])


def asked(stage: Stage, agent: Agent) -> Approval:
    stage.start(agent)
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


def change(approval: Approval, by: Actor, why: str = "half will do", **arguments: Any) -> Amended:
    by = replace(by, role=ROLE)
    return amend(approval.id, plan_hash=approval.plan_hash, arguments=arguments, justification=why, by=by)


def test_exactly_what_was_made_of_it_goes_out_once_and_the_agent_is_told(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    first = asked(stage, paying(tools))
    done = change(first, fiona, amount=2500)
    first = Approval.objects.get(pk=first.id)
    second = done.approval
    assert (first.state, second.state, done.why_open) == ("amended", "approved", "")
    assert (second.revision, second.previous_id) == (2, first.id) and second.plan_hash != first.plan_hash
    waits = {w.n: w for w in Wait.objects.filter(run=first.run_id, kind="approval")}
    assert [waits[n].resolution for n in (0, 1)] == ["amended", "approved"]
    assert [waits[n].grant_hash for n in (0, 1)] == [None, second.plan_hash]
    sound(first.run)
    assert stage.drive() == "completed"
    assert [json.loads(request.body) for request in outside.requests] == [{"name": "po", "amount": 2500}]
    assert output(first.run) == [2500, ["user:fiona", "half will do", {"amount": [5000, 2500]}]]
    (intent,) = events(first.run, e.ToolInvoked)
    assert (
        intent.payload["arguments"] == {"name": "po", "amount": 2500} and intent.requested_hash != intent.executed_hash
    )
    assert sorted(Decision.objects.values_list("verdict", "by")) == [("amend", "user:fiona"), ("approve", "user:fiona")]
    sound(first.run)


def test_a_smaller_sum_is_approved_by_whoever_has_a_limit(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    limited(boss(), "3000")
    first = asked(stage, paying(tools, declared="amount USD"))
    with pytest.raises(Forbidden, match="above your limit"):
        decide(first.id, verdict="approve", plan_hash=first.plan_hash, justification="all of it", by=fiona)
    assert change(first, fiona, amount=2500).approval.state == "approved"
    assert stage.drive() == "completed"
    sound(first.run)


def test_what_it_became_waits_for_somebody_who_may_approve_that(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    chief, dora = boss(), somebody("dora", ROLE)
    limited(chief, "6000")
    limited(chief, None, "dora")
    first = asked(stage, paying(tools, declared="amount USD"))
    done = change(first, fiona, amount=9000)
    assert done.approval.state == "open" and "above your limit" in done.why_open
    assert Run.objects.get(pk=first.run_id).state == "waiting_human" and stage.drive() != "completed"
    assert outside.requests == []
    sound(first.run)
    second = Approval.objects.get(pk=done.approval.id)
    decide(second.id, verdict="approve", plan_hash=second.plan_hash, justification="it is worth it", by=dora)
    assert stage.drive() == "completed"
    assert [json.loads(request.body) for request in outside.requests] == [{"name": "po", "amount": 9000}]
    assert output(first.run)[1][0] == "user:fiona", "whoever changed it is told, and not whoever approved it"
    sound(first.run)


def test_where_the_code_is_not_at_hand_the_worker_looks_before_anything_leaves(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web process has none of the agent's code: it can't tell the amount, so the worker asks again with it."""
    first = asked(stage, paying(tools, declared="amount USD"))
    agent = registry.find(first.run.graph_id)
    registry._agents[agent.name].pop(agent.version)
    try:
        done = change(first, fiona, amount=2500)
    finally:
        registry._agents[agent.name][agent.version] = agent
    assert done.approval.state == "approved"
    assert stage.drive() == "parked" and outside.requests == []
    again = Approval.objects.get(state="open")
    plan = json.loads(bytes(again.plan))
    assert plan["amount"] == {"value": "2500", "currency": "USD"} and plan["arguments"]["amount"] == 2500
    assert "Nothing was sent" in plan["evidence"][0]["content"][-1]
    sound(first.run)
    decide(again.id, verdict="approve", plan_hash=again.plan_hash, justification="as before", by=fiona)
    assert stage.drive() == "completed"
    assert [json.loads(request.body) for request in outside.requests] == [{"name": "po", "amount": 2500}]
    sound(first.run)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("nothing", {}, "change something"),
    ("the same", {"amount": 5000}, "change something"),
    ("a field that may not be changed", {"name": "mine"}, "may not be changed"),
    ("a field that there is not", {"iban": "X"}, "no field of this call"),
    ("no number", {"amount": "much"}, "whole number"),
    ("true", {"amount": True}, "whole number"),
    ("nothing at all", {"amount": None}, "whole number"),
    ("a list", {"amount": [1]}, "whole number"),
]


@pytest.mark.parametrize(("given", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(
    stage: Stage, tools: Toolbox, fiona: Actor, given: dict[str, Any], said: str
) -> None:
    first = asked(stage, paying(tools))
    with pytest.raises(InvalidInput) as refused:
        change(first, fiona, **given)
    error = refused.value.extra["errors"][0]
    assert error["field"].startswith("arguments") and said in f"{error['problem']} {error['fix']}"
    assert Approval.objects.get().state == "open" and not Decision.objects.exists()
    sound(first.run)


def test_a_gate_that_names_no_field_lets_nobody_change_anything(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, paying(tools, editable=[]))
    with pytest.raises(InvalidInput, match="names no field"):
        change(first, fiona, amount=1)


def test_who_may_and_on_what_is_asked_as_for_any_decision(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, paying(tools))
    lena = somebody("lena", "approver_legal")
    for by in (lena, replace(lena, role=ROLE)):
        with pytest.raises(Forbidden):
            amend(first.id, plan_hash=first.plan_hash, arguments={"amount": 1}, justification="so be it", by=by)
    with pytest.raises(StalePlan):
        amend(first.id, plan_hash="0" * 64, arguments={"amount": 1}, justification="so be it", by=fiona)
    with pytest.raises(JustificationRequired):
        change(first, fiona, why=" ", amount=1)
    change(first, fiona, amount=1000)
    with pytest.raises(AlreadyDecided, match="amended by user:fiona"):
        change(first, somebody("dora", ROLE), amount=2)
    with pytest.raises(AlreadyDecided):
        decide(first.id, verdict="approve", plan_hash=first.plan_hash, justification="all of it", by=fiona)


def test_of_many_at_once_one_change_stands(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    people = [somebody(f"fiona{n}", ROLE) for n in range(64)]
    first = asked(stage, paying(tools))
    told = at_once(*(partial(change, first, by, amount=1000 + n) for n, by in enumerate(people)))
    won = [each for each in told if isinstance(each, Amended)]
    assert len(won) == 1 and sum(isinstance(each, AlreadyDecided) for each in told) == 63
    assert stage.drive() == "completed"
    (sent,) = [json.loads(request.body) for request in outside.requests]
    assert sent == json.loads(bytes(won[0].approval.plan))["arguments"]
    sound(first.run)


def test_a_role_that_is_lost_in_between_changes_nothing(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    from django.contrib.auth.models import User

    first = asked(stage, paying(tools))
    User.objects.get(username=fiona.name).groups.clear()
    with pytest.raises(Forbidden):
        change(first, fiona, amount=1)
    assert Approval.objects.get().state == "open"


FORGED = [
    ("UPDATE approvals_approval SET previous_id = NULL WHERE state = 'approved'", "revision"),
    ("UPDATE approvals_approval SET state = 'rejected' WHERE state = 'amended'", "state"),
    ("UPDATE approvals_decision SET verdict = 'approve'", "verdict"),
    ("UPDATE runs_wait SET grant_hash = 'x' WHERE resolution = 'amended'", "grants"),
    ("DELETE FROM approvals_decision WHERE verdict = 'amend'", "has no row"),
]


@pytest.mark.parametrize(("statement", "found"), FORGED, ids=[f[1] for f in FORGED])
def test_verification_finds_a_row_that_says_otherwise(
    stage: Stage, tools: Toolbox, fiona: Actor, statement: str, found: str
) -> None:
    first = asked(stage, paying(tools))
    change(first, fiona, amount=2500)
    sound(first.run)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement)
    assert found in "\n".join(verify(first.run_id).problems)
