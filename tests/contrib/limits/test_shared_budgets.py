"""Budgets shared by many runs, on the real database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, Context, End
from durableagents.contrib.limits import shared_budgets as acts
from durableagents.contrib.limits.models import BudgetCharge, BudgetNotice, BudgetPeriod, SharedBudget
from ledger import events as e
from runs.engine.budget import Budget
from runs.journal.committer import batched
from runs.models import Run, Wait
from runs.services import lifecycle, signals
from runs.services.budgets import prices
from runs.workers import failover, timers
from tests.contrib.limits.budgets import begun_again, counted, in_line, is_sound, let_in, meter, pool, raised
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, events, fresh, in_thread, kinds, now, problems
from tests.integration.runs.test_budgets import ordering, priced, thinking
from tests.tampering import tamper
from tests.waiting import eventually
from tests.world import OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.usefixtures("stage")


@pytest.fixture(autouse=True)
def _prices_of_this_test() -> Iterator[None]:
    yield
    prices.table.__init__()  # type: ignore[misc]


def start(agent: Any, by: Any = SHOP, **more: Any) -> Run:
    return lifecycle.start(agent.graph_id, {"text": "x"}, by=by, **more)


def test_a_call_counts_in_each_pool_that_its_run_belongs_to(stage: Stage, tools: Toolbox) -> None:
    agent = ordering(tools, "order", "order")
    ours = [
        pool(limit=10),
        pool(limit=10, scope="agent", of=agent.name),
        pool(limit=10, scope="tag", of="team"),
        pool(limit=10, scope="tag", of="team:harbor"),
    ]
    others = [pool(limit=10, scope="tag", of="team:other"), pool("model_calls", limit=10)]
    run = start(agent, tags={"team": "harbor"})
    assert stage.drive() == "completed"
    assert [counted(each) for each in ours] == [(2, 0)] * 4 and [counted(each) for each in others] == [(0, 0)] * 2
    is_sound(run)


def test_full_pool_delays_a_call_until_it_is_raised(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    shared = pool(limit=1)
    run = start(ordering(tools, "order", "order"))
    assert stage.drive() == "parked" and str(fresh(run).state) == "waiting_event"
    (wait,) = in_line(run)
    assert wait.detail["pool"] == shared.pk and wait.detail["wanted"] == 1 and wait.slot == "0.1/2"
    assert counted(shared) == (1, 0) and len(outside.requests) == 1
    let_in()
    assert stage.drive() == "idle" and in_line(run)
    raised(shared, 2)
    let_in()
    assert stage.drive() == "completed" and counted(shared) == (2, 0)
    assert len(outside.requests) == 2
    is_sound(run)


def test_a_request_is_set_aside_and_settled_with_what_it_used(stage: Stage, tools: Toolbox) -> None:
    priced()
    shares = [pool("usd", "5"), pool("tokens_in", 10**6), pool("tokens_out", 10**6), pool("model_calls", 5)]
    run = start(thinking(tools))
    assert stage.drive() == "completed"
    (debit,) = events(run, e.BudgetDebited)
    assert [counted(each) for each in shares] == [
        (debit.usd_micro, 0),
        (debit.tokens_in, 0),
        (debit.tokens_out, 0),
        (1, 0),
    ]
    is_sound(run)


@pytest.mark.parametrize(("resource", "unit"), [("usd", 10**6), ("tokens_out", 1)])
def test_request_fits_exactly_into_what_is_left(stage: Stage, tools: Toolbox, resource: str, unit: int) -> None:
    priced()
    agent, shared = thinking(tools), pool(resource, 10**6)
    first = start(agent)
    stage.kill_at = [("CP2", "model")]
    assert stage.drive() == "killed"
    used, reserved = counted(shared)
    assert used == 0 and reserved > 0
    raised(shared, str(Decimal(2 * reserved - 1) / unit))
    second = start(agent)
    assert stage.drive() == "parked" and in_line(second), "one unit is lacking"
    raised(shared, str(Decimal(2 * reserved) / unit))
    let_in()
    assert stage.drive() == "completed" and counted(shared)[1] == reserved
    is_sound(first, second)


def test_a_model_without_a_price_is_not_asked_under_a_pool_of_dollars(stage: Stage, tools: Toolbox) -> None:
    shared = pool("usd", "5")
    run = start(thinking(tools))
    assert stage.drive() == "operator"
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "no_price" and "scripted:mind" in stop.payload["problem"]
    assert counted(shared) == (0, 0) and "ModelRouted" not in kinds(run) and not BudgetCharge.objects.exists()
    is_sound(run)


def test_four_fifths_and_a_breach_are_told_once(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=5)
    runs = [start(ordering(tools, "order")) for _ in range(7)]
    for _ in runs:
        stage.drive()
    values = BudgetNotice.objects.order_by("id").values_list("kind", "used", "most")
    assert list(values) == [("warning", 4, 5), ("breach", 5, 5)] and counted(shared) == (5, 0)
    is_sound(*runs)


# --- waiting and admission --------------------------------------------------------------------------------------------


def queue(stage: Stage, tools: Toolbox, n: int, **more: Any) -> list[Run]:
    agent, runs = ordering(tools, "order"), []
    for _ in range(n):
        runs.append(start(agent, **more))
        assert stage.drive() == "parked"
    assert all(len(in_line(run)) == 1 for run in runs)
    return runs


def states(runs: list[Run]) -> list[str]:
    return [str(fresh(run).state) for run in runs]


def test_waiting_calls_enter_in_order_and_within_the_room(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=0)
    runs = queue(stage, tools, 5)
    raised(shared, 2)
    let_in()
    assert states(runs) == ["running"] * 2 + ["waiting_event"] * 3
    let_in()  # admitted runs count before they begin
    assert states(runs) == ["running"] * 2 + ["waiting_event"] * 3
    while stage.drive() != "idle":
        pass
    let_in()
    assert states(runs) == ["completed"] * 2 + ["waiting_event"] * 3 and counted(shared) == (2, 0)
    is_sound(*runs)


def test_one_gate_for_all_newcomers_wait_behind_those_who_came_first(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=0)
    (first,) = queue(stage, tools, 1)
    raised(shared, 1)
    late = start(ordering(tools, "order"))
    assert stage.drive() == "parked" and in_line(late)
    let_in()
    assert states([first, late]) == ["running", "waiting_event"]
    assert stage.drive() == "completed"
    raised(shared, 5)
    let_in()
    assert meter(shared).gate_at is None
    assert stage.drive() == "completed" and counted(shared) == (2, 0)
    assert BudgetNotice.objects.filter(kind="breach").count() == 1
    is_sound(first, late)


def test_a_new_period_lets_everybody_in_and_what_was_before_is_kept(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=2, period="day")
    runs = [start(ordering(tools, "order")) for _ in range(4)]
    for _ in runs:
        stage.drive()
    assert states(runs) == ["completed"] * 2 + ["waiting_event"] * 2
    begun_again(shared)
    let_in()
    assert counted(shared) == (0, 0) and states(runs)[2:] == ["running"] * 2
    assert stage.drive() == stage.drive() == "completed"
    (before,) = BudgetPeriod.objects.all()
    assert (before.used, before.most) == (2, 2) and counted(shared) == (2, 0)


def test_a_call_that_wants_more_than_a_period_gives_holds_nobody_up(stage: Stage, tools: Toolbox) -> None:
    shared = pool("tokens_out", limit=100)
    large = start(thinking(tools))
    assert stage.drive() == "parked" and meter(shared).gate_at is None
    (wait,) = in_line(large)
    assert wait.detail["wanted"] > 100
    small = start(terse(tools))
    assert stage.drive() == "completed"
    raised(shared, wait.detail["wanted"] + counted(shared)[0])
    let_in()
    assert stage.drive() == "completed"
    is_sound(large, small)


def terse(tools: Toolbox) -> Any:
    def mind(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "done"})])

    assistant = Assistant(name="terse", instructions="Be brief.", output=Done, most_tokens=50, offline=mind)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(assistant, "Do it.")).ref)

    return agent_of(node, assistants=[assistant], name="terse")


def test_what_comes_back_of_what_was_set_aside_lets_others_in(stage: Stage, tools: Toolbox) -> None:
    shared = pool("tokens_out", limit=4100)
    first = start(thinking(tools))
    runs: list[Run] = []

    def meanwhile(point: str, tool: str) -> None:
        if (point, tool) == ("CP2", "model") and not runs:
            runs.append(in_thread(partial(_parked_now, second)))

    stage.at = meanwhile
    second = start(terse(tools))
    assert stage.drive() == "completed" and counted(shared)[1] == 0 and counted(shared)[0] < 100
    let_in()
    stage.at = lambda point, tool: None
    assert stage.drive() == "completed"
    is_sound(first, second)


def _parked_now(run: Run) -> Run:
    other = Stage()
    try:
        assert other.drive() == "parked" and in_line(run)
        return run
    finally:
        other.close()


def test_switched_off_it_holds_nobody_up_and_counts_nothing_more(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=1)
    done = start(ordering(tools, "order"))
    assert stage.drive() == "completed"
    runs = queue(stage, tools, 3)
    acts.switch_off(shared.pk, by=OLGA, justification="nobody needs it")
    let_in()
    assert [stage.drive() for _ in runs] == ["completed"] * 3 and counted(shared) == (1, 0)
    with pytest.raises(acts.SharedBudgetIsOff):
        raised(shared, 5)
    is_sound(done, *runs)


def test_nobody_makes_room_in_time_and_the_run_ends_with_the_reason(stage: Stage, tools: Toolbox) -> None:
    pool(limit=0, name="the month's")
    (run,) = queue(stage, tools, 1)
    (wait,) = in_line(run)
    assert wait.deadline == datetime.fromisoformat(wait.detail["refills_at"]) + timedelta(days=7)
    Wait.objects.filter(pk=wait.pk).update(deadline=now() - timedelta(seconds=1))
    timers.sweep()
    (end,) = events(run, e.RunCancelled)
    assert "the month's" in end.payload["justification"] and str(fresh(run).state) == "cancelled"
    is_sound(run)


def test_who_is_cancelled_or_paused_in_the_line_holds_nobody_up(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=0)
    gone, held, next_one = queue(stage, tools, 3)
    lifecycle.cancel(gone.id, by=OLGA, justification="not needed")
    lifecycle.pause(held.id, by=OLGA, justification="hold on")
    raised(shared, 2)
    let_in()
    assert states([gone, held, next_one]) == ["cancelled", "paused", "running"]
    assert stage.drive() == "completed"
    lifecycle.resume(held.id, by=OLGA, justification="go on")
    assert stage.drive() == "completed" and counted(shared) == (2, 0)
    is_sound(gone, held, next_one)


def test_a_run_waits_with_one_branch_and_goes_on_with_the_others(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=1)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.gather(*(_ordered(tools, ctx, name) for name in ("a", "b")))
        return End("both")

    run = start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "parked" and counted(shared) == (1, 0) and len(tools.outside.requests) == 1
    raised(shared, 2)
    let_in()
    assert stage.drive() == "completed" and len(tools.outside.requests) == 2
    is_sound(run)


async def _ordered(tools: Toolbox, ctx: Context, name: str) -> Any:
    return await ctx.call(tools.order, Item(name=name))


# --- counting ---------------------------------------------------------------------------------------------------------


def test_a_read_counts_too_where_a_pool_counts_calls_of_tools(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=1)
    run = start(ordering(tools, "look", "look"))
    assert stage.drive() == "parked" and counted(shared) == (1, 0)
    assert kinds(run).count("ToolInvoked") == 1 and "ToolReturned" in kinds(run)
    raised(shared, 2)
    let_in()
    assert stage.drive() == "completed"
    is_sound(run)


def test_an_answer_that_is_lost_stands_with_its_estimate(stage: Stage, tools: Toolbox) -> None:
    shared = pool("tokens_out", 10**6)
    run = start(thinking(tools))
    stage.kill_at = [("CP4", "model")]
    assert stage.settle(run) == "completed"
    lost, known = events(run, e.BudgetDebited)
    assert lost.is_estimate and not known.is_estimate
    assert counted(shared) == (lost.tokens_out + known.tokens_out, 0)
    is_sound(run)


def test_a_call_belongs_to_the_period_in_which_it_was_begun(stage: Stage, tools: Toolbox) -> None:
    shared = pool("model_calls", 5, period="day")
    run = start(thinking(tools))

    def meanwhile(point: str, tool: str) -> None:
        if (point, tool) == ("CP2", "model"):
            in_thread(partial(begun_again, shared))
            in_thread(let_in)  # the meter is in the new period before the answer comes

    stage.at = meanwhile
    assert stage.drive() == "completed"
    let_in()
    (before,) = BudgetPeriod.objects.all()
    assert (before.used, before.reserved) == (1, 0) and counted(shared) == (0, 0)
    assert not problems(run)


def test_it_may_be_lowered_below_what_is_used_and_off_while_a_call_is_under_way(stage: Stage, tools: Toolbox) -> None:
    low, off = pool("model_calls", 5, scope="all"), pool("tokens_in", 10**6)
    run = start(thinking(tools))

    def meanwhile(point: str, tool: str) -> None:
        if (point, tool) == ("CP2", "model"):
            in_thread(partial(raised, low, 0))
            in_thread(partial(acts.switch_off, off.pk, by=OLGA, justification="over"))

    stage.at = meanwhile
    assert stage.drive() == "completed"
    assert counted(low) == (1, 0) and counted(off) == (events(run, e.BudgetDebited)[0].tokens_in, 0)
    is_sound(run)


def test_a_childs_calls_count_and_what_its_parent_sets_aside_for_it_does_not(stage: Stage, tools: Toolbox) -> None:
    calls, tokens = pool("tool_calls", 10), pool("tokens_out", 10**6)
    child = thinking(tools, turns=2, name="below")

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.child(child, {"text": "x"}, budget=Budget(tokens_out=50_000, tool_calls=5)))

    parent = start(agent_of(node, tools=tools.all()))
    for _ in range(6):
        stage.drive()
        timers.tell_parents()
    below = Run.objects.get(parent=parent.id)
    assert states([parent, below]) == ["completed"] * 2
    debits = events(below, e.BudgetDebited)
    assert counted(calls) == (1, 0) and counted(tokens) == (sum(debit.tokens_out for debit in debits), 0)
    assert not BudgetCharge.objects.filter(run_id=parent.id).exists()
    is_sound(parent, below)


def test_of_a_provider_only_its_models_count(stage: Stage, tools: Toolbox) -> None:
    ours = pool("model_calls", 9, scope="provider", of="scripted")
    other = pool("model_calls", 0, scope="provider", of="openai")
    mine = pool("model_calls", 9, scope="person", of=owner().username)
    run = start(thinking(tools), by=mine_of(mine))
    assert stage.drive() == "completed"
    assert [counted(each) for each in (ours, other, mine)] == [(1, 0), (0, 0), (1, 0)]
    is_sound(run)


def owner() -> Any:
    return get_user_model().objects.get_or_create(username="olga")[0]


def mine_of(shared: SharedBudget) -> Any:
    return replace(SHOP, person=int(shared.of))


def test_two_that_draw_on_several_pools_at_once_never_wait_for_each_other(stage: Stage, tools: Toolbox) -> None:
    shares = [pool(limit=100), pool(limit=100, scope="tag", of="a"), pool("model_calls", 100)]
    agent = ordering(tools, *["order"] * 4)
    runs = [start(agent, tags=["a"]) for _ in range(8)]
    with working(stage):
        eventually(lambda: states(runs) == ["completed"] * 8, "their ends")
    assert [counted(each) for each in shares] == [(32, 0), (32, 0), (0, 0)]
    is_sound(*runs)


def test_a_run_that_is_woken_keeps_its_one_place_in_the_line(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=0)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.gather(_ordered(tools, ctx, "a"), _told(ctx))
        return End("both")

    run = start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "parked"
    (wait,) = in_line(run)
    signals.signal(run.id, "go", {}, by=OLGA)
    assert stage.drive() == "parked" and in_line(run) == [wait]
    raised(shared, 1)
    let_in()
    assert stage.drive() == "completed"
    is_sound(run)


async def _told(ctx: Context) -> Any:
    return await ctx.signal("go")


def test_a_run_whose_journal_can_t_be_read_ends_and_leaves_nothing_set_aside(stage: Stage, tools: Toolbox) -> None:
    shared = pool("tokens_out", 10**6)
    run = start(thinking(tools))
    stage.kill_at = [("CP2", "model")]
    assert stage.drive() == "killed" and counted(shared) == (0, 4096)
    tamper("UPDATE ledger_event SET clear = 'x' WHERE run_id = %s AND kind = 'ModelRequested'", run.id)
    failover.worker_died(stage.worker.id, "the test says so")
    lifecycle.cancel(run.id, by=OLGA, justification="it is lost")
    assert str(fresh(run).state) == "cancelled" and counted(shared) == (4096, 0)


def test_what_may_draw_on_a_pool_never_goes_in_a_batch(stage: Stage, tools: Toolbox) -> None:
    """In one transaction each would lock its own meters in turn, so two could deadlock."""
    pool(limit=5, scope="tag", of="ours")
    agent = ordering(tools, "order")
    alone, free = start(agent, tags=["ours"]), start(agent)
    statement = batched("SELECT runs_record(%s, %s, %s)")
    condition = statement.partition("WITH free AS (")[2].partition(" FOR UPDATE")[0]
    with connection.cursor() as cursor:
        found = []
        for run in (alone, free):
            cursor.execute(condition, [run.id])
            found.append(cursor.fetchall())
    assert found == [[], [(free.id,)]]


def test_a_worker_lets_in_who_waits_by_itself(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=1)
    runs = [start(ordering(tools, "order")) for _ in range(3)]
    with working(stage):
        eventually(lambda: states(runs).count("waiting_event") == 2, "who waits")
        raised(shared, 3)
        eventually(lambda: states(runs) == ["completed"] * 3, "their ends")
    is_sound(*runs)
