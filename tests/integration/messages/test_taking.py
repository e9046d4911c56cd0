"""Messages on the real database: each is handled once, at the next safe point, despite crashes and races."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from durableagents import Context, End
from ledger import events as e
from runs.services import signals
from runs.services.messages.sending import Sent
from runs.workers import timers
from tests.integration.messages.desk import Add, Desk, desk, due, send, told
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, events, fresh, kinds, output, waiting
from tests.world import SHOP, Toolbox

pytestmark = pytest.mark.django_db


def test_a_message_wakes_a_run_that_waits_and_is_answered(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    assert stage.drive() == "parked"
    sent = send(run)
    assert sent.is_new and sent.message.n == 1
    check_against_journal(run)
    assert fresh(run).ready_at is not None
    assert stage.drive() == "parked" and fresh(run).state == "waiting_event"
    assert kinds(run)[-5:] == ["RunParked", "MessageReceived", "RunClaimed", "MessageHandled", "RunParked"]
    (handled,) = events(run, e.MessageHandled)
    assert handled.payload == {"answer": {"documents": 1}, "change": {"documents": ["a"], "pages": 1}}
    assert told(run) == [(1, "answered")]
    signals.signal(run.id, "go", by=SHOP)
    assert stage.drive() == "completed" and output(run) == {"documents": ["a"], "pages": 1}
    check_against_journal(run)


@pytest.mark.parametrize("when", ["before it is claimed", "in a step", "at the cut", "as it parks"])
def test_one_that_comes_while_the_run_works_is_handled_at_the_next_point(
    stage: Stage, tools: Toolbox, when: str
) -> None:
    run = stage.start(desk(tools))
    points = {"in a step": "CP6", "at the cut": "CP7", "as it parks": "CP8"}
    sent: list[bool] = []

    def at(point: str, tool: str) -> None:
        if point == points.get(when) and not sent:
            sent.append(True)
            (answer,) = at_once(partial(send, run))
            assert isinstance(answer, Sent)

    stage.at = at
    if when == "before it is claimed":
        send(run)
    assert stage.drive() == "parked"
    assert told(run) == [(1, "answered")]
    (handled,) = events(run, e.MessageHandled)
    assert (handled.visit, handled.place) == (("0.0", 0) if when == "before it is claimed" else ("0.1", 2))
    check_against_journal(run)


def test_a_message_between_the_look_and_the_park_keeps_the_run_awake(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker saw no message and is about to park: the park is refused under the head's lock."""
    from runs.journal.postgres import PgJournal

    run, sent = stage.start(desk(tools)), list[bool]()
    leave = PgJournal.leave

    async def late(self: Any, how: Any, *args: Any, **more: Any) -> Any:
        if how == "park" and not sent:
            sent.append(True)
            (answer,) = at_once(partial(send, run))
            assert isinstance(answer, Sent)
        return await leave(self, how, *args, **more)

    monkeypatch.setattr(PgJournal, "leave", late)
    assert stage.drive() == "parked" and told(run) == [(1, "answered")]
    assert kinds(run).count("RunParked") == 1
    check_against_journal(run)


def test_a_worker_that_dies_anywhere_handles_each_once(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    send(run, "a")
    stage.kill_at = [("CP0", ""), ("CP7", ""), ("CP8", "")]
    assert stage.settle(run) == "parked"
    send(run, "none")
    send(run, "b")
    stage.kill_at = [("CP0", ""), ("CP8", "")]
    assert stage.settle(run) == "parked"
    assert told(run) == [(1, "answered"), (2, "refused"), (3, "answered")]
    signals.signal(run.id, "go", by=SHOP)
    stage.kill_at = [("CP0", "")]
    assert stage.settle(run) == "completed" and output(run) == {"documents": ["a", "b"], "pages": 2}
    check_against_journal(run)


def test_a_node_that_waits_for_one_goes_on_with_it(stage: Stage, tools: Toolbox) -> None:
    async def collect(state: Desk, ctx: Context) -> End:
        taken = await ctx.message("add")
        return End([taken.n, taken.answer, state.documents])

    run = stage.start(desk(tools, collect))
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    assert (wait.kind, wait.detail["names"]) == ("message", ["add"])
    send(run, "none")
    send(run, "a")
    send(run, "b")
    assert stage.drive() == "completed" and output(run) == [2, {"documents": 1}, ["a"]]
    assert told(run) == [(1, "refused"), (2, "answered"), (3, "ended")]
    check_against_journal(run)


def test_the_deadline_of_that_wait_is_the_sweeps_and_the_message_comes_too_late(stage: Stage, tools: Toolbox) -> None:
    async def collect(state: Desk, ctx: Context) -> str:
        taken = await ctx.message("add", or_else=None)
        return "then" if taken is None else "collect"

    async def then(state: Desk, ctx: Context) -> End:
        await ctx.signal("go")
        return End(state.documents)

    run = stage.start(desk(tools, collect, then))
    assert stage.drive() == "parked"
    due(run)
    send(run)
    timers.sweep()
    assert stage.drive() == "parked"
    assert [x.resolution for x in events(run, e.WaitResolved)] == ["timed_out"]
    (handled,) = events(run, e.MessageHandled)
    assert (handled.outcome, handled.visit, handled.place, handled.calls) == ("answered", "0.1", 0, [])
    check_against_journal(run)


def test_a_wait_that_ends_while_a_message_is_handled_for_it(stage: Stage, tools: Toolbox) -> None:
    """The sweep closes the wait between the worker's look and its write: the answer isn't written for it."""

    async def collect(state: Desk, ctx: Context) -> End:
        return End([await ctx.message("add", or_else="nobody"), state.documents])

    agent, swept = desk(tools, collect), list[bool]()

    @agent.message(takes=Add)
    def slow(state: Desk, request: Add) -> None:
        state.documents.append("slow")

    run = stage.start(agent)
    assert stage.drive() == "parked"
    add = agent.messages["add"]

    def meanwhile(state: Desk, request: Add) -> Any:
        if not swept:
            swept.append(True)
            at_once(partial(due, run))
            at_once(timers.sweep)
        return add.function(state, request)

    agent.messages["add"] = replace(add, function=meanwhile)
    send(run)
    assert stage.drive() == "completed" and output(run) == ["nobody", []]
    assert told(run) == [(1, "ended")] and events(run, e.MessageHandled) == []
    check_against_journal(run)
