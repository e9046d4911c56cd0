"""Budgets that many runs share, on the real database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledger import events as e
from runs.models import PoolCharge, PoolNotice, Run
from runs.services import lifecycle
from runs.services.budgets import prices
from tests.runs.sharing import counted, in_line, is_sound, let_in, pool, raised
from tests.runs.stage import Stage, events, fresh, kinds
from tests.runs.test_budgets import ordering, priced, thinking
from tests.world import SHOP, Outside, Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _prices_of_this_test() -> Iterator[None]:
    yield
    prices.table.__init__()  # type: ignore[misc]


def start(agent: Any, **more: Any) -> Run:
    return lifecycle.start(agent.graph_id, {"text": "x"}, by=SHOP, **more)


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
