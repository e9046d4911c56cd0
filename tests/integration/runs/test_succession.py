"""Continuations on the real database: one commit, one successor, one budget, one key, verified links."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from durableagents import Agent, Budget, Context, End, Renew
from ledger import events as e
from ledger.errors import IllegalTransition, StaleLease
from ledger.models import Event, Head
from runs.engine.agents import registry
from runs.engine.continuation import successor_id
from runs.models import Run, Signal
from runs.services import continuation, lifecycle, signals
from runs.services.budgets import raising
from runs.services.messages import sending
from runs.workers import failover
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.going_on import succeed
from tests.integration.runs.stage import Stage, at_once, events, fresh, head, kinds, output, problems
from tests.integration.runs.test_children import everything
from tests.world import OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of

SENT = 60


def counting(tools: Toolbox, turns: int, **more: Any) -> Agent:
    async def work(state: Notes, ctx: Context) -> Any:
        if state.asked.text == "wait":
            state.seen.append(await ctx.signal("go"))
        done = await ctx.call(tools.order, Item(name=f"t{len(state.seen)}"))
        state.seen.append(done.ref)
        return End(Done(ref=",".join(map(str, state.seen)))) if len(state.seen) >= turns else Renew(state)

    return agent_of(work, tools=tools.all(), output=Done, **more)


def successors(run: Run) -> list[Run]:
    return list(run.successors())


def whole(run: Run) -> None:
    for each in (run, *successors(run)):
        check_against_journal(each)


def test_a_renewed_run_and_its_continuation_are_one_commit(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(counting(tools, 3), text="ours")
    everything(stage)
    second, third = successors(run)
    first = fresh(run)
    assert (str(first.state), first.goes_on_as, first.goes_on_by) == ("completed", second.pk, "renewal")
    assert str(second.pk) == successor_id(str(run.pk)) and (second.came_from, second.first, second.turn) == (
        run.pk,
        run.pk,
        1,
    )
    assert (third.came_from, third.first, third.turn) == (second.pk, run.pk, 2) and third.goes_on_as is None
    assert output(third)["ref"] == "order:t0,order:t1,order:t2" and output(run) is None
    assert (second.creator, second.trace_id, second.graph_id) == (run.creator, run.trace_id, run.graph_id)
    assert kinds(second)[:2] == ["RunCreated", "RunCarriedOn"] and len(outside.executed()) == 3
    whole(run)


@pytest.mark.parametrize("how", ["before", "after"])
def test_death_around_the_commit_leaves_one_run(stage: Stage, tools: Toolbox, outside: Outside, how: str) -> None:
    from runs.journal.postgres import PgJournal
    from tests.world import Killed

    run = stage.start(counting(tools, 2))
    succeed, deaths = PgJournal.succeed, [how]

    async def dying(self: PgJournal, *args: Any) -> Any:
        if not deaths:
            return await succeed(self, *args)
        if deaths.pop() == "after":
            await succeed(self, *args)
        raise Killed(how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PgJournal, "succeed", dying)
        stage.settle(run)
        everything(stage)
    (second,) = successors(run)
    assert output(second)["ref"] == "order:t0,order:t1" and len(outside.executed()) == 2
    whole(run)


def test_a_second_continuation_is_refused_by_the_database(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 2))
    everything(stage)
    other = stage.start(counting(tools, 1))
    with pytest.raises(DatabaseError, match="runs_run_one_heir"), transaction.atomic():
        Run.objects.filter(pk=other.pk).update(came_from=run.pk)
    for change in ({"goes_on_as": other.pk}, {"goes_on_by": "handoff"}):
        with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
            Run.objects.filter(pk=run.pk).update(**change)
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
        Run.objects.filter(came_from=run.pk).update(first=other.pk)


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "retry"])
def test_acts_on_one_that_has_gone_on_are_refused_and_name_the_other(stage: Stage, tools: Toolbox, action: str) -> None:
    run = stage.start(counting(tools, 2))
    stage.drive()
    (second,) = successors(run)
    with pytest.raises(IllegalTransition, match=f"continues as run {second.pk}"):
        getattr(lifecycle, action)(run.pk, by=OLGA, justification="why not")
    assert str(fresh(second).state) == "pending" and problems(run) == []


def test_pause_or_cancel_that_comes_first_is_done_first(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 2))
    pausing = lambda: lifecycle.pause(run.pk, by=OLGA, justification="wait a moment")  # noqa: E731
    assert _in_the_last_moment(stage, pausing) == "paused" and successors(run) == []
    lifecycle.resume(run.pk, by=OLGA, justification="go on")
    cancelling = lambda: lifecycle.cancel(run.pk, by=OLGA, justification="enough")  # noqa: E731
    assert _in_the_last_moment(stage, cancelling) == "cancelled" and successors(run) == []
    whole(run)


def _apart(act: Callable[[], Any]) -> None:
    try:
        act()
    finally:
        connection.close()


# --- what is carried over ---------------------------------------------------------------------------------------------


def test_a_signal_reaches_the_newest_and_is_one_however_often_it_is_sent(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 3), text="wait")
    stage.drive()
    sent = signals.signal(run.pk, "go", "a", by=SHOP, sender_id="1")
    signals.signal(run.pk, "go", "b", by=SHOP, sender_id="2")
    everything(stage)
    (second,) = successors(run)
    assert sent.run == run.pk and str(fresh(second).state) == "completed"
    assert output(second)["ref"] == "a,order:t1,b,order:t3"
    assert [x.payload for x in events(second, e.SignalCarried)] == ["b"]
    again = [signals.signal(run.pk, "go", text, by=SHOP, sender_id=id) for id, text in (("1", "a"), ("2", "b"))]
    assert [(x.run, x.is_new) for x in again] == [(run.pk, False), (second.pk, False)]
    with pytest.raises(IllegalTransition):
        signals.signal(run.pk, "go", "c", by=SHOP)
    whole(run)


def test_a_signal_that_meets_the_renewal_is_not_lost(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 3), text="wait")
    stage.drive()
    signals.signal(run.pk, "go", "a", by=SHOP)
    at_once(stage.drive, *[lambda n=n: signals.signal(run.pk, "go", n, by=SHOP, sender_id=f"s{n}") for n in range(5)])
    everything(stage)
    newest = continuation.newest(run.pk)
    took = [row.name for row in Signal.objects.filter(continuation.is_of_chain(newest), taken_by__isnull=False)]
    assert len(took) == 2 and str(newest.state) == "completed"
    whole(run)


def _in_the_last_moment(stage: Stage, act: Callable[[], Any]) -> str:
    """Drive, and run `act` just before the worker ends its run and makes the continuation."""
    from runs.journal.postgres import PgJournal

    succeed, acts = PgJournal.succeed, [act]

    async def ending(self: PgJournal, *args: Any) -> Any:
        if acts:
            await asyncio.to_thread(_apart, acts.pop())
        return await succeed(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PgJournal, "succeed", ending)
        return stage.drive()


def test_renewal_completes_at_the_first_try_while_signals_keep_coming(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> Any:
        state.seen += [await ctx.signal("go") for _ in range(3)]
        return End(state.seen) if len(state.seen) == SENT else Renew(state)

    from runs.journal.postgres import PgJournal

    run, succeed, tries = stage.start(agent_of(node)), PgJournal.succeed, list[str]()

    async def counted(self: PgJournal, *args: Any) -> Any:
        tries.append(self.run_id)
        return await succeed(self, *args)

    def send_all() -> None:
        for n in range(SENT):
            signals.signal(run.pk, "go", n, by=SHOP)

    sender = threading.Thread(target=_apart, args=[send_all])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PgJournal, "succeed", counted)
        sender.start()
        while sender.is_alive():
            stage.drive()
        sender.join()
        everything(stage)
    newest = continuation.newest(run.pk)
    assert output(newest) == list(range(SENT)), "each signal is handled once, in order"
    assert len(tries) == len(set(tries)) == SENT // 3 - 1
    whole(run)


def test_a_signal_of_the_last_moment_goes_along(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 2))
    assert _in_the_last_moment(stage, lambda: signals.signal(run.pk, "go", "late", by=SHOP)) == "completed"
    (second,) = successors(run)
    assert [x.payload for x in events(second, e.SignalCarried)] == ["late"]
    whole(run)


def test_a_budget_that_is_raised_in_that_moment_goes_along(stage: Stage, tools: Toolbox) -> None:
    run = lifecycle.start(counting(tools, 2).graph_id, {}, by=SHOP, budget=Budget(tool_calls=3))
    more = Budget(tool_calls=10)
    raising_it = lambda: raising.set_budget(run.pk, more, by=OLGA, justification="more")  # noqa: E731
    assert _in_the_last_moment(stage, raising_it) == "completed"
    (second,) = successors(run)
    assert head(second).cap_tool_calls == 9
    whole(run)


def test_a_message_of_the_last_moment_is_answered_first(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> Any:
        return End(state.seen) if state.seen else Renew(state)

    agent = agent_of(node)

    @agent.message(takes=Item)
    def note(state: Notes, request: Item) -> None:
        state.seen.append(request.name)

    run = stage.start(agent)
    assert _in_the_last_moment(stage, lambda: sending.send(run.pk, "note", {"name": "a"}, by=SHOP)) == "completed"
    everything(stage)
    (second,) = successors(run)
    assert output(second) == ["a"] and run.messages.get().outcome == "answered"  # type: ignore[attr-defined]
    whole(run)


def test_a_worker_that_has_lost_its_run_makes_no_continuation(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 2))
    worker = stage.hire(is_dead=True)
    zombie = stage.take(run, worker)
    failover.worker_died(worker.id, "the test says so")
    with pytest.raises(StaleLease):
        stage.wait(succeed(zombie, registry.find(run.graph_id)))
    assert successors(run) == []


def test_signal_follows_a_concurrent_renewal(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stage.start(counting(tools, 2))
    look, renewals = continuation.newest, [stage.drive]

    def newest(run_id: UUID) -> Run:
        found = look(run_id)
        for renewal in renewals[:]:
            renewals.clear()
            at_once(renewal)
        return found

    monkeypatch.setattr(continuation, "newest", newest)
    sent = signals.signal(run.pk, "go", "a", by=SHOP)
    (second,) = successors(run)
    assert sent.run == second.pk and [x.payload for x in events(second, e.SignalReceived)] == ["a"]
    whole(run)


def test_a_message_reaches_the_newest(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> Any:
        if not state.seen:
            return Renew(Notes(seen=["renewed"]))
        await ctx.message("note")
        return End(state.seen)

    agent = agent_of(node)

    @agent.message(takes=Item)
    def note(state: Notes, request: Item) -> None:
        state.seen.append(request.name)

    run = stage.start(agent)
    stage.drive()
    stage.drive()
    sent = sending.send(run.pk, "note", {"name": "a"}, by=SHOP, sender_id="m")
    (second,) = successors(run)
    assert sent.message.run_id == second.pk
    assert not sending.send(run.pk, "note", {"name": "a"}, by=SHOP, sender_id="m").is_new
    everything(stage)
    assert output(second) == ["renewed", "a"]
    whole(run)


# --- a thousand continuations -----------------------------------------------------------------------------------------


def test_renewed_often_each_costs_as_much_as_the_first(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> Any:
        state.asked.amount += 1
        return End(1) if state.asked.amount > 60 else Renew(state)

    run = stage.start(agent_of(node, signals=["kept"]))
    signals.signal(run.pk, "kept", "a", by=SHOP, sender_id="s")
    for _ in range(60):
        assert stage.drive() == "completed"
    every = [run, *successors(run)]
    assert len(every) == 60 and fresh(every[-1]).goes_on_as is None
    assert {head(each).seq for each in every[2:-1]} == {head(every[1]).seq}
    assert not signals.signal(run.pk, "kept", "a", by=SHOP, sender_id="s").is_new
    assert all(problems(each) == [] for each in every[::20])


def test_a_link_that_nobody_knows_is_not_found(stage: Stage) -> None:
    with pytest.raises(Exception, match="No run"):
        continuation.newest(UUID(int=7))
    assert Head.objects.count() == Event.objects.count() == 0
