from __future__ import annotations

import threading
from typing import Any

import pytest

from durableagents import (
    BusinessFailure,
    Context,
    DidNotHappen,
    End,
    Happened,
    ReplayClass,
    ToolCall,
    TransportError,
    tool,
)
from ledger import events as e
from runs.engine.agents import Agent
from tests.unit.engine.story import Story
from tests.world import Done, Item, Killed, Notes, Outside, Toolbox, agent_of


def one_call(tools: Toolbox, name: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.call(getattr(tools, name), Item(name="a"))
        await ctx.call(tools.read_file, Item(name="after"))
        return End(done.ref)

    return agent_of(node, tools=tools.all())


def die_at(story: Story, outside: Outside, tool: str, point: str) -> None:
    """Let the worker die at a point. CP3 is outside: the effect happened, and the answer is lost."""
    if point == "CP3":
        outside.trouble(tool, Killed(), when="after")
    else:
        story.kill_at = [(point, tool)]


# class, point → how it continues, requests seen
TABLE = [
    ("look", "CP2", "completed", 1),
    ("look", "CP3", "completed", 2),
    ("look", "CP4", "completed", 2),
    ("look", "CP6", "completed", 1),
    ("order", "CP1", "completed", 1),
    ("order", "CP2", "completed", 1),
    ("order", "CP3", "completed", 2),
    ("order", "CP4", "completed", 2),
    ("order", "CP6", "completed", 1),
    ("mail", "CP1", "completed", 1),
    ("mail", "CP2", "parked", 0),
    ("mail", "CP3", "parked", 1),
    ("mail", "CP4", "parked", 1),
    ("mail", "CP6", "completed", 1),
]


@pytest.mark.parametrize(("tool", "point", "how", "requests"), TABLE)
async def test_a_death_around_a_call_is_answered_by_its_class(
    tools: Toolbox, outside: Outside, tool: str, point: str, how: str, requests: int
) -> None:
    story = Story(one_call(tools, tool))
    die_at(story, outside, tool, point)
    assert await story.drive() == "killed"
    assert await story.settle() == how
    seen = outside.seen(tool)
    assert len(seen) == requests
    assert len({(r.key, r.body, r.attempt) for r in seen}) <= 1, "one key and one body, ever"
    assert sum(r.executed for r in seen) == min(requests, 1) * (tool != "look")
    if how == "parked":
        assert [kind.spec.kind for _, kind in story.waiting("reconcile")] == ["reconcile"]
        assert story.facts() == ["pending", "unknown"]
    else:
        assert story.output == f"{tool}:a"
        assert story.facts() == ([] if tool == "look" else ["pending", "committed"])


@pytest.mark.parametrize("deaths", [1, 2, 5])
async def test_many_deaths_leave_one_keyed_effect(tools: Toolbox, outside: Outside, deaths: int) -> None:
    outside.trouble("order", *[Killed() for _ in range(deaths)], when="after")
    story = Story(one_call(tools, "order"))
    assert await story.settle() == "completed"
    assert len(outside.seen("order")) == deaths + 1
    assert len(outside.executed("order")) == 1
    assert [event.n for event in story.events(e.ToolRedispatched)] == list(range(1, deaths + 1))


# --- reconcile hooks ---


@pytest.mark.parametrize("tool", ["hooked", "hooked_mail"])
async def test_a_hook_that_finds_the_effect_spares_the_repeat(tools: Toolbox, outside: Outside, tool: str) -> None:
    outside.hook = lambda args, call: Happened(Done(ref="found"))
    story = Story(one_call(tools, tool), kill_at=[("CP4", tool)])
    assert await story.settle() == "completed"
    assert story.output == "found" and len(outside.seen(tool)) == 1
    assert story.facts() == ["pending", "reconciled"]
    assert story.events(e.ToolReconciled)[0].by == "hook"


@pytest.mark.parametrize("tool", ["hooked", "hooked_mail"])
async def test_a_hook_that_rules_it_out_lets_it_be_sent_again(tools: Toolbox, outside: Outside, tool: str) -> None:
    outside.hook = lambda args, call: DidNotHappen()
    story = Story(one_call(tools, tool), kill_at=[("CP2", tool)])
    assert await story.settle() == "completed"
    assert len(outside.executed(tool)) == 1 and story.output == f"{tool}:a"


def _raises(error: Exception) -> Any:
    def hook(args: Any, call: Any) -> Any:
        raise error

    return hook


NO_ANSWERS = {
    "none": lambda args, call: None,
    "an outage": _raises(TransportError("away")),
    "a refusal": _raises(BusinessFailure("no such thing")),
    "a bug": _raises(KeyError("oops")),
    "a result of the wrong form": lambda args, call: Happened({"nothing": "that fits"}),
}


@pytest.mark.parametrize("answer", NO_ANSWERS)
async def test_unusable_hook_answer_falls_back_on_the_class(tools: Toolbox, outside: Outside, answer: str) -> None:
    outside.hook = NO_ANSWERS[answer]
    keyed = Story(one_call(tools, "hooked"), kill_at=[("CP4", "hooked")])
    assert await keyed.settle() == "completed"
    assert len(outside.executed("hooked")) == 1 and len(outside.seen("hooked")) == 2

    unsafe = Story(one_call(tools, "hooked_mail"), kill_at=[("CP4", "hooked_mail")])
    assert await unsafe.settle() == "parked" and unsafe.waiting("reconcile")
    assert len(outside.seen("hooked_mail")) == 1


# --- the answer is lost, and the worker lives ---


async def test_a_lost_answer_is_asked_for_before_anybody_is(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: Happened(Done(ref="found"))
    outside.trouble("hooked_mail", TransportError("no reply after the dot"), when="after")
    story = Story(one_call(tools, "hooked_mail"))
    assert await story.settle() == "completed" and story.output == "found"
    assert len(outside.seen("hooked_mail")) == 1 and story.facts() == ["pending", "reconciled"]
    assert story.events(e.ToolReconciled)[0].by == "hook"


async def test_what_did_not_happen_is_sent_again_and_told(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: DidNotHappen()
    outside.trouble("hooked_mail", TransportError("cut"), TransportError("cut again"))
    story = Story(one_call(tools, "hooked_mail"))
    assert await story.settle() == "completed"
    assert len(outside.executed("hooked_mail")) == 1 and not outside.troubles["hooked_mail"]
    assert [event.n for event in story.events(e.ToolRedispatched)] == [1, 2], "each on record before it left"


@pytest.mark.parametrize("answer", NO_ANSWERS)
async def test_a_lost_answer_that_nobody_knows_of_is_a_persons(tools: Toolbox, outside: Outside, answer: str) -> None:
    outside.hook = NO_ANSWERS[answer]
    outside.trouble("hooked_mail", TransportError("cut"), when="after")
    story = Story(one_call(tools, "hooked_mail"))
    assert await story.settle() == "parked" and story.waiting("reconcile")
    assert len(outside.seen("hooked_mail")) == 1
    assert "cut" in story.events(e.ToolOutcomeUnknown)[0].payload["reason"]


async def test_denial_is_refused_while_a_call_may_be_under_way(tools: Toolbox, outside: Outside) -> None:
    """A blocking function runs on in its thread after its time limit, and may still send."""
    items = []

    async def hook(args: Item, call: ToolCall) -> DidNotHappen:
        items.append(call.slot)
        return DidNotHappen()

    release = threading.Event()

    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, system="outside", effect="sends", timeout=0.05, reconcile=hook)
    def slow(args: Item, call: ToolCall) -> Done:
        release.wait(5)
        return Done(ref="late")

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.call(slow, Item(name="a")))

    story = Story(agent_of(node, tools=[slow]))
    assert await story.settle() == "parked" and story.waiting("reconcile") and items == ["0.1/1"]
    assert not story.events(e.ToolOutcomeUnknown)[0].is_sender_done
    release.set()


@pytest.mark.parametrize("point", ["CP4", "CP5", "CP6"])
async def test_who_dies_while_asking_asks_again(tools: Toolbox, outside: Outside, point: str) -> None:
    outside.hook = lambda args, call: Happened(Done(ref="found"))
    outside.trouble("hooked_mail", TransportError("cut"), when="after")
    story = Story(one_call(tools, "hooked_mail"), kill_at=[(point, "hooked_mail")])
    assert await story.settle() == "completed" and story.output == "found"
    assert len(outside.seen("hooked_mail")) == 1 and story.facts() == ["pending", "reconciled"]


async def test_a_hooks_result_may_be_plain_data_that_fits(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: Happened({"ref": "plain"})
    story = Story(one_call(tools, "hooked_mail"), kill_at=[("CP4", "hooked_mail")])
    assert await story.settle() == "completed" and story.output == "plain"


# --- the three verdicts ---


async def unknown(tools: Toolbox, outside: Outside) -> Story:
    story = Story(one_call(tools, "mail"))
    outside.trouble("mail", TransportError("no reply after the dot"), when="after")
    assert await story.settle() == "parked"
    assert story.facts() == ["pending", "unknown"]
    return story


async def test_it_happened_makes_the_receipt_the_result(tools: Toolbox, outside: Outside) -> None:
    story = await unknown(tools, outside)
    story.reconcile("happened", receipt={"ref": "seen in the inbox"})
    assert await story.settle() == "completed"
    assert story.output == "seen in the inbox" and len(outside.seen("mail")) == 1


async def test_it_did_not_is_a_further_attempt_and_only_then_sent_again(tools: Toolbox, outside: Outside) -> None:
    story = await unknown(tools, outside)
    assert await story.settle() == "parked", "driving it again asks nobody and sends nothing"
    assert len(outside.seen("mail")) == 1
    story.reconcile("did_not")
    assert await story.settle() == "completed"
    assert [r.attempt for r in outside.seen("mail")] == [0, 1]
    assert [(x.attempt, x.fact) for x in story.run.entries] == [
        (0, "pending"),
        (0, "unknown"),
        (1, "pending"),
        (1, "committed"),
    ]


async def test_a_second_attempt_can_be_unknown_too(tools: Toolbox, outside: Outside) -> None:
    story = await unknown(tools, outside)
    outside.trouble("mail", TransportError("again"), when="after")
    story.reconcile("did_not")
    assert await story.settle() == "parked"
    story.reconcile("happened", receipt={"ref": "second"})
    assert await story.settle() == "completed"
    assert [r.attempt for r in outside.seen("mail")] == [0, 1]


async def test_fail_and_a_later_retry_ask_again_and_never_send(tools: Toolbox, outside: Outside) -> None:
    story = await unknown(tools, outside)
    for _ in range(2):
        story.reconcile("fail")
        story.retry_run()
        assert await story.settle() == "parked"
        assert len(story.waiting("reconcile")) == 1
    assert len(outside.seen("mail")) == 1
    story.reconcile("happened", receipt={"ref": "at last"})
    assert await story.settle() == "completed" and story.output == "at last"


async def test_a_gated_read_whose_worker_died_is_simply_made_again(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.read_file, Item(name="f", amount=1000))).ref)

    story = Story(agent_of(node, tools=tools.all()), kill_at=[("CP4", "read_file")])
    assert await story.drive() == "parked"
    story.decide()
    assert await story.settle() == "completed"
    assert len(outside.seen("read_file")) == 2 and len(story.events(e.ApprovalRequested)) == 1
