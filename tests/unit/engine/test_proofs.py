from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from durableagents import Context, End, Gate, Stage
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.errors import DefinitionError
from runs.engine.gating.fields import Amount
from runs.engine.gating.proof import (
    Proof,
    Threshold,
    Wanted,
    is_typed,
    short_of,
    target_of,
    threshold_in,
    wanted_in,
    wanted_of,
)
from runs.engine.gating.timing import QueueTiming
from tests.cases import each_case
from tests.unit.engine.policies import rule, with_policies
from tests.unit.engine.story import Story
from tests.world import Item, Notes, Outside, Toolbox, agent_of

FRESH = {"by": "totp", "age": 7}
STRICT = Threshold(Proof(60, factor=True, amount=True))
TYPED = {"typed": {"amount": "5000"}}


class Queues(frozenset[str]):
    """Queues, of which some require proof."""

    asks: dict[str, Threshold]

    def timing_of(self, name: str) -> QueueTiming | None:
        return None

    def threshold(self, queue: str) -> Threshold | None:
        return self.asks.get(queue)


def queues(**asks: Threshold) -> Queues:
    found = Queues({"finance_po", "legal"})
    found.asks = asks
    return found


def paying(tools: Toolbox, gate: Gate | None = None, risk: str = "") -> Agent:
    pay = replace(tools.pay, gate=gate or Gate("finance_po", "large sums", amount="amount USD"), risk=risk)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=5000))).ref)

    return agent_of(node, tools=[pay])


def question(story: Story) -> e.ApprovalRequested:
    return story.events(e.ApprovalRequested)[-1]


def yes(story: Story, proof: Any, *, person: int | None = None, closes: bool = True) -> None:
    """Write an approval as a process of this installation, or of another version, does."""
    request = question(story)
    ((wait_id, _),) = story.waiting("approval")
    payload = {"justification": "as quoted"} | ({} if proof is None else {"proof": proof})
    fields: dict[str, Any] = {
        "slot": request.slot,
        "n": request.n,
        "approval_id": request.approval_id,
        "plan_hash": request.plan_hash,
        "by": f"user:{person}",
        "role": "",
        "payload": payload,
    }
    if person is not None:
        story.run.append([e.ApprovalVoted(verdict="approve", person=person, **fields)])
    if closes:
        event = e.ApprovalDecided(verdict="approved", **fields)
        story.run.resolve(wait_id, "approved", event=event, grant_hash=request.plan_hash)


# --- the engine ---


async def test_a_yes_that_showed_what_the_plan_asks_lets_the_call_through(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), queues=queues(finance_po=STRICT))
    assert await story.drive() == "parked"
    assert question(story).payload["proof"] == {"within": 60, "factor": True, "typed": {"amount": "5000 USD"}}
    yes(story, FRESH | TYPED)
    assert await story.settle() == "completed" and len(outside.executed()) == 1


SHORT: list[Any] = [
    None,
    {},
    "totp",
    [],
    FRESH,
    TYPED,
    TYPED | {"by": "totp"},
    TYPED | FRESH | {"age": 61},
    TYPED | FRESH | {"age": -1},
    TYPED | FRESH | {"age": True},
    TYPED | FRESH | {"age": 7.0},
    TYPED | FRESH | {"age": "7"},
    TYPED | FRESH | {"by": "password"},
    TYPED | FRESH | {"by": "sso"},
    TYPED | FRESH | {"by": ["totp"]},
    FRESH | {"typed": {"amount": "500"}},
    FRESH | {"typed": "5000"},
    FRESH | {"typed": {"amount": 5000}},
]


@pytest.mark.parametrize("proof", SHORT)
async def test_a_yes_that_showed_too_little_is_used_for_nothing(tools: Toolbox, outside: Outside, proof: Any) -> None:
    story = Story(paying(tools), queues=queues(finance_po=STRICT))
    await story.drive()
    yes(story, proof)
    assert await story.settle() == "operator" and outside.requests == []
    assert story.events(e.OperatorNeeded)[0].reason == "approval_missing"


