from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from durableagents import Context, End
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput, NotFound
from runs.engine.agents import Agent
from runs.models import Run, Signal, Wait
from runs.services import lifecycle, signals
from runs.services.signals import OtherSignal, Sent
from runs.workers import timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, events, fresh, kinds, now, output, waiting
from tests.tampering import tamper
from tests.world import OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of


def waiting_agent(tools: Toolbox, times: int = 1, **more: Any) -> Agent:
    async def prepare(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.look, Item(name="first"))
        return "wait"

    async def wait(state: Notes, ctx: Context) -> End:
        return End(await ctx.gather(*(ctx.signal("go", **more) for _ in range(times))))

    return agent_of(prepare, wait, tools=tools.all())


def send(run: Run, payload: Any = None, **more: Any) -> Sent:
    return signals.signal(run.id, "go", payload, by=SHOP, **more)


def due(run: Run) -> None:
    Wait.objects.filter(run=run, resolved_at=None).update(deadline=now())


def test_a_signal_wakes_a_run_that_waits_for_it(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(waiting_agent(tools))
    assert stage.drive() == "parked" and fresh(run).state == "waiting_event"
    (wait,) = waiting(run)
    assert (wait.kind, wait.detail["name"]) == ("signal", "go")
    assert send(run, {"a": 1}) == Sent(1, True)
    check_against_journal(run)
    assert fresh(run).ready_at is not None
    assert stage.drive() == "completed" and output(run) == [{"a": 1}]
    assert kinds(run)[-5:-1] == ["RunParked", "SignalReceived", "SignalTaken", "RunClaimed"]
    (received,) = events(run, e.SignalReceived)
    assert received.by == SHOP.ref
    check_against_journal(run)


@pytest.mark.parametrize("when", ["before it is claimed", "before the checkpoint", "before the wait"])
def test_a_signal_that_comes_before_anybody_waits_is_kept(stage: Stage, tools: Toolbox, when: str) -> None:
    run = stage.start(waiting_agent(tools))
    if when == "before it is claimed":
        send(run, "early")
    else:
        point = ("CP6", "look") if when == "before the checkpoint" else ("CP7", "")
        seen: list[str] = []

        def at(point_: str, tool: str) -> None:
            if (point_, tool) == point and (point[0] == "CP6" or "ToolRead" in kinds_now()) and not seen:
                seen.append("sent")
                (answer,) = at_once(partial(send, run, "early"))
                assert answer == Sent(1, True)

        def kinds_now() -> list[str]:
            (found,) = at_once(partial(kinds, run))
            return list(found)

        stage.at = at
    assert stage.drive() == "completed" and output(run) == ["early"]
    assert Signal.objects.get(run=run).taken_by == "0.2/1/0/1"
    check_against_journal(run)


def test_signals_that_came_before_the_wait_are_given_out_in_order(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(waiting_agent(tools, 3))
    for each in ("first", "second", "third"):
        send(run, each)
    assert stage.drive() == "completed" and output(run) == ["first", "second", "third"]
    assert [x.n for x in events(run, e.SignalTaken)] == [1, 2, 3]
    check_against_journal(run)


def test_signal_goes_to_the_wait_that_has_been_open_longest(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        async def later() -> Any:
            await ctx.signal("first")
            return await ctx.signal("go")

        return End(await ctx.gather(later(), ctx.signal("go")))

    run = stage.start(agent_of(node))
    assert stage.drive() == "parked"
    signals.signal(run.id, "first", by=SHOP)
    assert stage.drive() == "parked"
    longest = max(waiting(run), key=lambda wait: wait.slot)
    assert longest.opened_at == min(wait.opened_at for wait in waiting(run))
    send(run, "one")
    send(run, "two")
    assert stage.drive() == "completed" and output(run) == ["two", "one"]
    check_against_journal(run)


def test_a_worker_that_dies_between_signal_and_replay_loses_nothing(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(waiting_agent(tools, 2))
    send(run, "early")
    stage.kill_at = [("CP8", ""), ("CP0", "")]
    assert stage.settle(run) == "parked"
    send(run, "late")
    assert stage.settle(run) == "completed" and output(run) == ["early", "late"]
    check_against_journal(run)


def test_a_repeat_under_the_senders_id_is_the_same_signal(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(waiting_agent(tools, 2))
    assert send(run, {"x": [1]}, sender_id="m-1") == Sent(1, True)
    assert send(run, {"x": [1]}, sender_id="m-1") == Sent(1, False)
    with pytest.raises(OtherSignal):
        send(run, {"x": [2]}, sender_id="m-1")
    assert signals.signal(run.id, "other", {"x": [2]}, sender_id="m-1", by=SHOP) == Sent(1, True), (
        "an id belongs to a name"
    )
    assert send(run, 2, sender_id="m-2") == Sent(2, True)
    assert stage.drive() == "completed"
    assert send(run, {"x": [1]}, sender_id="m-1") == Sent(1, False), "also when the run has ended meanwhile"
    assert len(events(run, e.SignalReceived)) == 3
    check_against_journal(run)


def test_a_run_that_has_ended_takes_no_signal(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(waiting_agent(tools))
    lifecycle.cancel(run.id, by=OLGA, justification="not needed")
    before = kinds(run)
    with pytest.raises(IllegalTransition, match="cancelled"):
        send(run, 1)
    assert kinds(run) == before and not Signal.objects.filter(run=run).exists()


@pytest.mark.parametrize("name", ["", "Go", "a b", "ü\x00", "x" * 65])
def test_a_name_that_is_none_is_refused(stage: Stage, tools: Toolbox, name: str) -> None:
    run = stage.start(waiting_agent(tools))
    with pytest.raises(InvalidInput):
        signals.signal(run.id, name, 1, by=SHOP)
    with pytest.raises(NotFound):
        signals.signal(Run(id="00000000-0000-0000-0000-000000000001").id, "go", 1, by=SHOP)


def test_a_signal_to_a_paused_run_is_taken_and_wakes_nothing_until_it_is_resumed(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(waiting_agent(tools))
    stage.drive()
    lifecycle.pause(run.id, by=OLGA, justification="wait")
    send(run, "kept")
    assert fresh(run).state == "paused" and fresh(run).ready_at is None
    lifecycle.resume(run.id, by=OLGA, justification="go on")
    assert stage.drive() == "completed" and output(run) == ["kept"]
    check_against_journal(run)


def test_of_signals_and_a_deadline_at_once_each_is_first_or_kept(stage: Stage, tools: Toolbox) -> None:
    for _ in range(5):
        run = stage.start(waiting_agent(tools, or_else="too late"))
        assert stage.drive() == "parked"
        due(run)
        answers = at_once(partial(send, run, "a"), partial(send, run, "b"), timers.sweep)
        assert not [x for x in answers if isinstance(x, Exception)]
        taken, resolved = events(run, e.SignalTaken), [x for x in events(run, e.WaitResolved) if x.wait == "signal"]
        assert len(taken) + len(resolved) == 1, "one of them was first"
        assert Signal.objects.filter(run=run, taken_by=None).count() == 2 - len(taken)
        check_against_journal(run)
        assert stage.drive() == "completed"
        first = {x.n: x.payload for x in events(run, e.SignalReceived)}[1]
        assert output(run) == ([first] if taken else ["too late"])


def test_many_senders_at_once_are_numbered_without_a_gap(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(waiting_agent(tools, 20))
    assert stage.drive() == "parked"
    acts: list[Callable[[], Any]] = [partial(send, run, i) for i in range(20)]
    answers = at_once(*acts)
    assert sorted(answer.n for answer in answers) == list(range(1, 21))
    check_against_journal(run)
    assert stage.drive() == "completed"
    arrived = [x.payload for x in events(run, e.SignalReceived)]
    by_slot = {x.slot: x.n for x in events(run, e.SignalTaken)}
    assert output(run) == [arrived[by_slot[f"0.2/1/{i}/1"] - 1] for i in range(20)] and sorted(output(run)) == list(
        range(20)
    )


def test_a_damaged_signal_is_found_out_and_an_operator_looks(stage: Stage, tools: Toolbox) -> None:
    """It came long before the current checkpoint, so it is read by itself and checked like the rest."""

    async def first(state: Notes, ctx: Context) -> str:
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        await ctx.sleep(60)
        return End(await ctx.signal("go"))

    run = stage.start(agent_of(first, second))
    send(run, "original")
    assert stage.drive() == "parked"
    tamper(
        "UPDATE ledger_event SET sealed = '\\x002278797a22'::bytea WHERE run_id = %s AND kind = 'SignalReceived'",
        run.id,
    )
    due(run)
    timers.sweep()
    assert stage.drive() == "operator"
    (found,) = events(run, e.OperatorNeeded)
    assert found.reason == "broken_journal" and "was changed" in found.payload["problem"]
