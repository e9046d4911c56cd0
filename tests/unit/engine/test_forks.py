"""A fork begins within another run's course, and repeats its effects only with a person's approval."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Agent, Context, End, Rejected
from durableagents.contrib.replay.redaction import Redaction
from ledger import events as e
from runs.engine.budget import Caps
from runs.engine.forks import FORK, OPEN, Evidence, Place, evidence_of
from runs.engine.journal import Snapshot
from runs.engine.memory import MemoryJournal
from runs.engine.recordings.recording import recordings_of
from runs.engine.recordings.replaying import replay
from tests.unit.engine.mortal import Death, mortal
from tests.unit.engine.story import HASHER, Story
from tests.world import Item, Notes, Outside, Toolbox, agent_of

AGAIN, TAKE, NO = {"decision": "do_it_again"}, {"decision": "take_what_is_on_record"}, {"decision": "no"}


def two_orders(tools: Toolbox, *, names: str = "ab") -> Agent:
    async def read(state: Notes, ctx: Context) -> str:
        state.seen.append((await ctx.call(tools.look, Item(name="catalogue"))).ref)
        return "order"

    async def order(state: Notes, ctx: Context) -> End:
        for name in names:
            state.seen.append((await ctx.call(tools.order, Item(name=name, amount=len(state.seen)))).ref)
        return End(state.seen)

    return agent_of(read, order, tools=tools.all(), name="forked-orders")


def told(story: Story, after: int) -> list[tuple[int, str, e.Event]]:
    numbered = enumerate(story.run.events, start=1)
    return [(seq, f"2026-01-0{min(seq, 9)}T00:00:00", event) for seq, event in numbered if seq > after]


def cut(story: Story, visit: int) -> tuple[int, Snapshot]:
    """Return a visit's first event and its checkpoint, which are one commit."""
    return next((seq, snapshot) for seq, snapshot in story.run.snapshots if snapshot.visit == visit)


def begin(
    made: Story, origin: Story, visit: int, payload: dict[str, Any], *, how: str = FORK, effects: int = 0
) -> Story:
    """Record that a run is a fork of another at one of its visits."""
    seq, snapshot = cut(origin, visit)
    of = {"origin": origin.run.id, "visit": visit, "at_seq": seq, "node": snapshot.node}
    made.run.append([e.RunForked(how=how, by="user:olga", effects=effects, payload=payload, **of)])
    return made


def fork_of(
    story: Story,
    visit: int,
    *,
    state: Any = None,
    effects: list[Evidence] | None = None,
    agent: Agent | None = None,
    how: str = FORK,
    **more: Any,
) -> Story:
    """Return a fork as the service makes it: see tests/integration/runs/test_forks.py."""
    seq, snapshot = cut(story, visit)
    found = (
        evidence_of(story.run.id, told(story, seq), lambda name: story.agent.tool(name)) if effects is None else effects
    )
    fork = Story(agent or story.agent, story.input, **more)
    payload = {
        "state": snapshot.state if state is None else state,
        "effects": [x.as_json() for x in found],
        "justification": "try it again",
    }
    return begin(fork, story, visit, payload, how=how, effects=len(found))


@pytest.fixture
async def done(tools: Toolbox) -> Story:
    story = Story(two_orders(tools))
    assert await story.settle() == "completed"
    return story


def sent(outside: Outside) -> list[str]:
    return [json.loads(r.body)["name"] for r in outside.seen("order")]


async def test_fork_begins_at_its_visit_and_asks_before_an_effect(done: Story, outside: Outside) -> None:
    fork = fork_of(done, 2)
    assert await fork.drive() == "parked"
    assert sent(outside) == ["a", "b"] and len(outside.seen("look")) == 1, "the visit before is not done again"
    _, wait = fork.one_waiting("input")
    detail = wait.spec.detail
    assert (wait.spec.slot, detail["of"]) == ("0.1/1", "operator")
    assert "2 " not in detail["title"] and "order" in detail["about"] and done.run.id in detail["about"]
    assert detail["schema"]["properties"]["decision"]["enum"] == ["do_it_again", "take_what_is_on_record", "no"]


