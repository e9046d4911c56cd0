from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from durableagents import (
    Assistant,
    BusinessFailure,
    Context,
    End,
    Gate,
    Grant,
    PolicyDenied,
    Rejected,
    ReplayClass,
    Screen,
    ToolCall,
    ToolFailure,
    Withhold,
    screen,
    tool,
)
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.errors import DefinitionError
from runs.engine.fingerprint.described import tool_described
from runs.engine.gating.fields import EDITABLE
from runs.engine.tools import Tool
from tests.unit.engine.amending import amend
from tests.unit.engine.policies import rule, with_policies
from tests.unit.engine.story import HASHER, Story
from tests.unit.engine.test_think import Mind, call, final
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of

DEAR = 84_000


def changeable(tools: Toolbox, name: str = "pay", **more: Any) -> Tool:
    known: Tool = getattr(tools, name)
    assert known.gate is not None
    return replace(known, gate=replace(known.gate, editable=["amount"], **more))


def paying(tool: Tool) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            done = await ctx.call(tool, {"name": "po", "amount": DEAR})
        except Rejected as no:
            return End(["rejected", no.reason])
        amendment = ctx.amendment(done)
        return End(
            [done.ref, done.amount, None if amendment is None else [amendment.by, amendment.why, amendment.changes]]
        )

    return agent_of(node, tools=[tool])


async def parked(tool: Tool) -> Story:
    story = Story(paying(tool))
    assert await story.drive() == "parked"
    return story


def amended(story: Story, tool: Tool | None, approves: bool = True, **changed: Any) -> None:
    ((wait_id, _),) = story.waiting("approval")
    amend(story.run, wait_id, changed, tool=tool, hasher=HASHER, approves=approves)


def bodies(outside: Outside) -> list[Any]:
    return [json.loads(request.body) for request in outside.requests]


@pytest.mark.parametrize("name", ["pay", "wire", "read_file"])
@pytest.mark.parametrize("has_code", [True, False])
async def test_amended_call_is_what_leaves(tools: Toolbox, outside: Outside, name: str, has_code: bool) -> None:
    pay = changeable(tools, name)
    story = Story(paying(pay))
    assert await story.drive() == "parked"
    amended(story, pay if has_code else None, amount=4000)
    assert await story.settle() == "completed"
    assert bodies(outside) == [{"name": "po", "amount": 4000}]
    assert story.output[1:] == [4000, ["user:finance", "as quoted", {"amount": [DEAR, 4000]}]]
    (intent,) = story.events(e.ToolInvoked)
    items = [x.payload["arguments"] for x in story.events(e.ApprovalRequested)]
    assert items == [{"name": "po", "amount": DEAR}, {"name": "po", "amount": 4000}]
    assert intent.requested_hash == story.events(e.ApprovalRequested)[1].requested_hash
    assert intent.executed_hash == HASHER({"tool": name, "arguments": {"name": "po", "amount": 4000}})
    assert intent.requested_hash != intent.executed_hash


@pytest.mark.parametrize("name", ["pay", "wire"])
@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6"])
async def test_amended_call_is_sent_once_after_deaths(tools: Toolbox, outside: Outside, name: str, point: str) -> None:
    pay = changeable(tools, name)
    story = await parked(pay)
    amended(story, pay, amount=4000)
    story.kill_at = [(point, name)]
    assert await story.drive() == "killed"
    how = await story.settle()
    if name == "wire" and point in ("CP2", "CP4"):
        assert how == "parked"
        story.reconcile("did_not")
        assert await story.settle() == "completed"
    assert bodies(outside) and all(body == {"name": "po", "amount": 4000} for body in bodies(outside))
    assert len({request.body for request in outside.requests}) == 1
    assert story.output[1] == 4000 and story.output[2][2] == {"amount": [DEAR, 4000]}


async def test_a_change_that_waits_for_somebody_else_sends_nothing(tools: Toolbox, outside: Outside) -> None:
    pay = changeable(tools)
    story = await parked(pay)
    amended(story, pay, approves=False, amount=90_000)
    assert await story.drive() == "parked" and outside.requests == []
    story.decide("rejected", "too much")
    assert await story.settle() == "completed" and story.output == ["rejected", "too much"]
    assert outside.requests == []


