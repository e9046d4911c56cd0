"""A gate binds a person's approval to exact bytes, once. Everything else is a denial."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from durableagents import (
    Context,
    End,
    Evidence,
    Gate,
    Grant,
    Rejected,
    ReplayClass,
    ToolCall,
    TransportError,
    tool,
)
from ledger import events as e
from runs.engine.agents import Agent
from tests.unit.engine.story import HASHER, Story
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of

DEAR = 84_000


def paying(tools: Toolbox, name: str = "pay", amount: int = DEAR, **more: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.call(getattr(tools, name), Item(name="po", amount=state.asked.amount or amount), **more)
        return End([done.ref, done.amount])

    return agent_of(node, tools=tools.all())


def asked(story: Story) -> Any:
    ((_, wait),) = story.waiting("approval")
    assert wait.gate is not None
    return wait.gate


@pytest.mark.parametrize("name", ["pay", "wire", "read_file"])
async def test_gated_call_is_sent_after_its_approval_only(tools: Toolbox, outside: Outside, name: str) -> None:
    story = Story(paying(tools, name), {"amount": DEAR})
    assert await story.drive() == "parked"
    assert outside.requests == [] and story.run.entries == [] and story.run.state == "waiting_human"
    plan = json.loads(asked(story).plan)
    assert plan["arguments"] == {"name": "po", "amount": DEAR} and plan["tool"] == name
    assert asked(story).plan_hash == HASHER(plan), "the hash is of what is shown"
    story.decide()
    assert await story.settle() == "completed"
    assert [json.loads(r.body) for r in outside.requests] == [{"name": "po", "amount": DEAR}]


async def test_below_the_rule_nobody_is_asked(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), {"amount": 999})
    assert await story.drive() == "completed"
    assert not story.events(e.ApprovalRequested)


async def test_a_rule_that_raises_means_ask(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), {"amount": 666})
    assert await story.drive() == "parked" and asked(story).queue == "finance_po"
    assert outside.requests == []


async def test_a_question_is_asked_once_however_often_the_worker_dies(tools: Toolbox) -> None:
    story = Story(paying(tools), {"amount": DEAR}, kill_at=[("CP8", "")] * 3)
    assert await story.settle() == "parked"
    assert len(story.events(e.ApprovalRequested)) == 1


@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6"])
async def test_a_yes_lets_one_call_through_whatever_dies(tools: Toolbox, outside: Outside, point: str) -> None:
    story = Story(paying(tools), {"amount": DEAR})
    await story.drive()
    story.decide()
    story.kill_at = [(point, "pay")]
    assert await story.drive() == "killed"
    assert await story.settle() == "completed"
    assert len(outside.executed()) == 1 and len(story.events(e.ApprovalRequested)) == 1
    assert story.facts() == ["pending", "committed"]


async def test_approve_x_execute_y_is_refused_when_the_node_changes_its_mind(tools: Toolbox, outside: Outside) -> None:
    amount = {"now": DEAR}

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.pay, Item(name="po", amount=amount["now"]))
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    await story.drive()
    story.decide()
    amount["now"] = DEAR + 1
    assert await story.drive() == "operator" and story.found.reason == "non_determinism"
    assert outside.requests == [] and story.run.entries == []


async def test_altered_plan_is_not_executed(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), {"amount": DEAR})
    await story.drive()
    story.decide()
    for i, event in enumerate(story.run.events):
        if isinstance(event, e.ApprovalRequested):
            story.run.events[i] = replace(event, payload=event.payload | {"evidence": ["another"]})
    assert await story.drive() == "operator" and story.found.reason == "approval_missing"
    assert outside.requests == []


@pytest.mark.parametrize(
    "tamper",
    [
        lambda wait: setattr(wait, "is_consumed", True),
        lambda wait: setattr(wait, "grant_hash", "0" * 64),
        lambda wait: setattr(wait, "grant_hash", None),
        lambda wait: setattr(wait, "resolution", "withdrawn"),
    ],
    ids=["used", "for other bytes", "for none", "withdrawn"],
)
async def test_a_yes_that_is_no_longer_good_sends_nothing(tools: Toolbox, outside: Outside, tamper: Any) -> None:
    story = Story(paying(tools), {"amount": DEAR})
    await story.drive()
    ((_, wait),) = story.waiting("approval")
    story.decide()
    tamper(wait)
    assert await story.drive() == "operator" and story.found.reason == "approval_missing"
    assert outside.requests == [] and story.run.entries == []


@pytest.mark.parametrize("verdict", ["rejected", "expired"])
async def test_a_no_comes_to_the_node_with_its_reason_and_stays(tools: Toolbox, outside: Outside, verdict: str) -> None:
    seen = []

    async def node(state: Notes, ctx: Context) -> End:
        with pytest.raises(Rejected) as no:
            await ctx.call(tools.pay, Item(name="po", amount=DEAR))
        seen.append((no.value.queue, no.value.reason, no.value.by, no.value.verdict))
        await ctx.sleep(0)
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    await story.drive()
    story.decide(verdict, "too dear")
    assert await story.settle() == "completed"
    assert seen == [("finance_po", "too dear", "user:finance", verdict)] * 2
    assert outside.requests == []


async def test_an_uncaught_no_fails_the_run_with_the_reason(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), {"amount": DEAR})
    await story.drive()
    story.decide("rejected", "we have no budget")
    assert await story.drive() == "failed"
    assert story.failure.code == "rejected" and "we have no budget" in story.failure.payload["message"]
    story.retry_run()
    assert await story.drive() == "failed", "a retry doesn't turn a no into a yes"
    assert outside.requests == []


async def test_a_second_call_needs_a_second_yes(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for _ in range(2):
            await ctx.call(tools.pay, Item(name="po", amount=DEAR))
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    await story.drive()
    story.decide()
    assert await story.settle() == "parked"
    assert len(outside.executed()) == 1 and len(story.events(e.ApprovalRequested)) == 2


# --- grants from ctx.approve ---


def granted(tools: Toolbox, use: Any, queue: str = "finance_po", ask_for: str = "pay") -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve(
            queue, title="May I?", tool=getattr(tools, ask_for), body={"name": "po", "amount": DEAR}
        )
        return End(await use(ctx, grant))

    return agent_of(node, tools=tools.all())


async def test_a_grant_lets_exactly_its_call_through_once(tools: Toolbox, outside: Outside) -> None:
    async def use(ctx: Context, grant: Grant) -> str:
        return str((await ctx.call(tools.pay, Item(name="po", amount=DEAR), grant=grant)).ref)

    story = Story(granted(tools, use), kill_at=[])
    await story.drive()
    story.decide()
    story.kill_at = [("CP2", "pay")]
    assert await story.settle() == "completed" and story.output == "pay:po"
    assert len(story.events(e.ApprovalRequested)) == 1 and len(outside.executed()) == 1
    assert story.events(e.ToolInvoked)[0].grant == "0.1/1"


async def _used_twice(tools: Toolbox, ctx: Context, grant: Grant) -> None:
    for _ in range(2):
        await ctx.call(tools.pay, Item(name="po", amount=DEAR), grant=grant)


# What a node does with its grant, the queue that gave it, why the run stops, and the executions until then.
MISUSES: dict[str, tuple[Any, str, str, int]] = {
    "a second use": (_used_twice, "finance_po", "approval_missing", 1),
    "other arguments": (
        lambda tools, ctx, grant: ctx.call(tools.pay, Item(name="po", amount=DEAR + 1), grant=grant),
        "finance_po",
        "grant_mismatch",
        0,
    ),
    "another tool": (
        lambda tools, ctx, grant: ctx.call(tools.wire, Item(name="po", amount=DEAR), grant=grant),
        "finance_po",
        "grant_mismatch",
        0,
    ),
    "a grant of another queue": (_used_twice, "legal", "grant_mismatch", 0),
    "a forged grant": (
        lambda tools, ctx, grant: ctx.call(tools.pay, Item(name="po", amount=DEAR), grant=replace(grant, slot="0.1/9")),
        "finance_po",
        "approval_missing",
        0,
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
async def test_misused_grant_stops_the_run(tools: Toolbox, outside: Outside, misuse: str) -> None:
    use, queue, reason, executed = MISUSES[misuse]
    story = Story(granted(tools, partial(use, tools), queue=queue))
    await story.drive()
    story.decide()
    assert await story.drive() == "operator" and story.found.reason == reason
    assert len(outside.requests) == len(outside.executed()) == executed


async def test_another_attempt_without_the_earlier_grant_says_why_it_stops(tools: Toolbox, outside: Outside) -> None:
    """The tool has no gate, so only the grant named people who could be asked again."""
    is_passed = True

    async def use(ctx: Context, grant: Grant) -> None:
        await ctx.call(tools.mail, Item(name="po", amount=DEAR), grant=grant if is_passed else None)

    story = Story(granted(tools, use, ask_for="mail"))
    await story.drive()
    story.decide()
    outside.trouble("mail", TransportError("no reply after the dot"), when="after")
    assert await story.settle() == "parked"
    story.reconcile("did_not")
    is_passed = False
    assert await story.settle() == "operator" and story.found.reason == "approval_missing"
    assert story.found.payload["problem"] == "an earlier attempt used an approval that the node no longer requests"
    assert len(outside.requests) == 1


async def test_a_yes_without_a_tool_is_information_only(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("legal", title="Is this clean?", body={"name": "x"}, evidence=[])
        await ctx.call(tools.pay, Item(name="po", amount=DEAR))
        return End(grant.by)

    story = Story(agent_of(node, tools=tools.all()))
    await story.drive()
    story.decide(justification="clean")
    assert await story.settle() == "parked" and asked(story).queue == "finance_po"
    assert outside.requests == []


# --- the plan's content ---


async def test_evidence_and_words_of_others_are_frozen_into_the_plan(tools: Toolbox) -> None:
    evidence = [Evidence("Register\x00", "registry", {"note\ud800": ["a\x00b", 1]})]
    story = Story(paying(tools, evidence=evidence, why="because\x00"), {"amount": DEAR})
    assert await story.drive() == "parked"
    gate = asked(story)
    plan = json.loads(gate.plan)
    assert plan["evidence"] == gate.evidence
    assert "\x00" not in json.dumps([gate.title, gate.evidence, gate.why]).encode().decode("unicode_escape")
    assert gate.plan_hash == HASHER(plan)


@pytest.mark.parametrize(
    "field",
    ["agent", "run_id", "slot", "queue", "rule", "tool", "arguments", "title", "effect", "headline", "evidence"],
)
async def test_every_part_of_the_plan_changes_its_hash(tools: Toolbox, field: str) -> None:
    story = Story(paying(tools), {"amount": DEAR})
    await story.drive()
    plan = json.loads(asked(story).plan)
    assert field in plan
    assert HASHER(plan | {field: ["something", "else"]}) != asked(story).plan_hash


async def test_arguments_that_have_no_exact_form_are_never_asked_about() -> None:
    """2^53 + 1 and NaN mean something else to the next reader of the same JSON."""

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, gate=Gate("finance_po", "always"))
    async def spend(args: Item, call: ToolCall) -> Done:
        raise AssertionError("never")

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(spend, Item(name="x", amount=2**53 + 1))
        return End()

    story = Story(agent_of(node, tools=[spend]))
    assert await story.drive() == "failed" and "no canonical JSON form" in story.failure.payload["message"]
