"""Policies judge every call before it is sent: the strictest wins, on record, and by those in force at that moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Context, End, NotSent, PolicyDenied, Rejected, ToolFailure
from durableagents.contrib.policies.judging import Rulebook
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.gating.proof import Proof
from runs.features import Policies
from runs.journal.asked import policies as inforce
from runs.journal.asked.policies import InForce
from tests.unit.engine.policies import Known, rule, with_policies
from tests.unit.engine.story import Story
from tests.unit.engine.test_gates import DEAR, asked, paying
from tests.unit.engine.test_think import Mind, call, final, thinking
from tests.world import IN_PLACE, Item, Notes, Outside, Toolbox, agent_of


def ordering(tools: Toolbox, name: str = "order", amount: int = 5) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(getattr(tools, name), Item(name="po", amount=amount))).ref)
        except PolicyDenied as no:
            return End(["denied", no.policy, no.version, no.message, no.code])

    return agent_of(node, tools=tools.all())


async def said_yes(tools: Toolbox) -> tuple[Story, Known]:
    story = Story(ordering(tools))
    known = with_policies(story, [rule()])
    await story.settle()
    story.decide()
    return story, known


def applied(story: Story) -> list[tuple[str, str, int, int]]:
    return [(x.effect, x.policy, x.version, x.n) for x in story.events(e.PolicyApplied)]


def history(story: Story) -> list[str]:
    found = story.events(e.ApprovalRequested)[-1].payload["evidence"][0]
    assert found["label"] == "This call was asked for before"
    return list(found["content"])


@pytest.mark.parametrize("name", ["order", "mail", "look"])
async def test_without_policies_nothing_is_written_of_them(tools: Toolbox, name: str) -> None:
    story = Story(ordering(tools, name))
    assert await story.settle() == "completed"
    assert story.events(e.PolicyApplied) == []


@pytest.mark.parametrize("name", ["order", "mail", "look"])
async def test_allowed_call_records_its_rule_without_a_commit(tools: Toolbox, name: str) -> None:
    plain = Story(ordering(tools, name))
    await plain.settle()
    story = Story(ordering(tools, name))
    with_policies(story, [rule("allow", name="small", version=3)])
    assert await story.settle() == "completed"
    assert applied(story) == [("allow", "small", 3, 0)] and len(story.commits) == len(plain.commits)
    (found,) = story.events(e.PolicyApplied)
    with_it = story.run.events[story.run.events.index(found) - 1]
    assert isinstance(with_it, (e.ToolInvoked, e.ToolRead)) and with_it.slot == found.slot


async def test_a_policy_that_matches_nothing_is_on_record_too(tools: Toolbox) -> None:
    story = Story(ordering(tools))
    with_policies(story, [rule("deny", tool="mail")])
    assert await story.settle() == "completed" and applied(story) == [("allow", "", 0, 0)]


@pytest.mark.parametrize("name", ["order", "mail", "look"])
async def test_policy_puts_the_call_to_its_queue(tools: Toolbox, outside: Outside, name: str) -> None:
    story = Story(ordering(tools, name))
    with_policies(story, [rule(queue="legal")])
    assert await story.drive() == "parked" and outside.requests == []
    plan = json.loads(asked(story).plan)
    assert (plan["queue"], plan["rule"], plan["policy"]) == (
        "legal",
        "the board says so",
        {"name": "require_it", "version": 1},
    )
    story.decide()
    assert await story.settle() == "completed" and len(outside.requests) == 1
    assert applied(story) == [("require", "require_it", 1, 0), ("require", "require_it", 1, 1)]
    assert story.events(e.ToolInvoked)[0].grant == story.events(e.ApprovalRequested)[0].slot


@pytest.mark.parametrize("name", ["order", "mail", "look", "pay"])
async def test_denied_call_never_leaves_on_any_replay(tools: Toolbox, outside: Outside, name: str) -> None:
    story = Story(ordering(tools, name), kill_at=[("CP8", "")])
    known = with_policies(story, [rule("deny", name="never", version=2)])
    assert await story.settle() == "completed"
    assert story.output == ["denied", "never", 2, "the board says so", "policy_denied"] and outside.requests == []
    failed, event = story.events(e.ToolFailed)[0], story.events(e.PolicyApplied)[0]
    assert (failed.code, event.effect, event.policy, story.run.entries) == ("policy_denied", "deny", "never", [])
    known.put()
    assert [type(x) for x in story.events(e.ToolFailed)] == [e.ToolFailed]


async def test_a_recorded_no_stays_one_after_the_policy_is_gone(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.order, Item(name="po"))
        except ToolFailure as no:
            await ctx.call(tools.pay, Item(name="instead", amount=DEAR))
            return End(no.code)
        return End("left")

    story = Story(agent_of(node, tools=tools.all()))
    known = with_policies(story, [rule("deny", tool="order")])
    assert await story.drive() == "parked"
    known.put()
    story.decide()
    assert await story.settle() == "completed" and story.output == "policy_denied"
    assert [json.loads(r.body)["name"] for r in outside.requests] == ["instead"]


async def test_the_strictest_wins_whatever_else_matches(tools: Toolbox, outside: Outside) -> None:
    for rules, effect in (
        ([rule("allow"), rule("require")], "require"),
        ([rule("require"), rule("deny"), rule("allow")], "deny"),
    ):
        story = Story(ordering(tools))
        with_policies(story, rules)
        await story.drive()
        assert applied(story)[0][0] == effect
    assert outside.requests == []


async def test_an_allow_takes_no_gate_in_code_away(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), {"amount": DEAR})
    with_policies(story, [rule("allow")])
    assert await story.drive() == "parked" and asked(story).queue == "finance_po" and outside.requests == []
    story.decide()
    assert await story.settle() == "completed" and len(outside.executed()) == 1


async def test_a_gate_in_code_and_a_policy_are_both_asked_one_after_the_other(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), {"amount": DEAR})
    with_policies(story, [rule(queue="legal"), rule(queue="board", name="second"), rule(name="same")])
    for queue in ("finance_po", "legal", "board"):
        assert await story.settle() == "parked" and asked(story).queue == queue
        story.decide()
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert len(story.events(e.ApprovalRequested)) == 3
    answer = history(story)
    assert [line.partition("): ")[2] for line in answer] == [
        "the call was not made yet, for the policy require_it (version 1) asks legal as well.",
        "the call was not made yet, for the policy second (version 1) asks board as well.",
    ], "each is asked in view of the answers before"


async def test_only_the_queue_whose_approval_expired_is_asked_again(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools), {"amount": DEAR}, kill_at=[("CP1", "pay")])
    with_policies(story, [rule(queue="legal")])
    for _ in range(2):
        assert await story.drive() == "parked"
        story.decide()
    assert await story.drive() == "killed" and outside.requests == []
    for wait in story.run.waits.values():
        if wait.gate is not None and wait.gate.queue == "legal":
            wait.grant_expires_at = wait.spec.deadline - timedelta(days=30)
    assert await story.settle() == "parked" and asked(story).queue == "legal"
    assert [line.partition("): ")[2] for line in history(story)] == [
        "the call was not made yet, for the policy require_it (version 1) asks legal as well.",
        "it expired before the call was made.",
    ]
    story.decide()
    assert await story.settle() == "completed" and len(outside.executed()) == 1


async def test_stricter_proof_names_the_approval_that_lacks_it(tools: Toolbox, outside: Outside) -> None:
    story, known = await said_yes(tools)
    known.put(rule(proof=Proof(60, factor=True), version=2), is_known=False)
    assert await story.settle() == "parked" and outside.requests == []
    text = "the policy require_it (version 2) wants more shown with the yes of finance_po."
    assert history(story)[0].endswith(f"): the call was not made yet, for {text}")


async def test_who_rejects_ends_it_though_others_said_yes(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(tools.pay, Item(name="po", amount=DEAR))
        except Rejected as no:
            return End(no.queue)
        return End("paid")

    story = Story(agent_of(node, tools=tools.all()))
    known = with_policies(story, [rule(queue="legal")])
    await story.settle()
    story.decide()
    await story.settle()
    story.decide("rejected")
    known.put(rule("deny"))  # a stricter policy now doesn't turn it into another refusal
    assert await story.settle() == "completed" and story.output == "legal" and outside.requests == []


@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6", "CP8"])
async def test_one_yes_lets_one_call_through_whatever_dies(tools: Toolbox, outside: Outside, point: str) -> None:
    story = Story(ordering(tools), kill_at=[(point, "order"), (point, "")])
    with_policies(story, [rule(queue="legal")])
    await story.settle()
    story.decide()
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert len(story.events(e.ApprovalRequested)) == 1


@pytest.mark.parametrize("name", ["order", "mail"])
async def test_outdated_policies_send_nothing(tools: Toolbox, outside: Outside, name: str) -> None:
    story = Story(ordering(tools, name))
    known = with_policies(story, [])
    known.put(rule("deny"), is_known=False)
    assert await story.settle() == "completed" and story.output[0] == "denied" and outside.requests == []
    assert known.asked >= 1


async def test_a_looser_policy_counts_at_once_as_well(tools: Toolbox, outside: Outside) -> None:
    story = Story(ordering(tools))
    known = with_policies(story, [rule("deny")])
    known.put(is_known=False)
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert applied(story) == []


async def test_stricter_policy_asks_again_after_an_approval(tools: Toolbox, outside: Outside) -> None:
    story, known = await said_yes(tools)
    known.put(rule(queue="legal", version=2), is_known=False)
    assert await story.settle() == "parked" and asked(story).queue == "legal" and outside.requests == []
    (answer,) = history(story)
    assert answer.startswith("Approved by") and "(version 2) asks legal as well" in answer and "expired" not in answer
    story.decide()
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    story, known = await said_yes(tools)
    known.put(rule("deny", version=2), is_known=False)
    assert await story.settle() == "completed" and story.output[0] == "denied"


async def test_new_policy_version_asks_the_same_people_once(tools: Toolbox, outside: Outside) -> None:
    story, known = await said_yes(tools)
    known.put(rule(rule="in other words", version=2), is_known=False)
    assert await story.settle() == "completed" and len(story.events(e.ApprovalRequested)) == 1


@pytest.mark.parametrize("stricter", [rule("deny"), rule(queue="legal")])
async def test_stricter_policy_prevents_a_repeat(tools: Toolbox, outside: Outside, stricter: Any) -> None:
    story = Story(ordering(tools), kill_at=[("CP4", "order")])
    known = with_policies(story, [rule("allow")])
    assert await story.drive() == "killed" and len(outside.requests) == 1
    known.put(stricter, is_known=False)
    assert await story.settle() == "parked"
    assert len(outside.requests) == 1 and story.waiting("reconcile"), "a person says what became of it"
    story.reconcile("did_not")
    await story.settle()
    assert len(outside.requests) == 1 and story.events(e.PolicyApplied)[-1].effect == stricter.effect


async def test_a_repeat_under_the_same_policies_goes_out_and_is_on_record(tools: Toolbox, outside: Outside) -> None:
    story = Story(ordering(tools), kill_at=[("CP4", "order")])
    with_policies(story, [rule()])
    await story.settle()
    story.decide()
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert [x[3] for x in applied(story)] == [0, 1, 2]


@pytest.mark.parametrize("name", ["order", "look"])
async def test_a_try_in_place_is_held_to_what_is_in_force_by_then(tools: Toolbox, outside: Outside, name: str) -> None:
    """A call's connection is refused twice, and meanwhile it is forbidden: a read's worker knows that by then."""
    story = Story(ordering(tools, name), retry=IN_PLACE)
    known = with_policies(story, [rule("allow")])

    def forbid(_: Any) -> None:
        known.put(rule("deny"), is_known=name == "look")
        raise NotSent("refused")

    outside.trouble(name, NotSent("refused"), forbid)
    how = await story.settle()
    assert outside.requests == []
    if name == "look":
        assert how == "completed" and story.output[0] == "denied"
    else:
        assert how == "parked" and story.waiting("reconcile")


async def test_a_try_in_place_under_other_policies_is_told_again_and_goes_out(tools: Toolbox, outside: Outside) -> None:
    story = Story(ordering(tools), retry=IN_PLACE)
    known = with_policies(story, [rule("allow")])

    def change(_: Any) -> None:
        known.put(rule("allow", version=2), is_known=False)
        raise NotSent("refused")

    outside.trouble("order", NotSent("refused"), change, NotSent("refused"))
    assert await story.settle() == "completed" and len(outside.executed()) == 1
    assert [x[:3] for x in applied(story)] == [("allow", "allow_it", 1)] * 2 + [("allow", "allow_it", 2)]
    assert len(story.events(e.ToolRedispatched)) == 2


async def test_repeated_read_asks_by_policies_of_then(tools: Toolbox, outside: Outside) -> None:
    story = Story(ordering(tools, "look"), retry=IN_PLACE)
    known = with_policies(story, [rule("allow")])

    def ask(_: Any) -> None:
        known.put(rule())
        raise NotSent("refused")

    outside.trouble("look", ask)
    assert await story.settle() == "parked" and outside.requests == []
    assert asked(story).queue == "finance_po"
    story.decide()
    assert await story.settle() == "completed" and len(outside.requests) == 1


async def test_brought_grant_counts_for_its_queue_only(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        item = Item(name="po", amount=5)
        yes = await ctx.approve("finance_po", title="Order?", tool=tools.order, body=item)
        return End((await ctx.call(tools.order, item, grant=yes)).ref)

    for queue, questions in (("finance_po", 1), ("legal", 2)):
        story = Story(agent_of(node, tools=tools.all()))
        with_policies(story, [rule(queue=queue)])
        for _ in range(questions):
            assert await story.settle() == "parked"
            story.decide()
        assert await story.settle() == "completed"
        assert len(story.events(e.ApprovalRequested)) == questions
        if queue == "legal":
            assert "asks legal as well" in history(story)[0]
        granted = next(x for x in story.run.waits.values() if x.gate is not None and x.gate.queue == "finance_po")
        assert granted.is_consumed, "the yes that the node brought is used up, no matter who else was asked"


async def test_expired_one_of_two_grants_is_named(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        item = Item(name="po", amount=5)
        yes = await ctx.approve("finance_po", title="Order?", tool=tools.order, body=item)
        return End((await ctx.call(tools.order, item, grant=yes)).ref)

    story = Story(agent_of(node, tools=tools.all()), kill_at=[("CP1", "order")])
    with_policies(story, [rule(queue="legal")])
    for _ in range(2):
        assert await story.drive() == "parked"
        story.decide()
    assert await story.drive() == "killed"
    for wait in story.run.waits.values():
        if wait.gate is not None and wait.gate.queue == "finance_po":
            wait.grant_expires_at = wait.spec.deadline - timedelta(days=30)
    assert await story.settle() == "parked" and outside.requests == []
    assert [line.partition("): ")[2] for line in history(story)] == [
        "it expired before the call was made.",
        "the call was not made under it.",
    ]


async def test_policies_that_are_not_authentic_let_nothing_through(tools: Toolbox, outside: Outside) -> None:
    story = Story(ordering(tools))
    known = with_policies(story, [])
    known.put(problem="the policy x was changed past this installation")
    assert await story.settle() == "operator" and outside.requests == []
    assert story.found.reason == "policies_not_genuine"


class Read(InForce):
    """A worker's policies, read from here instead of from a database."""

    def __init__(self) -> None:
        super().__init__(Policies(statement="", made_of=lambda problem: Rulebook(0, problem=problem)), None)
        self.problem = ""

    async def _row(self, statement: str, values: Sequence[Any]) -> tuple[Any, ...]:
        return (json.dumps(self.problem),)


async def test_empty_policies_are_read_again_after_a_while(
    tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change made past the application may keep the journal from refusing an intent."""
    agent, policies = ordering(tools), Read()
    assert await Story(agent, policies=policies).settle() == "completed" and len(outside.executed()) == 1
    policies.problem = "a revision was not put on record by this installation"
    monkeypatch.setattr(inforce, "FRESH_SECONDS", 0.0)
    assert await Story(agent, policies=policies).settle() == "operator" and len(outside.executed()) == 1


async def test_a_model_is_told_of_a_denied_call_and_goes_on(tools: Toolbox, outside: Outside) -> None:
    mind = Mind([call("order", name="po")], [final("without it")])
    story = Story(thinking(tools, mind))
    with_policies(story, [rule("deny", condition="source = model", kinds={"source": "text"}, tool="order")])
    assert await story.settle() == "completed" and outside.requests == []
    (found,) = mind.answers()
    assert found.outcome == "denied" and found.content == {"denied_by": "deny_it", "reason": "the board says so"}