async def test_a_word_is_about_one_call_and_the_next_is_asked_about_too(done: Story, outside: Outside) -> None:
    fork = fork_of(done, 2)
    await fork.drive()
    fork.run.answer(AGAIN)
    assert await fork.drive() == "parked" and sent(outside) == ["a", "b", "a"]
    assert fork.one_waiting("input")[1].spec.slot == "0.1/2"
    fork.run.answer(AGAIN)
    assert await fork.drive() == "completed" and fork.output == done.output
    keys = [r.key for r in outside.seen("order")]
    assert len(set(keys)) == 4, "a fork's keys are its own"


async def test_what_is_on_record_stands_for_the_same_call_and_nothing_is_sent(done: Story, outside: Outside) -> None:
    fork = fork_of(done, 2)
    for _ in range(2):
        await fork.drive()
        fork.run.answer(TAKE)
    assert await fork.drive() == "completed" and fork.output == done.output
    assert sent(outside) == ["a", "b"] and fork.facts() == []
    taken = fork.events(e.AnswerTakenOver)
    assert [(x.of_run, x.of_slot, x.how, x.by) for x in taken] == [
        (done.run.id, "0.2/1", "consent", "user:olga"),
        (done.run.id, "0.2/2", "consent", "user:olga"),
    ]


async def test_no_is_a_refusal_to_the_node(done: Story, outside: Outside) -> None:
    fork = fork_of(done, 2)
    await fork.drive()
    fork.run.answer(NO)
    assert await fork.drive() == "failed" and fork.failure.code == "rejected"
    assert sent(outside) == ["a", "b"]
    fork.retry_run()
    assert await fork.drive() == "failed" and sent(outside) == ["a", "b"], "a retry doesn't turn a no into a yes"


async def test_record_does_not_stand_for_another_amount(done: Story, outside: Outside) -> None:
    fork = fork_of(done, 2, state={"seen": ["x", "y", "z"], "asked": {"text": "", "amount": 0}})
    await fork.drive()
    detail = fork.one_waiting("input")[1].spec.detail
    assert detail["schema"]["properties"]["decision"]["enum"] == ["do_it_again", "no"]
    fork.run.answer(TAKE)  # the service refuses it; if it didn't, nothing would be taken over
    assert await fork.drive() == "operator" and fork.found.reason == "bad_consent"
    assert sent(outside) == ["a", "b"]