async def test_a_vote_that_showed_too_little_is_none_of_those_that_it_takes(tools: Toolbox, outside: Outside) -> None:
    gate = Gate("finance_po", "large sums", quorum=2, amount="amount USD")
    story = Story(paying(tools, gate), queues=queues(finance_po=STRICT))
    await story.drive()
    yes(story, None, person=7, closes=False)
    yes(story, FRESH | TYPED, person=8)
    assert await story.settle() == "operator" and outside.requests == []
    story = Story(paying(tools, gate), queues=queues(finance_po=STRICT))
    await story.drive()
    yes(story, None, person=7, closes=False)
    yes(story, FRESH | TYPED, person=8, closes=False)
    yes(story, FRESH | TYPED, person=9)
    assert await story.settle() == "completed" and len(outside.executed()) == 1


async def test_each_stage_asks_what_its_own_queue_does(tools: Toolbox, outside: Outside) -> None:
    gate = Gate("legal", "large sums", then=[Stage("finance_po")], amount="amount USD")
    story = Story(paying(tools, gate), queues=queues(legal=Threshold(Proof(600)), finance_po=STRICT))
    await story.drive()
    assert question(story).payload["proof"] == {"within": 600}
    yes(story, {"by": "password", "age": 600}, person=7)
    assert await story.settle() == "parked"
    assert question(story).payload["proof"] == {"within": 60, "factor": True, "typed": {"amount": "5000 USD"}}
    yes(story, FRESH | TYPED, person=8)
    assert await story.settle() == "completed" and len(outside.executed()) == 1


async def test_a_stage_that_asks_nothing_says_nothing_of_what_the_one_before_did(tools: Toolbox) -> None:
    gate = Gate("legal", "large sums", then=[Stage("finance_po")], amount="amount USD")
    story = Story(paying(tools, gate), queues=queues(legal=STRICT))
    await story.drive()
    yes(story, FRESH | TYPED, person=7)
    assert await story.settle() == "parked" and "proof" not in question(story).payload


async def test_a_yes_that_showed_too_little_is_none_that_a_policy_demands(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), queues=queues(finance_po=STRICT))
    with_policies(story, [rule()])
    await story.drive()
    yes(story, FRESH)
    assert await story.settle() != "completed" and outside.requests == []


@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6"])
async def test_a_death_asks_nobody_again(tools: Toolbox, outside: Outside, point: str) -> None:
    story = Story(paying(tools), queues=queues(finance_po=STRICT))
    await story.drive()
    yes(story, FRESH | TYPED)
    story.queues = queues()  # the queue no longer requires it, and the record stays
    story.kill_at = [(point, "pay"), (point, "")]
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert len(story.kill_at) == 1, "it did die there"
    assert len(story.events(e.ApprovalRequested)) == 1


async def test_a_queue_without_a_threshold_has_the_plan_that_it_had(tools: Toolbox) -> None:
    plans = []
    for known in (None, queues(), queues(finance_po=Threshold(Proof(60), Decimal(5000), "USD"))):
        story = Story(paying(tools), queues=known)
        await story.drive()
        plans.append({**question(story).payload, "run_id": "", "agent": ""})
    assert plans[0] == plans[1] == plans[2] and "proof" not in plans[0]


@pytest.mark.parametrize(("risk", "is_asked"), [("low", False), ("medium", True), ("high", True), ("", True)])
async def test_from_a_risk_on(tools: Toolbox, risk: str, is_asked: bool) -> None:
    story = Story(paying(tools, risk=risk), queues=queues(finance_po=Threshold(Proof(60), risk="medium")))
    await story.drive()
    assert ("proof" in question(story).payload) is is_asked


# --- additional requirements of a policy ---


def wants(**more: Any) -> Any:
    return rule(proof=Proof(60, factor=True), **more)


