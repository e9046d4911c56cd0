"""Budgets that many runs share, on the real database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, Context, End
from ledger import events as e
from ledger.errors import Forbidden, InvalidInput, JustificationRequired
from ledger.models import ActRecord
from runs.engine.budget.limits import Budget
from runs.models import Pool, PoolCharge, PoolMeter, PoolNotice, PoolPeriod, Run, Wait
from runs.services import lifecycle
from runs.services.bodies import PoolBody, PoolChangeBody
from runs.services.budgets import prices
from runs.services.pools import acts
from runs.workers import timers
from tests.infra.installation import eventually
from tests.runs.hosts import working
from tests.runs.sharing import WHY, begun_anew, counted, in_line, is_sound, let_in, meter, pool, raised
from tests.runs.stage import Stage, events, fresh, in_thread, kinds, now, problems
from tests.runs.test_budgets import ordering, priced, thinking
from tests.world import OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stage")]


@pytest.fixture(autouse=True)
def _prices_of_this_test() -> Iterator[None]:
    yield
    prices.table.__init__()  # type: ignore[misc]


def start(agent: Any, by: Any = SHOP, **more: Any) -> Run:
    return lifecycle.start(agent.graph_id, {"text": "x"}, by=by, **more)


def test_a_call_counts_in_each_pool_that_its_run_belongs_to(stage: Stage, tools: Toolbox) -> None:
    agent = ordering(tools, "order", "order")
    ours = [
        pool(limit=10), pool(limit=10, scope="agent", of=agent.name), pool(limit=10, scope="tag", of="team"),
        pool(limit=10, scope="tag", of="team:harbor"),
    ]  # fmt: skip
    others = [pool(limit=10, scope="tag", of="team:other"), pool("model_calls", limit=10)]
    run = start(agent, tags={"team": "harbor"})
    assert stage.drive() == "completed"
    assert [counted(each) for each in ours] == [(2, 0)] * 4 and [counted(each) for each in others] == [(0, 0)] * 2
    is_sound(run)


def test_a_pool_without_room_lets_a_call_wait_and_a_raise_lets_it_in(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
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
        (debit.usd_micro, 0), (debit.tokens_in, 0), (debit.tokens_out, 0), (1, 0),
    ]  # fmt: skip
    is_sound(run)


def test_a_model_without_a_price_is_not_asked_under_a_pool_of_dollars(stage: Stage, tools: Toolbox) -> None:
    shared = pool("usd", "5")
    run = start(thinking(tools))
    assert stage.drive() == "operator"
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "no_price" and "scripted:mind" in stop.payload["problem"]
    assert counted(shared) == (0, 0) and "ModelRouted" not in kinds(run) and not PoolCharge.objects.exists()
    is_sound(run)


def test_four_fifths_and_a_breach_are_told_once(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=5)
    runs = [start(ordering(tools, "order")) for _ in range(7)]
    for _ in runs:
        stage.drive()
    told = PoolNotice.objects.order_by("id").values_list("kind", "used", "most")
    assert list(told) == [("warning", 4, 5), ("breach", 5, 5)] and counted(shared) == (5, 0)
    is_sound(*runs)


# --- who waits, and who is let in -------------------------------------------------------------------------------------


def queue(stage: Stage, tools: Toolbox, n: int, **more: Any) -> list[Run]:
    """Runs that wait for a pool, in the order in which they came."""
    agent, runs = ordering(tools, "order"), []
    for _ in range(n):
        runs.append(start(agent, **more))
        assert stage.drive() == "parked"
    assert all(len(in_line(run)) == 1 for run in runs)
    return runs


def states(runs: list[Run]) -> list[str]:
    return [str(fresh(run).state) for run in runs]


def test_those_who_wait_are_let_in_in_their_order_and_no_more_than_there_is_room_for(
    stage: Stage, tools: Toolbox
) -> None:
    shared = pool(limit=0)
    runs = queue(stage, tools, 5)
    raised(shared, 2)
    let_in()
    assert states(runs) == ["running"] * 2 + ["waiting_event"] * 3
    let_in()  # what was let in counts, though it has not begun yet
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
    assert PoolNotice.objects.filter(kind="breach").count() == 1
    is_sound(first, late)


def test_a_new_period_lets_everybody_in_and_what_was_before_is_kept(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=2, period="day")
    runs = [start(ordering(tools, "order")) for _ in range(4)]
    for _ in runs:
        stage.drive()
    assert states(runs) == ["completed"] * 2 + ["waiting_event"] * 2
    begun_anew(shared)
    let_in()
    assert counted(shared) == (0, 0) and states(runs)[2:] == ["running"] * 2
    assert stage.drive() == stage.drive() == "completed"
    (before,) = PoolPeriod.objects.all()
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
    """An agent whose answers are short, so that little is set aside for them."""

    def mind(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "done"})])

    assistant = Assistant(name="terse", instructions="Be brief.", output=Done, most_tokens=50, offline=mind)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(assistant, "Do it.")).ref)

    return agent_of(node, assistants=[assistant], name="terse")


def test_what_comes_back_of_what_was_set_aside_lets_others_in(stage: Stage, tools: Toolbox) -> None:
    """Nobody raises anything: the first request used less than was set aside for it."""
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
    """Somebody else drives a run that there is no room for now."""
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
    with pytest.raises(acts.PoolIsOff):
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


# --- what is counted, and when ----------------------------------------------------------------------------------------


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
    stage.at = lambda point, tool: begun_anew(shared) if (point, tool) == ("CP2", "model") else None
    stage.at, at = (lambda point, tool: in_thread(partial(at, point, tool))), stage.at
    assert stage.drive() == "completed"
    let_in()
    (before,) = PoolPeriod.objects.all()
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
    assert not PoolCharge.objects.filter(run_id=parent.id).exists()
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


def mine_of(shared: Pool) -> Any:
    return replace(SHOP, person=int(shared.of))


def test_two_that_draw_on_several_pools_at_once_never_wait_for_each_other(stage: Stage, tools: Toolbox) -> None:
    shares = [pool(limit=100), pool(limit=100, scope="tag", of="a"), pool("model_calls", 100)]
    agent = ordering(tools, *["order"] * 4)
    runs = [start(agent, tags=["a"]) for _ in range(8)]
    with working(stage):
        eventually(lambda: states(runs) == ["completed"] * 8, "their ends")
    assert [counted(each) for each in shares] == [(32, 0), (32, 0), (0, 0)]
    is_sound(*runs)


# --- made, changed, refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "given"), [
    ("limit", {"limit": -1}), ("limit", {"limit": "1.5"}), ("limit", {"limit": "NaN"}),
    ("resource", {"resource": "eur"}),
    ("period", {"period": "year"}), ("zone", {"zone": "Mars/Phobos"}), ("zone", {"zone": ""}),
    ("scope", {"scope": "moon"}), ("whose", {"scope": "tag"}), ("whose", {"scope": "all", "whose": "x"}),
    ("whose", {"scope": "agent", "whose": "nobody"}), ("whose", {"scope": "person", "whose": "nobody"}),
    ("whose", {"scope": "provider", "whose": "openai:gpt-5", "resource": "usd"}),
    ("resource", {"scope": "provider", "whose": "openai"}), ("name", {"name": ""}), ("name", {"name": " x"}),
    ("limit", {"resource": "usd", "limit": "0.0000001"}), ("limit", {"resource": "usd", "limit": 10**10}),
], ids=str)  # fmt: skip
def test_no_such_pool_can_be_and_nothing_is_half_done(field: str, given: dict[str, Any]) -> None:
    whole = {
        "name": "x", "scope": "all", "resource": "tool_calls", "limit": 1, "period": "day", "justification": WHY,
    }  # fmt: skip
    with pytest.raises((InvalidInput, ValidationError)) as refused:
        acts.create(PoolBody.model_validate(whole | given), by=OLGA)
    assert field in str(getattr(refused.value, "extra", refused.value))
    assert not Pool.objects.exists() and not PoolMeter.objects.exists()


def test_there_is_one_of_a_name_and_one_that_counts_the_same() -> None:
    first = pool(limit=1, name="one")
    for again, field in (({"name": "one", "resource": "tokens_in"}, "name"), ({"name": "two"}, "scope")):
        with pytest.raises(InvalidInput) as refused:
            pool(**{"limit": 1, **again})
        assert refused.value.extra["errors"][0]["field"] == field
    acts.switch_off(first.pk, by=OLGA, justification="over")
    pool(limit=1, name="one")


def test_every_act_is_on_record_with_what_was_before_and_who_may_not_is_refused() -> None:
    shared = pool(limit=1)
    raised(shared, 5)
    acts.switch_off(shared.pk, by=OLGA, justification="over")
    made, changed, off = ActRecord.objects.filter(subject=f"pool {shared.pk}").order_by("n")
    assert [made.action, changed.action, off.action] == ["pool", "pool_change", "pool_off"]
    assert made.before == {} and (changed.before["most"], changed.after["most"]) == (1, 5)
    assert off.after["off_at"] and off.by == OLGA.ref and changed.justification == WHY
    with pytest.raises(Forbidden):
        acts.create(PoolBody(**_body()), by=SHOP)
    with pytest.raises(JustificationRequired):
        acts.create(PoolBody(**_body(justification=" ")), by=OLGA)
    is_sound()


def _body(**more: Any) -> dict[str, Any]:
    return {"name": "x", "scope": "all", "resource": "usd", "limit": 1, "period": "day", "justification": WHY} | more


def test_who_decided_on_another_limit_is_told_so() -> None:
    shared = pool(limit=1)
    raised(shared, 5)
    with pytest.raises(acts.PoolMoved):
        acts.change(shared.pk, PoolChangeBody(limit=2, if_limit=1, justification=WHY), by=OLGA)
    assert meter(shared).most == 5


# --- the calendar -----------------------------------------------------------------------------------------------------

ZONES = ("UTC", "Europe/Berlin", "America/Havana", "Asia/Beirut", "Pacific/Apia", "America/New_York", "Asia/Kathmandu")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    period=st.sampled_from(["day", "week", "month"]), zone=st.sampled_from(ZONES),
    at=st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
)  # fmt: skip
def test_periods_follow_one_another_and_hold_their_moments(period: str, zone: str, at: datetime) -> None:
    starts_at, ends_at = period_of(period, zone, at)
    assert starts_at <= at < ends_at
    assert period_of(period, zone, starts_at) == (starts_at, ends_at)
    assert period_of(period, zone, ends_at)[0] == ends_at
    assert period_of(period, zone, ends_at - timedelta(microseconds=1)) == (starts_at, ends_at)
    length = (ends_at - starts_at) / timedelta(hours=1)
    assert {"day": 23, "week": 167, "month": 671}[period] <= length <= {"day": 25, "week": 169, "month": 745}[period]


@pytest.mark.parametrize(("zone", "at", "hours"), [
    ("Europe/Berlin", "2026-03-29T12:00", 23), ("Europe/Berlin", "2026-10-25T12:00", 25),
    ("America/Havana", "2026-11-01T12:00", 24), ("America/Havana", "2026-11-01T04:30", 25),
], ids=str)  # fmt: skip
def test_a_day_of_the_clocks_is_as_long_as_it_is(zone: str, at: str, hours: int) -> None:
    starts_at, ends_at = period_of("day", zone, datetime.fromisoformat(f"{at}+00:00"))
    assert ends_at - starts_at == timedelta(hours=hours)


def period_of(period: str, zone: str, at: datetime) -> tuple[datetime, datetime]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM runs_pool_period(%s, %s, %s)", [period, zone, at])
        starts_at, ends_at = cursor.fetchone()
    return starts_at, ends_at
