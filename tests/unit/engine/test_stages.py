from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from durableagents import Context, End, Gate, Rejected, Stage
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.errors import DefinitionError
from runs.engine.fingerprint.words import differences
from runs.engine.memory import HasVoted
from tests.cases import each_case
from tests.unit.engine.policies import rule, with_policies
from tests.unit.engine.story import HASHER, Story
from tests.world import Item, Notes, Outside, Toolbox, agent_of

DEAR = 84_000
TWO_STAGES = Gate("legal", "large sums", quorum=1, then=[Stage("finance_po", 2)])


def paying(tools: Toolbox, gate: Gate = TWO_STAGES, tries: int = 1) -> Agent:
    pay = replace(tools.pay, gate=gate)

    async def node(state: Notes, ctx: Context) -> End:
        for n in range(tries):
            try:
                return End((await ctx.call(pay, Item(name="po", amount=DEAR - n), why="as quoted")).ref)
            except Rejected:
                if n == tries - 1:
                    raise
        raise AssertionError("unreachable")

    return agent_of(node, tools=[pay])


async def said(story: Story, *words: tuple[str, str]) -> str:
    how = await story.drive()
    for by, verdict in words:
        story.run.decide(verdict, by=f"user:{by}")
        how = await story.settle()
    return how


YES = "approved"
LEGAL, FINANCE = [("lena", YES)], [("fiona", YES), ("frank", YES)]


async def test_a_call_leaves_after_all_stages_in_order_and_not_before(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools))
    for so_far in ([], LEGAL, FINANCE[:1]):
        assert await said(story, *so_far) == "parked" and outside.requests == []
    assert await said(story, FINANCE[1]) == "completed" and len(outside.executed()) == 1
    events = story.events(e.ApprovalRequested)
    assert [(x.queue, x.n, x.payload["stage"]) for x in events] == [("legal", 0, 1), ("finance_po", 1, 2)]
    assert events[1].payload["passed"] == [
        {"approval_id": events[0].approval_id, "queue": "legal", "by": ["user:lena"]}
    ], "the second approver sees the first, and binds it"
    assert events[0].requested_hash == events[1].requested_hash and events[0].plan_hash != events[1].plan_hash
    (invoked,) = story.events(e.ToolInvoked)
    assert invoked.grant == events[0].slot


async def test_a_gate_that_one_yes_lets_through_has_the_plan_that_it_always_had(tools: Toolbox) -> None:
    plans = []
    for gate in (Gate("legal", "large sums"), Gate("legal", "large sums", quorum=1, then=[])):
        story = Story(paying(tools, gate))
        await story.drive()
        plans.append(story.events(e.ApprovalRequested)[0].payload)
        story.decide()
        assert await story.settle() == "completed" and not story.events(e.ApprovalVoted)
    assert not {"stages", "stage", "passed"} & plans[0].keys() and plans[0].keys() == plans[1].keys()


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
async def test_a_quorum_counts_different_people(tools: Toolbox, order: list[int]) -> None:
    story = Story(paying(tools, Gate("finance_po", "large sums", quorum=2)))
    people = ["user:fiona", "user:frank"]
    await story.drive()
    story.run.decide(YES, by=people[order[0]])
    for kind in ("user", "key"):
        with pytest.raises(HasVoted):
            story.run.decide(YES, by=f"{kind}:{people[order[0]].partition(':')[2]}")
    assert await story.settle() == "parked"
    story.run.decide(YES, by=people[order[1]])
    assert await story.settle() == "completed"


async def test_an_abstention_counts_as_neither(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools, Gate("finance_po", "large sums", quorum=2)))
    assert await said(story, ("ada", "abstain"), ("fiona", YES), ("ben", "abstain")) == "parked"
    assert outside.requests == []
    assert await said(story, ("frank", YES)) == "completed"


@pytest.mark.parametrize("before", [[], LEGAL, [*LEGAL, FINANCE[0]]])
async def test_one_rejection_ends_any_stage(tools: Toolbox, outside: Outside, before: list[tuple[str, str]]) -> None:
    story = Story(paying(tools))
    assert await said(story, *before, ("nora", "rejected")) == "failed" and outside.requests == []
    assert "nora" in story.events(e.RunFailed)[0].payload["message"]


async def test_a_revised_call_is_asked_from_the_first_stage_on(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools, tries=2))
    assert await said(story, *LEGAL, ("nora", "rejected")) == "parked"
    assert [x.payload["stage"] for x in story.events(e.ApprovalRequested)] == [1, 2, 1]
    assert await said(story, *LEGAL, *FINANCE) == "completed"
    assert [json.loads(r.body)["amount"] for r in outside.requests] == [DEAR - 1]


@pytest.mark.parametrize("gate", [TWO_STAGES, Gate("finance_po", "large sums")])
async def test_failing_verdict_bypasses_the_node(tools: Toolbox, outside: Outside, gate: Gate) -> None:
    story = Story(paying(tools, gate, tries=2))
    assert await said(story, ("nora", "fail")) == "failed" and outside.requests == []
    (failed,) = story.events(e.RunFailed)
    assert failed.code == "rejected" and "user:nora" in failed.payload["message"]
    assert len(story.events(e.ApprovalRequested)) == 1