async def test_policy_and_gate_of_one_queue_ask_once(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), queues=queues(finance_po=Threshold(Proof(600, amount=True))))
    with_policies(story, [wants()])
    await story.drive()
    assert question(story).payload["proof"] == {"within": 60, "factor": True, "typed": {"amount": "5000 USD"}}
    yes(story, FRESH | TYPED)
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert len(story.events(e.ApprovalRequested)) == 1


async def test_of_several_policies_of_one_queue_all_are_shown(tools: Toolbox) -> None:
    story = Story(paying(tools), queues=queues())
    more = rule(proof=Proof(30, target=True), name="another")
    with_policies(story, [wants(), more])
    await story.drive()
    assert question(story).payload["proof"] == {"within": 30, "factor": True, "typed": {"target": "po"}}


async def test_a_policy_that_comes_after_the_yes_asks_for_one_that_shows_it(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), queues=queues())
    known = with_policies(story, [])
    await story.drive()
    yes(story, None)
    known.put(wants())
    assert await story.settle() == "parked" and outside.requests == []
    assert question(story).payload["proof"] == {"within": 60, "factor": True}
    yes(story, FRESH)
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert len(story.events(e.ApprovalRequested)) == 2


@pytest.mark.parametrize(
    "gate", [Gate("finance_po", "large sums", quorum=2), Gate("legal", "large sums", then=[Stage("finance_po", 2)])]
)
async def test_later_policy_asks_all_voters_again(tools: Toolbox, outside: Outside, gate: Gate) -> None:
    story = Story(paying(tools, gate), queues=queues())
    known = with_policies(story, [])
    how, person, items = await story.drive(), 0, []
    while how == "parked" and len(items) < 10:
        now = question(story)
        items.append((now.queue, "proof" in now.payload))
        visible = FRESH if "proof" in now.payload else None
        quorum = 2 if now.queue == "finance_po" else 1
        for n in range(quorum):
            person += 1
            if n == 1 and items[-1] == ("finance_po", False):
                known.put(wants())
            yes(story, visible, person=person, closes=n == quorum - 1)
        how = await story.settle()
    assert how == "completed" and len(outside.executed()) == 1
    once = [("legal", False)] if gate.queue == "legal" else []
    assert items == [*once, ("finance_po", False), *once, ("finance_po", True)]


async def test_grant_that_showed_too_little_asks_at_the_call(tools: Toolbox, outside: Outside) -> None:
    pay = replace(tools.pay, gate=None)

    async def node(state: Notes, ctx: Context) -> End:
        item = Item(name="po", amount=5000)
        grant = await ctx.approve("finance_po", title="Pay?", body=item, tool=pay)
        return End((await ctx.call(pay, item, grant=grant)).ref)

    for visible, question in ((None, 2), (FRESH, 1)):
        story = Story(agent_of(node, tools=[pay]), queues=queues())
        with_policies(story, [wants()])
        await story.drive()
        yes(story, visible)
        if question == 2:
            assert await story.settle() == "parked"
            yes(story, FRESH)
        assert await story.settle() == "completed"
        assert len(story.events(e.ApprovalRequested)) == question
    assert len(outside.executed()) == 2


async def test_repeat_needs_an_approval_by_the_present_proof(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), queues=queues(), kill_at=[("CP4", "pay")])
    known = with_policies(story, [rule()])
    await story.drive()
    yes(story, None)
    assert await story.drive() == "killed"
    sent = len(outside.requests)
    known.put(wants())
    assert await story.settle() in ("operator", "parked") and len(outside.requests) == sent
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert "wants the yes of finance_po first" in str(unknown.payload)


# --- from when on ---


@each_case(
    ("amount", "is_asked"),
    [
        (Amount(Decimal("1000"), "USD"), False),
        (Amount(Decimal("-1000"), "USD"), False),
        (Amount(Decimal("1000.000001"), "USD"), True),
        (Amount(Decimal("-1001"), "USD"), True),
        (Amount(Decimal("1"), "EUR"), True),
        (None, True),
        ("it is broken", True),
    ],
)
def test_above_an_amount(amount: Any, is_asked: bool) -> None:
    threshold = Threshold(Proof(60), Decimal(1000), "USD")
    assert threshold.asked_of(amount, "").is_any is is_asked
    assert threshold_in(threshold.as_json()) == threshold


