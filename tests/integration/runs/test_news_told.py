"""On a stop for late news, an operator is told what a retry does about each call, and it does that."""

from __future__ import annotations

import pytest

from durableagents import BusinessFailure, Context, End
from runs.services import callbacks
from runs.workers import timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, calling, fresh, waiting
from tests.integration.runs.test_belied import read_by_an_operator
from tests.integration.runs.test_callbacks import TAKEN, due, token_of
from tests.integration.runs.test_late_news import asking, said_of
from tests.world import Item, Notes, Outside, Toolbox, agent_of


def test_answer_between_deadline_and_failure_is_asked_about(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(agent_of(asking(tools), tools=tools.all()))
    assert stage.drive() == "parked"
    due(run)
    timers.sweep()
    assert callbacks.receive_callback(token_of(outside), {"ref": "just too late"}) == TAKEN
    assert stage.drive() == "failed" and fresh(run).error_code == "no_answer"
    act("retry", run)
    assert stage.drive() == "operator" and "doesn't go out again before a person" in said_of(run)
    act("retry", run)
    assert stage.drive() == "parked" and {w.kind for w in waiting(run)} == {"webhook", "reconcile"}
    assert len(outside.requests) == 1
    check_against_journal(run)


def test_of_several_calls_it_says_what_a_retry_does_about_each(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        try:
            await ctx.call(tools.ask, Item(name="at A"))
        except Exception:
            return "second"
        raise AssertionError("nobody answered in time")

    async def second(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.ring, Item(name="at B"))).ref)

    run = stage.start(agent_of(first, second, tools=tools.all()))
    assert stage.drive() == "parked"
    due(run)
    timers.sweep()
    outside.trouble("ring", BusinessFailure("no", code="no_credit"), when="after")
    assert stage.drive() == "failed"
    for slot in ("0.1/1", "0.2/1"):
        assert callbacks.receive_callback(token_of(outside, slot), {"ref": slot}) == TAKEN
    act("retry", run)
    assert stage.drive() == "operator"
    page = read_by_an_operator(run)
    assert "on record: no answer , and upstream has since answered the call" in page
    assert "on record: it was refused with code no_credit , and upstream has since answered the call" in page
    kept, question = said_of(run).partition("; ")[2].split("; ")
    assert kept.startswith("ask: a retry keeps to what is on record") and question.startswith("ring: after a retry the")
    act("retry", run)
    assert stage.drive() == "parked" and [(w.kind, w.slot) for w in waiting(run)] == [("reconcile", "0.2/1")]
    check_against_journal(run)


@pytest.mark.parametrize("code", ["did_not", "happened", "fail", "no_answer", "<b>no</b>"])
def test_verdict_like_code_is_shown_as_the_tools(stage: Stage, tools: Toolbox, outside: Outside, code: str) -> None:
    run = stage.start(calling(tools, "ring", "at B"))
    outside.trouble("ring", BusinessFailure("no", code=code), when="after")
    assert stage.drive() == "failed"
    assert callbacks.receive_callback(token_of(outside), {"ref": "B-1"}) == TAKEN
    act("retry", run)
    assert stage.drive() == "operator"
    assert f"on record: it was refused with code {code} , and" in read_by_an_operator(run)