@pytest.mark.parametrize("point", ["CP1", "CP2", "CP4", "CP6", "CP8"])
async def test_deaths_ask_each_stage_and_make_the_call_once(tools: Toolbox, outside: Outside, point: str) -> None:
    story = Story(paying(tools), kill_at=[(point, "" if point == "CP8" else "pay")] * 2)
    await story.settle()
    assert await said(story, *LEGAL, *FINANCE) in ("completed", "killed")
    assert await story.settle() == "completed"
    assert len(story.events(e.ApprovalRequested)) == 2 and len(outside.executed()) == 1


# --- a grant requested before ---


def granted(tools: Toolbox, **how: Any) -> Agent:
    pay = replace(tools.pay, gate=TWO_STAGES)

    async def node(state: Notes, ctx: Context) -> End:
        item = Item(name="po", amount=DEAR)
        grant = await ctx.approve("legal", title="Pay?", body=item, tool=pay, **how)
        return End((await ctx.call(pay, item, grant=grant)).ref)

    return agent_of(node, tools=[pay])


async def test_a_grant_asks_all_whom_its_tool_asks(tools: Toolbox, outside: Outside) -> None:
    story = Story(granted(tools))
    assert await said(story, *LEGAL, *FINANCE) == "completed" and len(outside.executed()) == 1


@pytest.mark.parametrize("how", [{"quorum": 1}, {"then": []}, {"then": [Stage("finance_po", 1)]}, {"quorum": 2}])
async def test_grant_of_too_few_people_is_refused(tools: Toolbox, outside: Outside, how: dict[str, Any]) -> None:
    story = Story(granted(tools, **how))
    await said(story, *LEGAL)
    while story.waiting("approval"):
        story.run.decide(YES, by=f"user:{len(story.run.events)}")
        await story.settle()
    (stopped,) = story.events(e.OperatorNeeded)
    assert stopped.reason == "grant_mismatch" and outside.requests == []


# --- forged votes ---

Forge = Callable[[Story], None]


def _decided_without_votes(story: Story) -> None:
    question = story.events(e.ApprovalRequested)[-1]
    ((wait_id, _),) = story.waiting("approval")
    event = e.ApprovalDecided(
        slot=question.slot,
        n=question.n,
        approval_id=question.approval_id,
        verdict=YES,
        by="user:eve",
        role="",
        plan_hash=question.plan_hash,
        payload={"justification": "so"},
    )
    story.run.resolve(wait_id, YES, event=event, grant_hash=question.plan_hash)


def _vote(story: Story, **changed: Any) -> None:
    question = story.events(e.ApprovalRequested)[-1]
    fields: dict[str, Any] = {
        "slot": question.slot,
        "n": question.n,
        "approval_id": question.approval_id,
        "verdict": "approve",
        "plan_hash": question.plan_hash,
        "by": "user:eve",
        "role": "",
        "person": 666,
        "payload": {},
    }
    story.run.append([e.ApprovalVoted(**(fields | changed))])


def _deputy_and_principal(story: Story) -> None:
    _vote(story, person=7)
    _vote(story, person=8, principal=7)
    _decided_without_votes(story)


def _other_plan(story: Story) -> None:
    _vote(story, person=7)
    _vote(story, person=8, plan_hash="0" * 64)
    _decided_without_votes(story)


def _abstained(story: Story) -> None:
    _vote(story, person=7)
    _vote(story, person=8, verdict="abstain")
    _decided_without_votes(story)


def _of_another_question(story: Story) -> None:
    first = story.events(e.ApprovalRequested)[0]
    _vote(story, person=7)
    _vote(story, person=8, approval_id=first.approval_id, n=first.n, plan_hash=first.plan_hash)
    _decided_without_votes(story)


def _who_decided_before(story: Story) -> None:
    lena = story.events(e.ApprovalVoted)[0].person
    _vote(story, person=7)
    _vote(story, person=lena)
    _decided_without_votes(story)


@pytest.mark.parametrize(
    "forge",
    [_decided_without_votes, _deputy_and_principal, _other_plan, _abstained, _of_another_question, _who_decided_before],
)
async def test_too_few_votes_let_nothing_through(tools: Toolbox, outside: Outside, forge: Forge) -> None:
    story = Story(paying(tools))
    assert await said(story, *LEGAL) == "parked"
    forge(story)
    assert await story.settle() == "operator" and outside.requests == []
    assert story.events(e.OperatorNeeded)[0].reason == "approval_missing"


async def test_the_journal_takes_no_second_vote_of_one_person_on_one_question(tools: Toolbox) -> None:
    story = Story(paying(tools))
    await said(story, *LEGAL)
    _vote(story, person=7)
    for again in ({"person": 7}, {"person": 7, "verdict": "reject"}, {"person": 7, "principal": 9}):
        with pytest.raises(ValueError, match="already recorded"):
            _vote(story, **again)