async def test_an_effect_on_record_stands_for_one_call(tools: Toolbox, outside: Outside) -> None:
    async def once(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        return End(state.asked.text)

    async def twice(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        await ctx.call(tools.order, Item(name="a"))
        return End()

    story = Story(agent_of(once, tools=tools.all(), name="ordering-once"))
    await story.settle()
    twice.__name__ = "once"
    fork = fork_of(story, 1, agent=agent_of(twice, tools=tools.all(), name="ordering-once", version="2.0.0"))
    await fork.drive()
    fork.run.answer(TAKE)
    await fork.drive()
    _, wait = fork.one_waiting("input")
    assert wait.spec.slot == "0.1/2" and wait.spec.detail["schema"]["properties"]["decision"]["enum"] == [
        "do_it_again",
        "no",
    ]


class Slow(MemoryJournal):
    """Lets another branch look before the first one's look is recorded."""

    async def undone(self, places: Collection[Place]) -> set[Place]:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().undone(places)


async def test_two_branches_are_not_given_the_same_effect(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        how_many = 2 if state.asked.text == "two" else 1
        await ctx.gather(*(ctx.call(tools.order, Item(name="a")) for _ in range(how_many)))
        return End()

    agent = agent_of(node, tools=tools.all(), name="ordering-branches")
    story = Story(agent)
    await story.settle()

    fork = fork_of(story, 1, state={"asked": {"text": "two", "amount": 0}, "seen": []}, journal=Slow)
    await fork.drive()
    for _, wait in fork.waiting("input"):
        fork.run.answer(TAKE, slot=wait.spec.slot)
    assert await fork.drive() == "parked"
    assert len(fork.events(e.AnswerTakenOver)) == 1 and len(fork.waiting("input")) == 1
    assert fork.one_waiting("input")[1].spec.n == 1, "it is asked again, without what the other was given"
    fork.run.answer(AGAIN)
    assert await fork.drive() == "completed" and len(outside.executed("order")) == 2


async def test_a_tool_that_the_origin_did_not_use_is_not_asked_about(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        if state.asked.text == "file":
            await ctx.call(tools.mail, Item(name="a"))
        else:
            await ctx.call(tools.order, Item(name="a"))
        return End()

    story = Story(agent_of(node, tools=tools.all(), name="ordering-or-filing"))
    await story.settle()
    fork = fork_of(story, 1, state={"asked": {"text": "file", "amount": 0}, "seen": []})
    assert await fork.drive() == "completed" and len(outside.executed("mail")) == 1


async def test_a_call_of_unknown_outcome_counts_as_done(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.mail, Item(name="a"))).ref)

    story = Story(agent_of(node, tools=tools.all(), name="filing-in-doubt"), kill_at=[("CP4", "mail")])
    assert await story.settle() == "parked"
    (found,) = evidence_of(story.run.id, told(story, 2), lambda name: story.agent.tool(name))
    assert (found.outcome, found.has_result) == (OPEN, False)
    fork = fork_of(story, 1)
    await fork.drive()
    detail = fork.one_waiting("input")[1].spec.detail
    assert "nobody knows what came of it" in detail["about"]
    assert detail["schema"]["properties"]["decision"]["enum"] == ["do_it_again", "no"]


RESENT = e.ToolRedispatched(slot="0.1/1", attempt=0, tool="mail", n=1, tries=1)
UNKNOWN = e.ToolOutcomeUnknown(slot="0.1/1", attempt=0, tool="mail", is_sender_done=True)


def found(verdict: str, by: str = "hook") -> e.Event:
    payload = {"result": {"ref": "found", "amount": 1}} if verdict == "happened" else {}
    return e.ToolReconciled(slot="0.1/1", attempt=0, tool="mail", n=0, verdict=verdict, by=by, payload=payload)


@pytest.mark.parametrize(
    ("since", "outcomes"),
    [
        ([], []),
        ([RESENT], ["open"]),
        ([RESENT, found("happened")], ["committed"]),
        ([RESENT, UNKNOWN, found("happened", "user:olga")], ["committed"]),
        ([RESENT, UNKNOWN, found("fail", "user:olga")], ["open"]),
        ([RESENT, found("fail", "user:olga")], ["open"]),
        ([RESENT, UNKNOWN], ["open"]),
        ([RESENT, UNKNOWN, found("did_not", "user:olga")], []),
    ],
    ids=["never left", "again", "found by a hook", "found by a person", "nobody can tell", "given up", "asked", "not"],
)
def test_unsent_try_says_nothing_of_the_next(tools: Toolbox, since: list[e.Event], outcomes: list[str]) -> None:
    intent = e.ToolInvoked(
        slot="0.1/1",
        attempt=0,
        tool="mail",
        replay_class="unsafe_on_replay",
        requested_hash="h",
        executed_hash="h",
        grant=None,
        payload={"arguments": {"name": "letter", "amount": 1}, "key": None},
    )
    not_sent = e.ToolNotDispatched(slot="0.1/1", attempt=0, tool="mail", n=1, payload={"error": "away"})
    every = list(enumerate([intent, not_sent, *since], start=1))
    known = evidence_of("run", [(seq, "", event) for seq, event in every], {"mail": tools.mail}.get)
    assert [effect.outcome for effect in known] == outcomes


async def test_the_tools_own_gate_stands_behind_the_fence(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="a", amount=5000))).ref)

    story = Story(agent_of(node, tools=tools.all(), name="gated-fork"))
    await story.drive()
    story.decide()
    assert await story.drive() == "completed"
    fork = fork_of(story, 1)
    await fork.drive()
    assert fork.waiting("approval") == []
    fork.run.answer(AGAIN)
    await fork.drive()
    assert len(fork.waiting("approval")) == 1 and len(outside.executed("pay")) == 1
    fork.decide("rejected")
    assert await fork.drive() == "failed" and len(outside.executed("pay")) == 1


