"""Approving with changes: the new question, the arguments that may change, and other rules that apply."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel, Field, WithJsonSchema, model_validator

from approvals.cases.amending import Amended, amend
from approvals.models import Approval, Decision
from approvals.services import AlreadyDecided, AlreadyVoted, OtherStage, StalePlan, decide
from durableagents import Context, End, Gate
from durableagents.identity.auth import issue_key
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired
from ledger.verification.runs import verify
from runs.engine.agents import Agent, registry
from runs.models import Run, Wait
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem
from tests.integration.approvals.setup import boss, limited, somebody, sound
from tests.integration.runs.stage import Stage, at_once, events, output
from tests.tampering import tamper
from tests.tiers import many
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
MANY = many(64, 16)
ROLE = "approver_finance"


def paying(tools: Toolbox, amount: int = 5000, declared: str | None = None, **more: Any) -> Agent:
    assert tools.pay.gate is not None
    gate = replace(tools.pay.gate, amount=declared, **({"editable": ["amount"]} | more))
    pay = replace(tools.pay, gate=gate)

    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.call(pay, Item(name="po", amount=amount))
        amendment = ctx.amendment(done)
        return End([done.amount, None if amendment is None else [amendment.by, amendment.why, amendment.changes]])

    return agent_of(node, tools=[pay])


def asked(stage: Stage, agent: Agent) -> Approval:
    stage.start(agent)
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


def change(approval: Approval, by: Actor, why: str = "half will do", **arguments: Any) -> Amended:
    by = replace(by, role=ROLE)
    return amend(approval.id, plan_hash=approval.plan_hash, arguments=arguments, justification=why, by=by)


def test_the_changed_call_is_sent_once_and_told(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
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


def test_a_smaller_sum_is_approved_by_anyone_who_has_a_limit(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    limited(boss(), "3000")
    first = asked(stage, paying(tools, declared="amount USD"))
    with pytest.raises(Forbidden, match="above your limit"):
        decide(first.id, verdict="approve", plan_hash=first.plan_hash, justification="all of it", by=fiona)
    assert change(first, fiona, amount=2500).approval.state == "approved"
    assert stage.drive() == "completed"
    sound(first.run)


def test_a_change_waits_for_who_may_approve_it(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
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
    assert output(first.run)[1][0] == "user:fiona", "the person who changed it is told, not the one who approved it"
    sound(first.run)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("nothing", {}, "change a value"),
    ("the same", {"amount": 5000}, "change a value"),
    ("a field that may not be changed", {"name": "mine"}, "may not be changed"),
    ("an unknown field", {"iban": "X"}, "not a field of this call"),
    ("no number", {"amount": "much"}, "whole number"),
    ("true", {"amount": True}, "whole number"),
    ("nothing at all", {"amount": None}, "whole number"),
    ("a list", {"amount": [1]}, "whole number"),
]


@pytest.fixture
def payment(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, paying(tools))


@each_case(("given", "said"), [w[1:] for w in WRONG])
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(
    payment: Approval, fiona: Actor, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        change(payment, fiona, **given)
    error = refused.value.extra["errors"][0]
    assert error["field"].startswith("arguments") and said in f"{error['problem']} {error['fix']}"
    assert Approval.objects.get().state == "open" and not Decision.objects.exists()
    sound(payment.run)


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
    people = [somebody(f"fiona{n}", ROLE) for n in range(MANY)]
    first = asked(stage, paying(tools))
    found = at_once(*(partial(change, first, by, amount=1000 + n) for n, by in enumerate(people)))
    won = [each for each in found if isinstance(each, Amended)]
    assert len(won) == 1 and sum(isinstance(each, AlreadyDecided) for each in found) == MANY - 1
    assert stage.drive() == "completed"
    (sent,) = [json.loads(request.body) for request in outside.requests]
    assert sent == json.loads(bytes(won[0].approval.plan))["arguments"]
    sound(first.run)


FORGED = [
    ("UPDATE approvals_approval SET previous_id = NULL WHERE state = 'approved'", "revision"),
    ("UPDATE approvals_approval SET state = 'rejected' WHERE state = 'amended'", "state"),
    ("UPDATE approvals_decision SET verdict = 'approve'", "verdict"),
    ("UPDATE runs_wait SET grant_hash = 'x' WHERE resolution = 'amended'", "grants"),
    ("DELETE FROM approvals_decision WHERE verdict = 'amend'", "has no row"),
]


@pytest.mark.every(2)
@pytest.mark.parametrize(("statement", "found"), FORGED, ids=[f[1] for f in FORGED])
def test_verification_finds_forged_rows(stage: Stage, tools: Toolbox, fiona: Actor, statement: str, found: str) -> None:
    first = asked(stage, paying(tools))
    change(first, fiona, amount=2500)
    sound(first.run)
    tamper(statement)
    assert found in "\n".join(verify(first.run_id).problems)


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


def test_a_change_voids_other_votes_and_counts(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
    frank = somebody("frank", ROLE)
    first = asked(stage, staged(tools, Gate("finance_po", "large sums", quorum=2)))
    say(frank)
    with pytest.raises(AlreadyVoted):
        change(Approval.objects.get(), frank, amount=1)
    done = change(Approval.objects.get(), fiona, amount=2500)
    assert done.approval.state == "open" and "recorded" in done.why_open
    with pytest.raises(AlreadyVoted):
        say(fiona)
    say(frank)
    assert stage.drive() == "completed" and sent(outside) == [2500]
    sound(first.run)


class Address(BaseModel):
    street: str = "High Street"
    lines: list[dict[str, int]] = []


class Order(Item):
    qty: int = 1
    total: int = 10
    ratio: float = 1.0
    price: Annotated[Decimal, WithJsonSchema({"type": "string"})] = Decimal(1)
    code: Annotated[str, Field(pattern=r"^(a+)+$")] = "a"
    ship: Address = Address()
    stops: list[Address] = []

    @model_validator(mode="after")
    def _derived(self) -> Order:
        self.total = self.qty * 10
        return self


def ordering(tools: Toolbox, *fields: str) -> Agent:
    assert tools.pay.gate is not None
    pay = replace(tools.pay, input=Order, gate=replace(tools.pay.gate, editable=list(fields)))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Order(name="po", amount=5000))).amount)

    return agent_of(node, tools=[pay])


def refused(first: Approval, by: Actor, **given: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as error:
        change(first, by, **given)
    assert Approval.objects.get().state == "open" and not Decision.objects.exists()
    found: dict[str, str] = error.value.extra["errors"][0]
    return found


def without_code(first: Approval, do: Callable[[], Any]) -> Any:
    """Run `do` without the agent's code, as in a web process."""
    agent = registry.find(first.run.graph_id)
    registry._agents[agent.name].pop(agent.version)
    try:
        return do()
    finally:
        registry._agents[agent.name][agent.version] = agent