async def test_a_stage_that_was_left_out_lets_nothing_through(tools: Toolbox, outside: Outside) -> None:
    """The last stage's question went to its queue without the first one."""
    story = Story(paying(tools))
    await story.drive()
    first = story.events(e.ApprovalRequested)[0]
    ((wait_id, _),) = story.waiting("approval")
    plan = {**first.payload, "stage": 2, "queue": "finance_po"}
    plan["passed"] = [{"approval_id": first.approval_id, "queue": "legal", "by": ["user:lena"]}]
    fields = {"slot": first.slot, "n": 1, "approval_id": str(UUID(int=7)), "plan_hash": HASHER(plan)}
    approval_requested = e.ApprovalRequested(
        queue="finance_po",
        tool="pay",
        requested_hash=first.requested_hash,
        rule=first.rule,
        deadline=first.deadline,
        payload=plan,
        **fields,
    )
    votes = [
        e.ApprovalVoted(verdict="approve", by=f"user:{n}", role="", person=n, payload={}, **fields) for n in (7, 8)
    ]
    yes = e.ApprovalDecided(verdict=YES, by="user:8", role="", payload={}, **fields)
    story.run.append([approval_requested, *votes])
    story.run.resolve(wait_id, YES, event=yes, grant_hash=HASHER(plan))
    assert await story.settle() == "operator" and outside.requests == []


# --- a gate's declaration ---


@each_case(
    "wrong",
    [
        {"quorum": 0},
        {"quorum": -1},
        {"quorum": True},
        {"quorum": 1.5},
        {"quorum": 21},
        {"quorum": "2"},
        {"then": "finance"},
        {"then": ["finance"]},
        {"then": [("finance", 2)]},
        {"then": Stage("finance")},
        {"then": [Stage("finance")] * 8},
    ],
)
def test_a_gate_that_nobody_can_mean_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        Gate("legal", "large sums", **wrong)


def test_a_stage_that_nobody_can_mean_is_refused_where_it_is_written() -> None:
    for queue, quorum in ((" ", 1), (None, 1), ("finance", 0), ("finance", None)):
        with pytest.raises(DefinitionError):
            Stage(queue, quorum)  # type: ignore[arg-type]


def test_a_version_says_in_words_who_is_asked(tools: Toolbox) -> None:
    was, now = paying(tools, Gate("legal", "large sums")), paying(tools)
    assert was.fingerprint() != now.fingerprint()
    words = list(differences(was.parts(), now.parts()))
    assert any("gate stages legal → legal, then 2 of finance_po" in str(each) for each in words), words


# --- with policies ----------------------------------------------------------------------------------------------------


def in_order(story: Story) -> list[str]:
    return [x.queue for x in story.events(e.ApprovalRequested)]


async def test_a_policy_alongside_a_staged_gate_is_asked_after_all_of_its_stages(
    tools: Toolbox, outside: Outside
) -> None:
    story = Story(paying(tools))
    with_policies(story, [rule(queue="board")])
    for so_far in ([], LEGAL, FINANCE[:1], FINANCE[1:]):
        assert await said(story, *so_far) == "parked" and outside.requests == []
    assert in_order(story) == ["legal", "finance_po", "board"]
    assert await said(story, ("bea", YES)) == "completed" and len(outside.executed()) == 1


@pytest.mark.parametrize("queue", ["legal", "finance_po"])
async def test_only_a_complete_case_satisfies_a_policy(tools: Toolbox, outside: Outside, queue: str) -> None:
    story = Story(paying(tools))
    with_policies(story, [rule(queue=queue)])
    assert await said(story, *LEGAL, FINANCE[0]) == "parked" and outside.requests == []
    assert await said(story, FINANCE[1]) == "completed" and len(outside.executed()) == 1
    assert in_order(story) == ["legal", "finance_po"], "nobody is asked twice"


async def test_a_policy_that_comes_between_two_stages_takes_none_of_them_away(tools: Toolbox, outside: Outside) -> None:
    story = Story(paying(tools))
    known = with_policies(story, [])
    assert await said(story, *LEGAL) == "parked"
    known.put(rule(queue="legal"))
    assert await said(story, FINANCE[0]) == "parked" and outside.requests == []
    assert await said(story, FINANCE[1]) == "completed" and len(outside.executed()) == 1
    assert in_order(story) == ["legal", "finance_po"]


async def test_policys_approval_does_not_fill_a_gates_quorum(tools: Toolbox, outside: Outside) -> None:
    gate = Gate("finance_po", "large sums", quorum=2, when=lambda item: outside.hook is not None)
    story = Story(paying(tools, gate))
    with_policies(story, [rule(queue="finance_po")])
    assert await said(story) == "parked"  # the gate's rule does not apply yet, the policy's does
    outside.hook = lambda args, call: None
    assert await said(story, FINANCE[0]) == "parked" and outside.requests == []
    assert await said(story, *FINANCE) == "completed" and len(outside.executed()) == 1
    assert in_order(story) == ["finance_po", "finance_po"]
