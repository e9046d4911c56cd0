"""A grant used by a later node: its approver is read from the journal, because people may patch the state."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from approvals.models import Approval, Queue
from approvals.services import decide
from durableagents import Context, End, Grant
from durableagents import Stage as Further
from ledger import events as e
from ledger.actors import Actor
from runs.engine.agents import Agent
from runs.engine.tools import Tool
from runs.models import Run
from runs.services import lifecycle, signals
from tests.integration.approvals.setup import somebody
from tests.integration.runs.stage import Stage, events, fresh, problems
from tests.integration.runs.test_again import expire_grants, mend_grants
from tests.integration.runs.test_injecting import handed
from tests.papers import text
from tests.tampering import tamper
from tests.world import OLGA, SHOP, Asked, Item, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


class Deal(BaseModel):
    amount: int = 5
    grant: Grant | None = None


def dealing(
    tools: Toolbox, tool: Tool, queue: str = "finance_po", *, amount: int = 5, uses: int = 1, **more: Any
) -> Agent:
    """Return an agent whose first node gets a grant and whose next ones wait for a signal and use it."""

    async def ask(state: Deal, ctx: Context) -> str:
        body = Item(name="po", amount=state.amount)
        state.grant = await ctx.approve(queue, title="May I?", tool=tool, body=body, **more)
        return "use0"

    def using(n: int) -> Callable[..., Any]:
        async def use(state: Deal, ctx: Context) -> str | End:
            await ctx.signal("go")
            done = await ctx.call(tool, Item(name="po", amount=state.amount), grant=state.grant)
            return End(done.ref) if n + 1 == uses else f"use{n + 1}"

        use.__name__ = f"use{n}"
        return use

    nodes = [ask, *(using(n) for n in range(uses))]
    return agent_of(*nodes, tools=tools.all(), input=Asked, state=Deal, initial=lambda asked: Deal(amount=amount))


def go(run: Run) -> None:
    signals.signal(run.id, name="go", payload={}, by=SHOP)


def given(stage: Stage, agent: Agent) -> Run:
    run = stage.start(agent)
    assert stage.drive() == "parked"
    stage.decide(run)
    assert stage.drive() == "parked" and not Approval.objects.filter(run=run, state="open").exists()
    return run


def open_case(run: Run) -> tuple[Approval, dict[str, Any]]:
    case = Approval.objects.get(run=run, state="open")
    return case, json.loads(bytes(case.plan))


def yes(case: Approval, by: Actor) -> None:
    by = replace(by, role=Queue.objects.get(name=case.queue).role)
    decide(case.id, verdict="approve", plan_hash=case.plan_hash, justification="as quoted", by=by)


def test_it_lets_its_call_out_once(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = given(stage, dealing(tools, tools.order))
    go(run)
    assert stage.drive() == "completed" and len(outside.executed("order")) == 1
    (invoked,) = events(run, e.ToolInvoked)
    assert invoked.grant == "0.1/1" and problems(run) == []


def test_a_patch_makes_no_yes_to_other_bytes(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = given(stage, dealing(tools, tools.pay, amount=5000))
    lifecycle.pause(run.id, by=OLGA, justification="as it was said")
    handed(run, patch={"amount": 999_999})
    go(run)
    assert stage.drive() == "operator"
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "grant_mismatch" and outside.requests == []
    handed(run, act="retry", patch={"grant": {"requested_hash": stop.payload["now"][-1]}})
    assert stage.drive() == "operator" and outside.requests == []
    assert [stop.reason for stop in events(run, e.OperatorNeeded)] == ["grant_mismatch"] * 2 and problems(run) == []


@pytest.mark.parametrize("slot", ["0.1/9", "0.2/1", "0.2/2"], ids=["of no call", "of a signal", "of itself"])
def test_a_place_where_nobody_said_yes_gives_none(stage: Stage, tools: Toolbox, outside: Outside, slot: str) -> None:
    run = given(stage, dealing(tools, tools.order))
    lifecycle.pause(run.id, by=OLGA, justification="as it was said")
    handed(run, patch={"grant": {"slot": slot}})
    go(run)
    assert stage.drive() == "operator" and outside.requests == []
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "approval_missing" and f"slot {slot} has no approval" in stop.payload["problem"]


def test_what_was_used_in_a_visit_before_is_used(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """Also where the row of its wait says otherwise."""
    run = given(stage, dealing(tools, tools.order, uses=2))
    go(run)
    assert stage.drive() == "parked" and len(outside.executed("order")) == 1
    tamper("UPDATE runs_wait SET consumed_at = NULL, consumed_by = NULL WHERE run_id = %s", run.id)
    go(run)
    assert stage.drive() == "operator" and len(outside.executed("order")) == 1
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "approval_missing" and "used by another call" in stop.payload["problem"]


def test_what_expired_is_asked_again_of_all_who_had_to_say_yes(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent = dealing(tools, tools.order, quorum=2, then=[Further("legal")])
    run = stage.start(agent)
    roles = {queue.name: queue.role for queue in Queue.objects.filter(name__in=["finance_po", "legal"])}
    ann, ben, lea = (
        somebody("ann", roles["finance_po"]),
        somebody("ben", roles["finance_po"]),
        somebody("lea", roles["legal"]),
    )
    for who in (ann, ben, lea):
        stage.drive()
        yes(open_case(run)[0], who)
    assert stage.drive() == "parked"
    expire_grants(run)
    go(run)
    assert stage.drive() == "parked"
    case, plan = open_case(run)
    assert (case.queue, plan["rule"]) == ("finance_po", "ask asks finance_po")
    assert plan["stages"] == [{"queue": "finance_po", "quorum": 2}, {"queue": "legal", "quorum": 1}]
    assert "it expired before the call was made" in str(plan["evidence"][0]["content"])
    for who in (ann, ben, lea):
        assert outside.requests == []
        yes(open_case(run)[0], who)
        stage.drive()
    assert fresh(run).state == "completed" and len(outside.executed("order")) == 1
    mend_grants(run)
    assert problems(run) == []


@pytest.mark.needs("documents")
def test_it_is_asked_again_of_the_same_with_the_same(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = given(stage, dealing(tools, tools.pay, "legal", documents=[text()]))
    documents = Approval.objects.get(run=run).documents
    expire_grants(run)
    go(run)
    assert stage.drive() == "parked"
    case, plan = open_case(run)
    assert (case.queue, case.documents, plan["rule"]) == ("legal", documents, "ask asks legal")
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1
    mend_grants(run)
    assert problems(run) == []


@pytest.mark.needs("documents")
def test_a_question_that_an_older_process_asked_without_documents_is_answered(
    stage: Stage, tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runs.engine import gate

    run = given(stage, dealing(tools, tools.pay, "legal", documents=[text()]))
    expire_grants(run)
    go(run)
    with monkeypatch.context() as before:
        before.setattr(gate, "_documents_in_plan", lambda *_: {})
        assert stage.drive() == "parked"
    assert open_case(run)[0].documents == []
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1


def test_verification_names_a_call_that_went_out_under_the_yes_to_another(
    stage: Stage, tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process would that trusted the state."""
    from runs.engine import gate

    run = given(stage, dealing(tools, tools.order))
    lifecycle.pause(run.id, by=OLGA, justification="as it was said")
    handed(run, patch={"amount": 9})
    go(run)

    def believes(*_: Any) -> None: ...

    with monkeypatch.context() as before:
        before.setattr(gate, "_check_grant", believes)
        assert stage.drive() == "completed" and len(outside.executed("order")) == 1
    assert any("the approval at slot 0.1/1 is for another call" in problem for problem in problems(run))