def test_a_dependent_field_may_not_be_changed(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "qty"))
    found = refused(first, fiona, qty=3)
    assert found["field"] == "arguments.total" and "depends on it and may not be changed" in found["problem"]
    sound(first.run)
    assert outside.requests == []


def test_what_changes_along_with_a_field_and_may_is_shown_and_sent(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "qty", "total"))
    second = change(first, fiona, qty=3).approval
    given = json.loads(bytes(second.plan))["arguments"]
    assert (given["qty"], given["total"], second.state) == (3, 30, "approved")
    assert stage.drive() == "completed"
    sound(first.run)


@pytest.fixture
def order(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, ordering(tools, "ratio", "qty", "ship", "stops"))


@each_case("given", [{}, {"ratio": 1}, {"ratio": 1.0}, {"qty": 1, "ratio": 1}])
def test_numbers_are_compared_by_value(order: Approval, fiona: Actor, given: dict[str, Any]) -> None:
    assert refused(order, fiona, **given)["problem"] == "are the requested arguments"


NESTED: list[tuple[dict[str, Any], str]] = [
    ({"ship": {"street": "Low Street", "zip": "1"}}, "arguments.ship"),
    ({"stops": [{"street": "x"}, {"strete": "y"}]}, "arguments.stops.1"),
]


@each_case("has_code", [True, False])
@each_case(("given", "field"), NESTED)
def test_a_name_within_a_field_that_the_tool_does_not_know_is_refused(
    order: Approval, fiona: Actor, given: dict[str, Any], field: str, has_code: bool
) -> None:
    do = lambda: refused(order, fiona, **given)  # noqa: E731
    found = do() if has_code else without_code(order, do)
    assert found["field"] == field and "contains unknown names" in found["problem"]


def test_an_amount_that_is_emptied_is_said_to_be_empty(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "price"))
    assert refused(first, fiona, price="") == {"field": "arguments.price", "problem": "is empty", "fix": "fill it in"}
    found = refused(first, fiona, price="much")
    assert (found["problem"], found["fix"]) == ("is not a number", "give one such as 900.00")


def test_a_pattern_keeps_nobody_waiting(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "code"))
    began = time.process_time()
    assert refused(first, fiona, code="a" * 40 + "!")["field"] == "arguments.code"
    assert time.process_time() - began < 5


def test_the_stage_that_was_read_is_checked_with_changes_too(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "amount"))
    by = replace(fiona, role=ROLE)

    def at(number: int | None) -> Any:
        return amend(
            first.id, plan_hash=first.plan_hash, arguments={"amount": 4000}, justification="so", by=by, stage=number
        )

    with pytest.raises(OtherStage):
        at(2)
    assert Approval.objects.get().state == "open"
    assert at(1).approval.state == "approved"


def test_over_http_arguments_that_are_nothing_approve_nothing(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "amount"))
    finance = Api(issue_key(User.objects.get(pk=fiona.person), "test"))
    body = {"verdict": "approve", "plan_hash": first.plan_hash, "justification": "so be it"}
    to = f"approvals/{first.id}/decision"
    for given in (None, [], "x", 0, False):
        answer = finance.post(to, body | {"arguments": given})
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "arguments"
    assert is_problem(finance.post(to, body | {"arguments": {}}), 422)
    assert is_problem(finance.post(to, body | {"arguments": {"amount": 4000}, "stage": 2}), 409, "other-stage")
    assert Approval.objects.get().state == "open"
    assert finance.post(to, body | {"arguments": {"amount": 4000}, "stage": 1}).json()["state"] == "approved"


def test_where_the_code_is_not_at_hand_the_worker_looks_before_anything_leaves(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web process lacks the agent's code and can't compute the amount, so the worker asks again with it."""
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


def test_a_worker_sends_only_what_was_approved(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "qty"))
    without_code(first, lambda: change(first, fiona, qty=3))
    assert stage.drive() == "parked" and outside.requests == []
    plan = json.loads(bytes(Approval.objects.get(state="open").plan))
    assert plan["arguments"]["qty"] == 1 and "the change also alters total" in str(plan["evidence"])
    assert list(verify(first.run_id).problems) == []
