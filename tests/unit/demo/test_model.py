"""The scripted models: the same conversation always gets the same turn, and the turns make sense."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.tools import ToolDefinition

from durableagents.demo import model
from durableagents.demo.vendor_onboard import agent
from durableagents.demo.vendor_records import IntakePlan, OrderRevision
from tests.cases import each_case

NORDLICHT = agent.samples[0].input


def info() -> AgentInfo:
    final = ToolDefinition(name="final_result")
    return AgentInfo(
        function_tools=[ToolDefinition(name="lookup_company")],
        allow_text_output=False,
        output_tools=[final],
        model_settings=None,
        model_request_parameters=ModelRequestParameters(output_tools=[final]),
        instructions=None,
    )


def prompt(facts: dict[str, Any]) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(content=model.brief("Do it.", facts))])]


def the_call(response: ModelResponse) -> ToolCallPart:
    (call,) = (part for part in response.parts if isinstance(part, ToolCallPart))
    return call


def intake(answer: Any, request: dict[str, Any] = NORDLICHT) -> IntakePlan:
    messages = prompt({"request": request})
    messages.append(model.plan_intake(messages, info()))
    answered = ToolReturnPart(tool_name="lookup_company", content=answer, tool_call_id="call_lookup_company")
    messages.append(ModelRequest(parts=[answered]))
    call = the_call(model.plan_intake(messages, info()))
    assert call.tool_name == "final_result"
    return IntakePlan.model_validate(call.args)


def test_the_same_conversation_gets_the_same_bytes() -> None:
    first, again = (model.plan_intake(prompt({"request": NORDLICHT}), info()) for _ in range(2))
    assert first.parts == again.parts


def test_a_dissolved_company_is_refused_with_the_date() -> None:
    plan = intake({"status": "dissolved", "dissolved_on": "2021-03-31", "notes": ["Struck off."]})
    assert plan.verdict == "refuse" and "2021-03-31" in plan.summary and plan.risks == ["Struck off."]


def revise(reason: str, amount: str = "84000.00", **order: Any) -> OrderRevision:
    current = {"amount_usd": amount, "description": "Dock sensors", "cost_centre": "LOG-220", "payment_terms": "net 30"}
    facts = {
        "vendor": "Nordlicht",
        "requested": {"description": "Dock sensors", "amount_usd": amount},
        "current_order": current | order,
        "rejection": {"reason": reason, "revisions_left": 2},
        "earlier_rejections": [],
    }
    return OrderRevision.model_validate(the_call(model.revise_order(prompt(facts), info())).args)


@each_case(
    ("reason", "amount"),
    [
        ("The quote says $80,000.00, not 84,000", "80000"),
        ("at most 80k please", "80000"),
        ("80.000 USD max", "80000"),
        ("reduce by $4,000", "80000"),
        ("cut it by 10%", "75600"),
        ("budget 2025 is 79000", "79000"),
        ("PO-001234 only 50000", "50000"),
        ("80'000 dollars at most.", "80000"),
        ("no more than USD 70000", "70000"),
        ("$ 83,999.99", "83999.99"),
    ],
)
def test_a_lower_figure_in_the_reason_is_taken(reason: str, amount: str) -> None:
    revision = revise(reason)
    assert revision.amount_usd == Decimal(amount)
    assert f"${Decimal(amount):,.2f}" in revision.explanation
    assert (revision.description, revision.payment_terms) == ("Dock sensors", "net 30")


@given(reason=st.text(min_size=1, max_size=3000), cents=st.integers(1, 99_999_999_999))
def test_no_reason_whatsoever_raises_the_amount_or_breaks_the_form(reason: str, cents: int) -> None:
    amount = f"{cents // 100}.{cents % 100:02d}"
    revision = revise(reason, amount)
    assert 0 < revision.amount_usd <= Decimal(amount)
    assert len(revision.description) <= 2000