async def test_nobody_answers_in_time_and_that_is_a_no(done: Story, outside: Outside) -> None:
    fork = fork_of(done, 2)
    await fork.drive()
    wait_id, _ = fork.one_waiting("input")
    fork.run.resolve(wait_id, "timed_out")
    assert await fork.drive() == "failed" and fork.failure.code == "rejected" and sent(outside) == ["a", "b"]
    fork.retry_run()
    assert await fork.drive() == "parked", "a retry asks again"
    fork.run.answer(AGAIN)
    await fork.drive()
    assert sent(outside) == ["a", "b", "a"]


def again(tools: Toolbox) -> Agent:
    async def order(state: Notes, ctx: Context) -> End:
        for _ in range(2):
            try:
                state.seen.append((await ctx.call(tools.order, Item(name="a"))).ref)
                break
            except Rejected as no:
                state.seen.append(no.verdict)
        await ctx.signal("go", within=timedelta(days=1), or_else=None)
        return End(state.seen)

    return agent_of(order, tools=tools.all(), name="ordering-again")


async def refused_then(tools: Toolbox, how: str) -> Story:
    """Return a fork whose first call was refused, and whose second one took over that call's result."""
    story = Story(again(tools))
    await story.drive()
    fork = fork_of(story, 1)
    await fork.drive()
    if how == "rejected":
        fork.run.answer(NO)
    else:
        fork.run.resolve(fork.one_waiting("input")[0], "timed_out")
    await fork.drive()
    fork.run.answer(TAKE)
    assert await fork.drive() == "parked"
    return fork


@pytest.mark.parametrize("how", ["rejected", "expired"])
async def test_a_no_stands_whatever_the_node_was_given_after_it(tools: Toolbox, outside: Outside, how: str) -> None:
    fork = await refused_then(tools, how)
    assert fork.waiting("input") == [], "the call that was refused isn't asked about again"
    fork.run.signal("go")
    assert await fork.drive() == "completed"
    assert fork.output[0] == how and len(fork.output) == 2 and sent(outside) == ["a"]


@pytest.mark.parametrize("how", ["rejected", "expired"])
async def test_a_fork_whose_fence_was_answered_no_replays(tools: Toolbox, outside: Outside, how: str) -> None:
    fork = await refused_then(tools, how)
    fork.run.signal("go")
    await fork.drive()
    cuts = [(seq, s.node, s.visit, s.generation, s.fingerprint, s.state) for seq, s in fork.run.snapshots]
    for hasher in (None, HASHER):
        (told_of_it,) = recordings_of(fork.run.id, fork.run.events, cuts)
        found = await replay(told_of_it, fork.agent, hasher=hasher)
        assert found.difference is None and found.beyond == [] and "0.1/2" in found.answered
    redacted = Redaction((), b"salt").redact(told_of_it)
    assert (await replay(redacted, fork.agent)).difference is None and sent(outside) == ["a"]