async def test_second_amendment_shows_first_and_last(tools: Toolbox, outside: Outside) -> None:
    pay = changeable(tools)
    story = await parked(pay)
    amended(story, pay, approves=False, amount=5000)
    await story.drive()
    amended(story, pay, amount=6000)
    assert await story.settle() == "completed"
    assert bodies(outside) == [{"name": "po", "amount": 6000}]
    assert story.output[2][2] == {"amount": [DEAR, 6000]}


class Even(Item):
    amount: int = Field(default=0, ge=0)

    @field_validator("amount")
    @classmethod
    def _even(cls, amount: int) -> int:
        if amount % 2:
            raise ValueError("only even sums are paid")
        return amount


async def test_invalid_amendment_is_asked_again(tools: Toolbox, outside: Outside) -> None:
    """The web process lacks the agent's code, and the schema can't express it."""
    pay = replace(changeable(tools), input=Even)
    story = await parked(pay)
    amended(story, None, amount=4001)
    assert await story.drive() == "parked" and outside.requests == []
    again = story.events(e.ApprovalRequested)[-1]
    assert again.n == 2 and again.payload["arguments"] == {"name": "po", "amount": DEAR}
    history = "\n".join(again.payload["evidence"][0]["content"])
    assert "only even sums" in history and "Amended by user:finance" in history and "not made under it" in history
    amended(story, pay, amount=4000)
    assert await story.settle() == "completed" and bodies(outside) == [{"name": "po", "amount": 4000}]


async def test_invalid_amendment_can_be_taken_back(tools: Toolbox, outside: Outside) -> None:
    pay = replace(changeable(tools), input=Even)
    story = await parked(pay)
    amended(story, None, amount=4001)
    await story.drive()
    story.decide()
    assert await story.settle() == "completed" and bodies(outside) == [{"name": "po", "amount": DEAR}]
    assert story.output[2] is None


async def test_approval_without_the_amount_is_asked_again(tools: Toolbox, outside: Outside) -> None:
    pay = changeable(tools, amount="amount USD")
    story = await parked(pay)
    amended(story, None, amount=4000)
    assert await story.drive() == "parked" and outside.requests == []
    again = story.events(e.ApprovalRequested)[-1]
    assert again.payload["amount"] == {"value": "4000", "currency": "USD"}
    assert again.payload["arguments"] == {"name": "po", "amount": 4000}
    story.decide()
    assert await story.settle() == "completed" and bodies(outside) == [{"name": "po", "amount": 4000}]
    assert story.output[2][2] == {"amount": [DEAR, 4000]}


async def test_another_yes_does_not_let_the_changed_call_through(tools: Toolbox, outside: Outside) -> None:
    """The approval names the earlier question: nothing is sent, and an operator looks."""
    pay = changeable(tools)
    story = await parked(pay)
    amended(story, pay, amount=4000)
    decided = next(i for i, x in enumerate(story.run.events) if isinstance(x, e.ApprovalDecided))
    first = story.events(e.ApprovalRequested)[0]
    story.run.events[decided] = replace(
        story.run.events[decided], approval_id=first.approval_id, plan_hash=first.plan_hash
    )
    await story.settle()
    assert outside.requests == [] and story.events(e.OperatorNeeded)[0].reason == "approval_missing"


async def test_grant_does_not_cover_arguments_that_a_person_changed_since(tools: Toolbox, outside: Outside) -> None:
    """Legal approved 84000 before the call; finance changed it to 500, for which its rule asks nobody."""
    pay = changeable(tools)

    async def node(state: Notes, ctx: Context) -> End:
        item = Item(name="po", amount=DEAR)
        grant = await ctx.approve("legal", title="May I?", tool=pay, body=item)
        return End((await ctx.call(pay, item, grant=grant)).amount)

    story = Story(agent_of(node, tools=[pay]))
    with_policies(story, [rule(queue="legal")])
    await story.drive()
    story.decide()
    assert await story.drive() == "parked" and story.events(e.ApprovalRequested)[-1].queue == "finance_po"
    amended(story, pay, amount=500)
    assert await story.drive() == "parked" and outside.requests == []
    entry = story.events(e.ApprovalRequested)[-1]
    assert (entry.queue, entry.payload["arguments"]["amount"]) == ("legal", 500)
    story.decide()
    assert await story.settle() == "completed" and bodies(outside) == [{"name": "po", "amount": 500}]


