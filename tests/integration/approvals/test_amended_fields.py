"""Which arguments an approval with changes sends: what somebody changed of what they may, and nothing besides."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel, Field, WithJsonSchema, model_validator

from approvals.cases.amending import amend
from approvals.models import Approval, Decision
from approvals.services import OtherStage
from durableagents import Context, End
from durableagents.identity.auth import issue_key
from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.verification.runs import verify
from runs.engine.agents import Agent, registry
from tests.integration.api.conftest import Api, is_problem
from tests.integration.approvals.setup import sound
from tests.integration.approvals.test_amending import ROLE, asked, change
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


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
    """What a change was refused for, by its field; and it left nothing behind."""
    with pytest.raises(InvalidInput) as error:
        change(first, by, **given)
    assert Approval.objects.get().state == "open" and not Decision.objects.exists()
    found: dict[str, str] = error.value.extra["errors"][0]
    return found


def without_code(first: Approval, do: Callable[[], Any]) -> Any:
    """Done by a process that has none of the agent's code."""
    agent = registry.find(first.run.graph_id)
    registry._agents[agent.name].pop(agent.version)
    try:
        return do()
    finally:
        registry._agents[agent.name][agent.version] = agent


def test_what_changes_along_with_a_field_and_may_not_is_refused_by_name(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    first = asked(stage, ordering(tools, "qty"))
    found = refused(first, fiona, qty=3)
    assert found["field"] == "arguments.total" and "changes with it, and may not be changed" in found["problem"]
    sound(first.run)
    assert outside.requests == []


def test_what_changes_along_with_a_field_and_may_is_shown_and_sent(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "qty", "total"))
    second = change(first, fiona, qty=3).approval
    given = json.loads(bytes(second.plan))["arguments"]
    assert (given["qty"], given["total"], second.state) == (3, 30, "approved")
    assert stage.drive() == "completed"
    sound(first.run)


def test_a_worker_sends_nothing_that_a_yes_without_the_agents_code_did_not_say(
    stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor
) -> None:
    first = asked(stage, ordering(tools, "qty"))
    without_code(first, lambda: change(first, fiona, qty=3))
    assert stage.drive() == "parked" and outside.requests == []
    plan = json.loads(bytes(Approval.objects.get(state="open").plan))
    assert plan["arguments"]["qty"] == 1 and "total would change with what was put" in str(plan["evidence"])
    assert list(verify(first.run_id).problems) == []


@pytest.mark.parametrize("given", [{}, {"ratio": 1}, {"ratio": 1.0}, {"qty": 1, "ratio": 1}])
def test_a_number_written_another_way_changes_nothing(
    stage: Stage, tools: Toolbox, fiona: Actor, given: dict[str, Any]
) -> None:
    first = asked(stage, ordering(tools, "ratio", "qty"))
    assert refused(first, fiona, **given)["problem"] == "are what was asked for"


NESTED: list[tuple[dict[str, Any], str]] = [
    ({"ship": {"street": "Low Street", "zip": "1"}}, "arguments.ship"),
    ({"stops": [{"street": "x"}, {"strete": "y"}]}, "arguments.stops.1"),
]


@pytest.mark.parametrize("has_code", [True, False])
@pytest.mark.parametrize(("given", "field"), NESTED)
def test_a_name_within_a_field_that_the_tool_does_not_know_is_refused(
    stage: Stage, tools: Toolbox, fiona: Actor, given: dict[str, Any], field: str, has_code: bool
) -> None:
    first = asked(stage, ordering(tools, "ship", "stops"))
    do = lambda: refused(first, fiona, **given)  # noqa: E731
    found = do() if has_code else without_code(first, do)
    assert found["field"] == field and "holds what is not asked for" in found["problem"]


def test_an_amount_that_is_emptied_is_said_to_be_empty(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    first = asked(stage, ordering(tools, "price"))
    assert refused(first, fiona, price="") == {
        "field": "arguments.price",
        "problem": "is empty",
        "fix": "fill it in",
    }
    found = refused(first, fiona, price="much")
    assert (found["problem"], found["fix"]) == ("input should be a valid decimal", "change it")


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