@each_case(
    "damaged",
    [
        "",
        5,
        [],
        {"within": "60"},
        {"within": -1},
        {"within": True},
        {"within": 10**9},
        {"factor": 1},
        {"amount": "yes"},
        {"above": "much"},
        {"above": "NaN", "currency": "USD"},
        {"above": "5"},
        {"above": [5]},
        {"risk": "dire"},
        {"risk": []},
    ],
)
def test_a_threshold_that_cant_be_read_is_said_to_be_none(damaged: Any) -> None:
    with pytest.raises(DefinitionError):
        threshold_in(damaged)


@each_case(
    "damaged",
    [
        None,
        5,
        "x",
        [],
        {"within": "5"},
        {"factor": "no"},
        {"typed": []},
        {"typed": {"amount": 5}},
        {"typed": {"colour": "red"}},
    ],
)
def test_a_plan_whose_proof_cant_be_read_lets_nothing_through(damaged: Any) -> None:
    assert short_of({"proof": damaged}, FRESH | TYPED)
    with pytest.raises(DefinitionError):
        wanted_in({"proof": damaged})


def test_the_stricter_of_two_is_the_shorter_time_and_all_else() -> None:
    one, other = Wanted(600, False, {"amount": "5 USD"}), Wanted(60, True, {"target": "po"})
    assert one.joined(other) == other.joined(one) == Wanted(60, True, {"target": "po", "amount": "5 USD"})
    assert one.joined(Wanted()) == Wanted().joined(one) == one


# --- typed words ---


@each_case(
    "typed",
    ["1250", "1250.00", "1,250", "1,250.00", "$1250", "$ 1,250", "1250 USD", "usd 1250", " 1250 ", "１２５０", "-1250"],
)
def test_an_amount_however_it_is_written(typed: str) -> None:
    assert is_typed("amount", "1250.00 USD", typed) and is_typed("amount", "-1250 USD", typed)


@each_case(
    "typed",
    [
        "",
        " ",
        "125",
        "1250.01",
        "1.250",
        "1.250,00",
        "12,50",
        "1,2,5,0",
        "1250 EUR",
        "€1250",
        "1250x",
        "1e3",
        "0x4e2",
        "$",
        "USD",
        "NaN",
        "١٢٥٠",
        "1250 1250",
        "9" * 500,
        None,
        1250,
        ["1250"],
    ],
)
def test_another_amount_or_none(typed: Any) -> None:
    assert not is_typed("amount", "1250.00 USD", typed)


@each_case("typed", ["Acme GmbH", "acme gmbh", "  Acme   GmbH ", "ＡＣＭＥ GmbH", "Ac\u200bme GmbH"])
def test_a_name_however_it_is_written(typed: str) -> None:
    assert is_typed("target", "Acme GmbH", typed)


@each_case("typed", ["", "Acme", "Acme GmbH 2", "Асme GmbH", None, 5])
def test_another_name_or_none(typed: Any) -> None:
    assert not is_typed("target", "Acme GmbH", typed)


@each_case(
    ("arguments", "target"),
    [
        ({"vendor": "Acme"}, "Acme"),
        ({"vendor": " A\u202ec\u200bm\ne "}, "Acm e"),
        ({"vendor": "\u200b\u202e"}, "pay"),
        ({"vendor": "x" * 500}, "x" * 80),
        ({}, "pay"),
        (None, "pay"),
        ([1], "pay"),
        ({"vendor": 5}, "pay"),
    ],
)
def test_what_a_call_is_about_can_be_typed_whatever_an_agent_writes(arguments: Any, target: str) -> None:
    plan = {"arguments": arguments, "tool": "pay"}
    assert target_of(plan) == target and is_typed("target", target_of(plan), target)
    assert wanted_of(plan, Proof(amount=True)).typed == {"target": target}