async def test_grant_of_an_amended_call_excludes_the_original(tools: Toolbox, outside: Outside) -> None:
    """Finance approved 4000 in place of 84000, and that call was denied. A forged grant names its slot."""
    pay = changeable(tools)

    async def node(state: Notes, ctx: Context) -> End:
        item = Item(name="po", amount=DEAR)
        with pytest.raises(PolicyDenied):
            await ctx.call(pay, item)
        known.put()
        question = story.events(e.ApprovalRequested)[-1]
        hashes = question.plan_hash, question.requested_hash
        grant = Grant(question.slot, question.approval_id, *hashes, "user:finance", "finance_po")
        return End((await ctx.call(pay, item, grant=grant)).amount)

    story = Story(agent_of(node, tools=[pay]))
    known = with_policies(story, [])
    await story.drive()
    amended(story, pay, amount=4000)
    known.put(rule("deny"))
    assert await story.drive() == "operator" and outside.requests == []
    assert story.found.reason == "approval_missing" and "for other arguments" in story.found.payload["problem"]


async def test_hooks_look_at_what_a_person_typed(tools: Toolbox, outside: Outside) -> None:
    seen: list[Any] = []

    def guard(piece: Any) -> Any:
        seen.append(piece.content)
        return Withhold("no round sums") if piece.content.get("amount") == 4000 else None

    hook: Screen = screen(version="1", name="guard")(guard)
    pay = changeable(tools)

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(pay, Item(name="po", amount=DEAR))).ref)
        except Exception as error:
            return End(type(error).__name__)

    story = Story(agent_of(node, tools=[pay]), screens=(hook,))
    await story.drive()
    amended(story, pay, amount=4000)
    assert await story.settle() == "completed"
    assert story.output == "ContentRefused" and outside.requests == []
    assert [each["amount"] for each in seen] == [DEAR, 4000]


async def test_the_model_is_told_that_a_person_changed_its_call(tools: Toolbox, outside: Outside) -> None:
    pay = changeable(tools)
    mind = Mind([call("pay", name="po", amount=DEAR)], [final(ref="r")])
    assistant = Assistant(name="mind", instructions="Think.", output=Done, tools=[pay], offline=mind)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(assistant, "Pay.")).ref)

    story = Story(agent_of(node, assistants=[assistant]))
    assert await story.drive() == "parked"
    amended(story, pay, amount=4000)
    assert await story.settle() == "completed"
    assert bodies(outside) == [{"name": "po", "amount": 4000}]
    (part,) = mind.answers()
    content = part.content
    assert content["result"]["amount"] == 4000
    assert content["amended_by_a_person"] == {
        "changes": {"amount": {"asked": DEAR, "sent": 4000}},
        "reason": "as quoted",
    }


async def test_a_refused_call_tells_of_it_too(tools: Toolbox, outside: Outside) -> None:
    pay = changeable(tools)
    outside.trouble("pay", BusinessFailure("too_much", code="too_much"))

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(pay, Item(name="po", amount=DEAR))
        except ToolFailure as failure:
            amendment = ctx.amendment(failure)
            return End(None if amendment is None else amendment.changes)
        return End("sent")

    story = Story(agent_of(node, tools=[pay]))
    await story.drive()
    amended(story, pay, amount=4000)
    await story.settle()
    assert story.output == {"amount": [DEAR, 4000]}


class Sum(BaseModel):
    total: int


def test_fields_that_the_tool_does_not_have_can_not_be_declared() -> None:
    async def pay(args: Sum, call: ToolCall) -> Sum:
        return args

    keyed = ReplayClass.IDEMPOTENT_WITH_KEY
    with pytest.raises(DefinitionError, match="amount: no field of Sum"):
        tool(replay_class=keyed, gate=Gate("q", "r", editable=["total", "amount"]))(pay)
    for wrong in ("total", ["total", "total"], [1], [""]):
        with pytest.raises(DefinitionError, match="each once"):
            Gate("q", "r", editable=wrong)  # type: ignore[arg-type]
    declared = tool(replay_class=keyed, gate=Gate("q", "r", editable=["total"]))(pay)
    plainly = tool(replay_class=keyed, gate=Gate("q", "r"))(pay)
    code = lambda value: "code"  # noqa: E731
    assert tool_described(declared, code)["gate"]["editable"] == ["total"]
    assert "editable" not in tool_described(plainly, code)["gate"]


async def test_a_gate_that_declares_nothing_has_the_plan_that_it_had(tools: Toolbox) -> None:
    story = Story(paying(tools.pay))
    await story.drive()
    assert EDITABLE not in story.events(e.ApprovalRequested)[0].payload
