from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from approvals.models import Approval
from durableagents import BusinessFailure, Context, End, Failure, TransportError
from ledger import events as e
from ledger.codec import decode, unpack
from ledger.models import Event
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.models import Run
from runs.workers import timers
from tests.integration.approvals.timing import make_late
from tests.integration.runs.aging import all_earlier, written_as
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Mood, Stage, calling, events, facts, fresh, output, problems, waiting
from tests.integration.runs.test_steering import is_sound
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.every(3)


def retried(stage: Stage, run: Run) -> str:
    assert str(fresh(run).state) == "failed" and fresh(run).error_code
    act("retry", run)
    is_sound(run)
    assert (fresh(run).error_code, fresh(run).ended_at, fresh(run).end_seq) == ("", None, None)
    how = stage.drive()
    is_sound(run)
    return how


def after_two_calls(tools: Toolbox, then: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="before"))
        await ctx.call(tools.look, Item(name="before"))
        return End(await then(ctx))

    return agent_of(node, tools=tools.all())


# What fails: the tool, how, when, and the run's error code.
KINDS: dict[str, tuple[str, Exception | None, Any, str]] = {
    "a bug in the node": ("", KeyError("x"), "", "node_error"),
    "the node's own word": ("", Failure("not today", code="not_today"), "", "not_today"),
    "a bug in a keyed tool": ("hooked", KeyError("x"), "after", "tool_error"),
    "a bug in a pure tool": ("read_file", KeyError("x"), "before", "tool_error"),
    "a refusal of a keyed call": ("hooked", BusinessFailure("no", code="no_credit"), "before", "no_credit"),
    "a refusal of an unsafe call": ("mail", BusinessFailure("no", code="no_such_box"), "before", "no_such_box"),
    "a refusal of a read": ("read_file", BusinessFailure("no", code="unreadable"), "before", "unreadable"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_retry_repeats_only_failures(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood, kind: str) -> None:
    tool, trouble, when, code = KINDS[kind]
    assert trouble is not None

    async def then(ctx: Context) -> str:
        if tool:
            await ctx.call(getattr(tools, tool), Item(name="then"))
        elif mood.is_bad:
            raise trouble
        return "well"

    if tool:
        outside.trouble(tool, trouble, when=when)
    run = stage.start(after_two_calls(tools, then))
    assert stage.drive() == "failed" and fresh(run).error_code == code
    mood.is_bad = False
    assert retried(stage, run) == "completed" and output(run) == "well"
    assert len(outside.seen("order")) == 1 == len(outside.seen("look")), "what was done is answered from the journal"
    (found,) = events(run, e.RunRetried)
    attempts = [x.attempt for x in events(run, e.ToolInvoked) if x.slot == "0.1/3"]
    if "refusal" in kind:
        assert found.reopened == ["0.1/3"]
        assert attempts == ([] if tool == "read_file" else [0, 1]), "a further attempt, with a key of its own"
    else:
        assert found.reopened == [] and len(attempts) <= 1
        assert len({r.key for r in outside.seen("hooked")}) <= 1, "the same attempt, with the same key"


@pytest.mark.parametrize("verdict", ["reject", "expire"])
def test_a_retry_does_not_turn_a_no_into_a_yes(stage: Stage, tools: Toolbox, outside: Outside, verdict: str) -> None:
    run = stage.start(calling(tools, "pay", "po", 5000))
    stage.drive()
    if verdict == "reject":
        stage.decide(run, "reject")
    else:
        make_late(Approval.objects.get(run=run))
        timers.sweep()
    assert stage.drive() == "failed"
    assert retried(stage, run) == "failed" and outside.requests == []


def test_retry_uses_an_unused_approval(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("finance_po", title="May I?", tool=tools.pay, body={"name": "po", "amount": 5000})
        if mood.is_bad:
            raise KeyError("between the yes and the call")
        return End((await ctx.call(tools.pay, Item(name="po", amount=5000), grant=grant)).ref)

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    stage.decide(run)
    assert stage.drive() == "failed"
    mood.is_bad = False
    assert retried(stage, run) == "completed" and len(outside.executed("pay")) == 1
    assert run.approvals.count() == 1


def paying(tools: Toolbox, mood: Mood, **gate: Any) -> Agent:
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, **gate))

    async def node(state: Notes, ctx: Context) -> End:
        if mood.is_bad:
            raise KeyError("a deployment gone wrong")
        return End((await ctx.call(pay, Item(name="po", amount=5000))).ref)

    return agent_of(node, tools=[pay])


def breaks(stage: Stage, run: Run, mood: Mood) -> None:
    act("pause", run)
    Run.objects.filter(pk=run.pk).update(is_woken=True)  # as left by a worker that paused it: to be driven again
    act("resume", run)
    mood.is_bad = True
    assert stage.drive() == "failed"


def test_retry_opens_a_withdrawn_question_again(stage: Stage, tools: Toolbox, outside: Outside, mood: Mood) -> None:
    """The node failed while its question was open; after the retry people must be able to decide."""
    mood.is_bad = False

    run = stage.start(paying(tools, mood))
    assert stage.drive() == "parked"
    breaks(stage, run, mood)
    assert run.approvals.get().state == "withdrawn"
    mood.is_bad = False
    assert retried(stage, run) == "parked"
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1


def test_a_retry_gives_nobody_more_time_than_the_run_had_ended(stage: Stage, tools: Toolbox, mood: Mood) -> None:
    mood.is_bad = False

    run = stage.start(paying(tools, mood))
    assert stage.drive() == "parked"
    all_earlier(run.id, timedelta(days=2))
    (question,) = waiting(run)
    breaks(stage, run, mood)
    Run.objects.filter(pk=run.pk).update(ended_at=fresh(run).ended_at - timedelta(days=1))
    mood.is_bad = False
    act("retry", run)
    (wait,) = waiting(run)
    assert abs(wait.deadline - question.deadline) < timedelta(seconds=30)
    row = Event.objects.get(run_id=run.id, kind="RunRetried")
    text = decode(bytes(row.clear), unpack(row.sealed))
    since, until = map(datetime.fromisoformat, text.payload["over"])
    longer = [(since - timedelta(days=1)).isoformat(), until.isoformat()]
    written_as(row, replace(text, payload={**text.payload, "over": longer}))
    assert any("the run had not ended from" in problem for problem in problems(run))


def test_retry_asks_about_an_unknown_outcome_again(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    outside.trouble("mail", TransportError("cut"), when="after")
    run = stage.start(calling(tools, "mail", "letter"))
    assert stage.drive() == "parked"
    for _ in range(3):
        act("fail", run)
        assert fresh(run).error_code == "unknown_outcome"
        assert retried(stage, run) == "parked" and [w.kind for w in waiting(run)] == ["reconcile"]
    act("happened", run)
    assert stage.drive() == "completed" and len(outside.requests) == 1
    assert facts(run) == ["pending", "unknown", "reconciled", "reconciled", "reconciled", "reconciled"]


def test_retry_extends_a_callback_deadline_verifiably(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """A deadline moved by hand is still found: beyond the time the run was ended, or earlier."""

    outside.trouble("ring", TransportError("cut"), when="after")
    run = stage.start(calling(tools, "ring", "bell"))
    assert stage.drive() == "parked"
    opened = run.waits.get(kind="webhook").deadline
    for _ in range(2):
        act("fail", run)
        assert retried(stage, run) == "parked"
        assert verify(run.id).problems == []
    put_off = run.waits.get(kind="webhook").deadline
    assert put_off > opened
    for moved in (timedelta(hours=1), opened - put_off - timedelta(seconds=1)):
        run.waits.filter(kind="webhook").update(deadline=put_off + moved)
        assert any("deadline says" in problem for problem in verify(run.id).problems)
    run.waits.filter(kind="webhook").update(deadline=put_off)
    act("happened", run)
    assert stage.drive() == "completed" and verify(run.id).problems == []