async def test_a_word_to_another_question_lets_nothing_through(done: Story, outside: Outside) -> None:
    """An approval at the call's own slot, but of a question with other content."""
    fork = fork_of(done, 2)
    await fork.drive()
    match = next(i for i, x in enumerate(fork.run.events) if isinstance(x, e.WaitOpened))
    opened = fork.run.events[match]
    fork.run.events[match] = e.WaitOpened(
        slot=opened.slot,
        attempt=0,
        wait="input",
        n=0,
        deadline=opened.deadline,  # type: ignore[attr-defined]
        payload=opened.payload | {"binds": "0" * 64},
    )
    fork.run.answer(AGAIN)
    assert await fork.drive() == "parked" and sent(outside) == ["a", "b"]
    assert fork.one_waiting("input")[1].spec.n == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("said", [AGAIN, TAKE])
async def test_wherever_its_worker_dies_each_word_has_one_effect(
    tools: Toolbox, outside: Outside, done: Story, said: Any, nth: int, when: Any
) -> None:
    fork = fork_of(done, 2, journal=mortal([Death(nth, when), Death(2, when)]))
    for _ in range(40):
        if await fork.drive() == "completed":
            break
        for _, wait in fork.waiting("input"):
            fork.run.answer(said, slot=wait.spec.slot)
    assert fork.output == done.output
    assert len(outside.executed("order")) == (4 if said is AGAIN else 2)
    assert len(fork.events(e.AnswerTakenOver)) == (0 if said is AGAIN else 2)


async def test_a_fork_of_a_fork_knows_what_the_first_one_did(done: Story, tools: Toolbox, outside: Outside) -> None:
    fork = fork_of(done, 2)
    for _ in range(2):
        await fork.drive()
        fork.run.answer(AGAIN)
    await fork.drive()
    first = [Evidence(**x) for x in fork.events(e.RunForked)[0].payload["effects"]]
    own = evidence_of(fork.run.id, told(fork, 3), lambda name: fork.agent.tool(name))
    again = fork_of(fork, 1, effects=first + own)
    await again.drive()
    problem = again.one_waiting("input")[1].spec.detail["about"]
    assert problem.count("called order") == 4


async def test_a_run_that_was_started_is_an_effect(tools: Toolbox) -> None:
    async def below(state: Notes, ctx: Context) -> End:
        return End("from below")

    under = agent_of(below, name="fork-child")

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.child(under, {"text": state.asked.text, "amount": 1}))

    story = Story(agent_of(node, name="fork-parent"))
    await story.drive()
    (child,) = story.run.children
    story.run.end_child(child, output="from below")
    assert await story.drive() == "completed"
    fork = fork_of(story, 1)
    assert await fork.drive() == "parked" and fork.run.children == {}
    fork.run.answer(TAKE)
    assert await fork.drive() == "completed" and fork.output == "from below" and fork.run.children == {}
    fork = fork_of(story, 1)
    await fork.drive()
    fork.run.answer(AGAIN)
    await fork.drive()
    assert len(fork.run.children) == 1 and fork.run.children.keys() != {child}


async def test_last_room_under_a_cap_goes_to_one_allowed_call(tools: Toolbox, outside: Outside) -> None:
    """The first one has its room and waits to be recorded while the other is checked."""

    async def read(state: Notes, ctx: Context) -> str:
        return "order"

    async def order(state: Notes, ctx: Context) -> End:
        return End(len(await ctx.gather(*(ctx.call(tools.order, Item(name=name)) for name in "abc"))))

    origin = Story(agent_of(read, order, tools=tools.all(), name="forked-at-once"))
    assert await origin.settle() == "completed"
    fork = fork_of(origin, 2, caps=Caps(tool_calls=1), journal=Slow)
    assert await fork.drive() == "parked"
    for _ in range(3):
        fork.run.answer(AGAIN)
    async with asyncio.timeout(20):
        assert await fork.drive() == "paused" and len(outside.seen("order")) == 4
    fork.run.raise_budget(Caps(tool_calls=3))
    assert await fork.drive() == "completed" and len(outside.seen("order")) == 6
