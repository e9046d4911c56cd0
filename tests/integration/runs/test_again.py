from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from approvals.models import Approval
from approvals.services import GRANT_LIVES
from durableagents import BusinessFailure, Context, End, Gate, Grant, ReplayClass, ToolCall, TransportError, tool
from durableagents import Pending as TakesTime
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.tools import Tool
from runs.models import Run, Wait
from runs.services import callbacks
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, calling, events, fresh, kinds, now, output, waiting
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of

NO = BusinessFailure("no credit", code="no_credit")


def paying(tools: Toolbox, name: str = "pay") -> Agent:
    return calling(tools, name, "po", 5000)


def granted(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("finance_po", title="May I?", tool=tools.pay, body={"name": "po", "amount": 5000})
        return End((await ctx.call(tools.pay, Item(name="po", amount=5000), grant=grant)).ref)

    return agent_of(node, tools=tools.all())


AGENTS: dict[str, Any] = {"the tool's own gate": paying, "a grant that was passed": granted}


def deploy(tool: Tool, gate: Gate | None) -> None:
    """Give the tool another gate, as if today's code had it. (It is frozen, and each test has its own.)"""
    object.__setattr__(tool, "gate", gate)


def expire_grants(run: Run) -> None:
    Wait.objects.filter(run=run, kind="approval").update(grant_expires_at=now() - timedelta(days=90))


def mend_grants(run: Run) -> None:
    """Give grants the expiry of their decision again, which only the test has changed."""
    Wait.objects.filter(run=run, kind="approval", resolution="approved").update(
        grant_expires_at=F("resolved_at") + GRANT_LIVES
    )


def refused_once(stage: Stage, outside: Outside, agent: Agent) -> Run:
    outside.trouble("pay", NO)
    run = stage.start(agent)
    assert stage.drive() == "parked"
    stage.decide(run)
    assert stage.drive() == "failed" and fresh(run).error_code == "no_credit"
    return run


@pytest.mark.parametrize("kind", AGENTS)
def test_retry_in_time_uses_the_same_approval(stage: Stage, tools: Toolbox, outside: Outside, kind: str) -> None:
    run = refused_once(stage, outside, AGENTS[kind](tools))
    act("retry", run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1
    assert run.approvals.count() == 1
    sent = events(run, e.ToolInvoked)
    assert [x.attempt for x in sent] == [0, 1] and len({x.grant for x in sent}) == 1 and sent[0].grant
    (wait,) = Wait.objects.filter(run=run, kind="approval")
    assert (wait.consumed_by, wait.consumed_attempt) == (sent[1].slot, 1), "who used it last"
    check_against_journal(run)


@pytest.mark.parametrize("kind", AGENTS)
def test_late_retry_asks_the_approver_again(stage: Stage, tools: Toolbox, outside: Outside, kind: str) -> None:
    run = refused_once(stage, outside, AGENTS[kind](tools))
    expire_grants(run)
    act("retry", run)
    assert stage.drive() == "parked" and str(fresh(run).state) == "waiting_human"
    assert len(events(run, e.ToolInvoked)) == 1 and outside.executed("pay") == [], "nothing goes out on an old yes"
    mend_grants(run)
    check_against_journal(run)
    row = Approval.objects.get(run=run, state="open")
    plan = json.loads(bytes(row.plan))
    text = "\n".join(plan["evidence"][0]["content"])
    assert plan["evidence"] == row.evidence and plan["evidence"][0]["label"] == "This call was asked for before"
    first = Approval.objects.filter(run=run, state="approved").get()
    assert f"Approved by user:fiona (approval {first.id}): attempt 0 went out under it." in text
    assert "Attempt 0: the other side refused it: no_credit: no credit." in text
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1
    assert [x.attempt for x in events(run, e.ToolInvoked)] == [0, 1]
    check_against_journal(run)


def test_a_no_to_the_repeat_is_a_no(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = refused_once(stage, outside, granted(tools))
    expire_grants(run)
    act("retry", run)
    stage.drive()
    stage.decide(run, "reject")
    assert stage.drive() == "failed" and fresh(run).error_code == "rejected"
    act("retry", run)
    assert stage.drive() == "failed" and outside.executed("pay") == []


@pytest.mark.parametrize("in_time", [True, False])
def test_repeat_needs_an_approval_in_time(stage: Stage, tools: Toolbox, outside: Outside, in_time: bool) -> None:
    outside.trouble("wire", TransportError("cut"))
    run = stage.start(paying(tools, "wire"))
    stage.drive()
    stage.decide(run)
    assert stage.drive() == "parked"
    if not in_time:
        expire_grants(run)
    stage.reconcile(run, "did_not")
    if not in_time:
        assert stage.drive() == "parked"
        content = Approval.objects.get(run=run, state="open").evidence[0]["content"]
        assert any("Attempt 0: user:olga found: did not: looked it up" in line for line in content)
        stage.decide(run)
    assert stage.drive() == "completed" and [r.attempt for r in outside.seen("wire") if r.executed] == [1]
    mend_grants(run)
    check_against_journal(run)


def test_a_stricter_rule_of_today_asks_again(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = refused_once(stage, outside, paying(tools))
    deploy(tools.pay, Gate("legal", "everything goes to legal now"))
    act("retry", run)
    assert stage.drive() == "parked"
    row = Approval.objects.get(run=run, state="open")
    assert (row.queue, row.rule) == ("legal", "everything goes to legal now")
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1


def test_a_gate_that_is_gone_today_still_holds_what_it_held(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = refused_once(stage, outside, paying(tools))
    expire_grants(run)
    deploy(tools.pay, None)
    act("retry", run)
    assert stage.drive() == "parked" and Approval.objects.get(run=run, state="open").queue == "finance_po"


def test_a_gate_that_is_new_today_is_passed_before_a_repeat(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", NO)

    run = stage.start(calling(tools, "order", "desk"))
    assert stage.drive() == "failed"
    deploy(tools.order, Gate("finance_po", "all orders"))
    act("retry", run)
    assert stage.drive() == "parked" and outside.executed("order") == []
    stage.decide(run)
    assert stage.drive() == "completed"


def test_a_late_word_that_it_happened_ends_what_the_yes_covers(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The system refused the call and called back all the same: perhaps it was done."""
    urls = []

    @tool(
        replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Done, gate=Gate("finance_po", "always")
    )
    async def pay_later(args: Item, call: ToolCall) -> TakesTime:
        urls.append(str(call.callback_url))
        raise NO

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.call(pay_later, Item(name="po")))

    run = stage.start(agent_of(node, tools=[pay_later]))
    stage.drive()
    stage.decide(run)
    assert stage.drive() == "failed"
    callbacks.receive_callback(urls[0].rsplit("/", 1)[1], {"ref": "it was done"})
    act("retry", run)
    assert stage.drive() == "operator"
    act("retry", run)
    assert stage.drive() == "parked" and len(urls) == 1 and not Approval.objects.filter(run=run, state="open")
    act("did_not", run)
    assert stage.drive() == "parked" and len(urls) == 1, "approvers see it first"
    content = Approval.objects.get(run=run, state="open").evidence[0]["content"]
    assert any("an answer that came later says that it did happen" in line for line in content)


@pytest.mark.parametrize("kind", AGENTS)
def test_unused_expired_approval_is_asked_again(stage: Stage, tools: Toolbox, outside: Outside, kind: str) -> None:
    run = stage.start(AGENTS[kind](tools))
    assert stage.drive() == "parked"
    stage.decide(run)
    expire_grants(run)
    assert stage.drive() == "parked" and outside.requests == [] and "OperatorNeeded" not in kinds(run)
    (question,) = Approval.objects.filter(run=run, state="open")
    assert any("expired before the call was made" in line for line in question.evidence[0]["content"])
    expire_grants(run)  # the old one; the new one is undecided
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1 and output(run) == "pay:po"
    mend_grants(run)
    check_against_journal(run)


def test_a_yes_may_expire_unused_more_than_once(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(granted(tools))
    stage.drive()
    for _ in range(3):
        stage.decide(run)
        expire_grants(run)
        assert stage.drive() == "parked"
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1
    last = Approval.objects.filter(run=run).order_by("-opened_at")[0]
    assert len(last.evidence) == 1 and len(last.evidence[0]["content"]) == 3, "one history, whole"


def test_a_yes_to_the_repeat_does_not_let_another_call_through(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def use(ctx: Context, grant: Grant) -> None:
        for _ in range(2):
            await ctx.call(tools.pay, Item(name="po", amount=5000), grant=grant)

    async def node(state: Notes, ctx: Context) -> End:
        await use(
            ctx, await ctx.approve("finance_po", title="May I?", tool=tools.pay, body={"name": "po", "amount": 5000})
        )
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    outside.trouble("pay", NO)
    stage.drive()
    stage.decide(run)
    assert stage.drive() == "failed"
    act("retry", run)
    assert stage.drive() == "operator" and events(run, e.OperatorNeeded)[0].reason == "approval_missing"
    assert len(outside.executed("pay")) == 1 and waiting(run)[0].kind == "operator"
