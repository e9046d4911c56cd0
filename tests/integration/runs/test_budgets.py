from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, Context, End, TransportError
from ledger import events as e
from ledger.errors import Forbidden, IllegalTransition, InvalidInput, JustificationRequired
from runs.engine.agents import Agent
from runs.engine.budget import Budget
from runs.models import BudgetDefault, Run, Wait
from runs.services import lifecycle
from runs.services.budgets import prices
from runs.services.budgets.raising import set_budget
from runs.services.budgets.starting import budget_for
from runs.workers import timers
from tests.cases import each_case
from tests.integration.runs.hosts import TidyHost, working
from tests.integration.runs.stage import (
    Stage,
    at_once,
    dump,
    events,
    fresh,
    head,
    in_thread,
    kinds,
    now,
    overrides,
    waiting,
)
from tests.integration.runs.test_steering import is_sound
from tests.tampering import as_stored
from tests.waiting import eventually
from tests.world import FIONA, OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of

WHY = "it is worth it"


@pytest.fixture(autouse=True)
def _prices_of_this_test() -> Iterator[None]:
    yield
    prices.table.__init__()  # type: ignore[misc]


def ordering(tools: Toolbox, *names: str, **more: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        for i, name in enumerate(names):
            await ctx.call(getattr(tools, name), Item(name=str(i), amount=5000))
        return End(len(names))

    return agent_of(node, tools=tools.all(), **more)


def thinking(tools: Toolbox, *, turns: int = 1, **more: Any) -> Agent:
    def mind(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(m, ModelResponse) for m in messages)
        last = ToolCallPart("final_result", {"ref": "done"})
        return ModelResponse(parts=[last if turn + 1 >= turns else ToolCallPart("order", {"name": str(turn)})])

    assistant = Assistant(name="mind", instructions="Think.", output=Done, tools=[tools.order], offline=mind)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(assistant, "Do it.")).ref)

    return agent_of(node, tools=tools.all(), assistants=[assistant], **more)


def priced(usd_micro: int = 1_000_000, model: str = "scripted:mind") -> Any:
    row = prices.add_price(model, usd_micro_in=usd_micro, usd_micro_out=usd_micro, by="user:ada")
    prices.table.read()
    return row


def start(agent: Agent, **caps: Any) -> Run:
    return lifecycle.start(agent.graph_id, {"text": "x"}, by=SHOP, budget=Budget(**caps) if caps else None)


def at_cap(stage: Stage, tools: Toolbox, *names: str, **caps: Any) -> Run:
    run = start(ordering(tools, *(names or ("order", "order"))), **(caps or {"tool_calls": 1}))
    assert stage.drive() == "paused" and asked(run)
    return run


def asked(run: Run) -> list[Wait]:
    return [wait for wait in waiting(run) if wait.kind == "budget"]


def raised(run: Run, by: Any = OLGA, why: str = WHY, **caps: Any) -> Run:
    return set_budget(run.id, Budget(**caps), by=by, justification=why)


def overdue(run: Run) -> None:
    Wait.objects.filter(run=run, kind="budget", resolved_at=None).update(deadline=now() - timedelta(seconds=1))
    timers.sweep()


# --- at a start -------------------------------------------------------------------------------------------------------


def test_a_start_without_a_budget_sets_none(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"))
    assert kinds(run) == ["RunCreated"] and head(run).cap_steps is None
    left = fresh(run).time_up_at - now()
    assert timedelta(days=89) < left <= timedelta(days=90)
    assert stage.drive() == "completed"
    is_sound(run)


def test_what_a_start_gives_is_on_record_and_held(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = start(ordering(tools, "order", "order"), tool_calls=1, tokens_in=10, wall_seconds=60)
    (found,) = events(run, e.BudgetSet)
    assert found.caps == {"tool_calls": 1, "tokens_in": 10} and found.by == SHOP.ref
    assert found.until == fresh(run).time_up_at.isoformat()
    assert stage.drive() == "paused" and len(outside.requests) == 1
    (wait,) = asked(run)
    assert wait.detail["resource"] == "tool_calls" and (wait.detail["most"], wait.detail["used"]) == (1, 1)
    assert str(fresh(run).state) == "paused" and stage.drive() == "idle"
    is_sound(run)


@each_case(
    "budget",
    [
        {"usd": -1},
        {"tokens_in": -1},
        {"euro": 1},
        {"steps": 1.5},
        {"usd": "NaN"},
        {"usd": "Infinity"},
        {"usd": "0.0000001"},
        {"wall_seconds": 0},
        {"model_calls": True},
        {"model_calls": 2**31},
        {"tokens_in": 10**16},
        {"usd": 10**10},
    ],
)
def test_nobody_counts_such_a_budget(budget: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Budget.model_validate(budget)


def test_a_cap_in_dollars_needs_a_price(stage: Stage, tools: Toolbox) -> None:
    agent = thinking(tools)
    before = dump()
    with pytest.raises(InvalidInput) as refused:
        start(agent, usd=1)
    assert "scripted:mind" in refused.value.detail and refused.value.extra["errors"][0]["field"] == "budget.usd"
    assert dump() == before
    run = start(agent)
    before = dump()
    with pytest.raises(InvalidInput, match="scripted:mind"):
        raised(run, usd=1)
    assert dump() == before
    priced()
    assert head(start(agent, usd="1.000001")).cap_usd_micro == 1_000_001


def test_the_tightest_default_counts_and_only_where_nothing_is_given(stage: Stage, tools: Toolbox) -> None:
    agent = ordering(tools, "order", budget=Budget(steps=50, tool_calls=9))
    BudgetDefault.objects.create(agent=agent.name, budget={"steps": 40, "model_calls": 7})
    BudgetDefault.objects.create(agent=agent.graph_id, budget={"steps": 45, "tokens_in": 100})
    BudgetDefault.objects.create(agent="another", budget={"steps": 1})
    BudgetDefault.objects.create(tag="slow", budget={"steps": 41, "wall_seconds": 60})
    BudgetDefault.objects.create(tag="slower", budget={"steps": 30, "wall_seconds": 70})
    run = lifecycle.start(agent.graph_id, {}, by=SHOP, tags=["slow", "slower"], budget=Budget(tool_calls=20))
    (found,) = events(run, e.BudgetSet)
    assert found.caps == {"steps": 30, "model_calls": 7, "tokens_in": 100, "tool_calls": 20}
    assert fresh(run).time_up_at - now() <= timedelta(seconds=60)
    assert events(start(agent), e.BudgetSet)[0].caps == {
        "steps": 40,
        "model_calls": 7,
        "tokens_in": 100,
        "tool_calls": 9,
    }


def test_a_key_gives_no_more_than_it_may(stage: Stage, tools: Toolbox) -> None:
    agent, most = ordering(tools, "order"), Budget(steps=10, wall_seconds=60)
    BudgetDefault.objects.create(agent=agent.name, budget={"steps": 40, "tool_calls": 3})
    assert budget_for(agent, None, tags=(), most=most).stated() == {"steps": 10, "tool_calls": 3, "wall_seconds": 60}
    assert budget_for(agent, Budget(steps=9), tags=(), most=most).steps == 9
    with pytest.raises(InvalidInput) as refused:
        budget_for(agent, Budget(steps=11), tags=(), most=most)
    assert refused.value.extra["errors"][0]["field"] == "budget.steps"


class Untidy(TidyHost):
    async def _housekeeping(self) -> None:
        await asyncio.Event().wait()


def test_a_worker_knows_the_prices_before_it_claims(stage: Stage, tools: Toolbox) -> None:
    price = priced()
    run = start(thinking(tools), usd=100)
    prices.table.__init__()  # type: ignore[misc]
    with working(stage, kind=Untidy):
        eventually(lambda: str(fresh(run).state) == "completed", "its end")
    (debit,) = events(run, e.BudgetDebited)
    assert debit.price == price.id and head(run).usd_micro == debit.usd_micro > 0 and not head(run).unpriced_calls


# --- raised -----------------------------------------------------------------------------------------------------------


def test_a_raise_lets_it_go_on_and_is_an_override(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = at_cap(stage, tools)
    raised(run, tool_calls=2)
    is_sound(run)
    assert asked(run) == [] and str(fresh(run).state) == "running"
    (record,) = overrides(run)
    assert (record.action, record.justification, record.by) == ("budget", WHY, OLGA.ref)
    assert stage.drive() == "completed" and len(outside.requests) == 2
    is_sound(run)


def test_a_cap_that_is_lifted_is_gone(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = at_cap(stage, tools, "order", "order", "order")
    raised(run, tool_calls=None)
    assert stage.drive() == "completed" and head(run).cap_tool_calls is None
    is_sound(run)


def test_two_who_raise_at_once_wake_it_once(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools)
    answers = at_once(*[lambda n=n: raised(run, tool_calls=n) for n in (5, 6)])  # type: ignore[misc]
    assert not [x for x in answers if isinstance(x, Exception)]
    assert kinds(run).count("BudgetSet") == 3 and kinds(run).count("RunResumed") == 1
    is_sound(run)
    assert stage.drive() == "completed" and stage.drive() == "idle"
    is_sound(run)


def test_a_raise_under_a_driving_worker_counts_at_the_next_call(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = start(ordering(tools, "order", "order"), tool_calls=1)
    outside.trouble("order", lambda call: stage_raises(run), when="after")
    assert stage.drive() == "completed" and len(outside.requests) == 2
    is_sound(run)


def test_lowered_cap_stops_a_worker_before_the_next_call(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = start(ordering(tools, "order", "order", "order"), tool_calls=3)
    outside.trouble("order", lambda call: stage_raises(run, tool_calls=0), when="after")
    assert stage.drive() == "paused" and len(outside.requests) == 1
    (wait,) = asked(run)
    assert (wait.detail["most"], wait.detail["used"]) == (0, 1)
    is_sound(run)
    raised(run, tool_calls=3)
    assert stage.drive() == "completed"
    is_sound(run)


def stage_raises(run: Run, **caps: Any) -> None:
    in_thread(lambda: raised(run, **(caps or {"tool_calls": 9})))


def test_a_resume_is_no_way_around_the_budget(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools)
    before = dump()
    for act in (lifecycle.resume, lifecycle.retry):
        with pytest.raises(IllegalTransition):
            act(run.id, by=OLGA, justification=WHY)
        assert dump() == before


@pytest.mark.parametrize(
    ("more", "error"), [({"by": SHOP}, Forbidden), ({"by": FIONA}, Forbidden), ({"why": "  "}, JustificationRequired)]
)
def test_forbidden_raise_is_refused(stage: Stage, tools: Toolbox, more: dict[str, Any], error: type[Exception]) -> None:
    run = at_cap(stage, tools)
    before = dump()
    with pytest.raises(error):
        raised(run, tool_calls=5, **more)
    with pytest.raises(InvalidInput):
        raised(run)
    assert dump() == before


# --- cancelled, given up ----------------------------------------------------------------------------------------------


def test_a_cancel_ends_what_waits_for_its_budget(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools)
    lifecycle.cancel(run.id, by=OLGA, justification=WHY)
    assert str(fresh(run).state) == "cancelled" and not waiting(run)
    with pytest.raises(IllegalTransition):
        raised(run, tool_calls=2)
    is_sound(run)


@pytest.mark.parametrize("detail", [None, ["what"], "text", {}], ids=str)
def test_what_nobody_raises_ends_with_the_reason(stage: Stage, tools: Toolbox, detail: Any) -> None:
    run = at_cap(stage, tools)
    if detail is not None:
        Wait.objects.filter(run=run, kind="budget").update(**as_stored(Wait, detail=detail))
    overdue(run)
    overdue(run)
    assert str(fresh(run).state) == "cancelled"
    (end,) = events(run, e.RunCancelled)
    assert "nobody raised the budget" in end.payload["justification"] and end.by == "system:sweeper"
    assert end.payload["resource"] == ("tool_calls" if detail is None else None)
    is_sound(run)


def in_doubt(stage: Stage, tools: Toolbox) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        calls = [ctx.call(tools.mail, Item(name="a")), ctx.call(tools.order, Item(name="b"))]
        return End(len(await ctx.gather(*calls)))

    tools.outside.trouble("mail", TransportError("cut"), when="after")
    run = start(agent_of(node, tools=tools.all()), tool_calls=1)
    assert stage.drive() == "paused" and len(asked(run)) == 1
    return run


def test_a_call_of_unknown_outcome_is_settled_before_it_is_given_up(stage: Stage, tools: Toolbox) -> None:
    run = in_doubt(stage, tools)
    overdue(run)
    assert str(fresh(run).state) == "waiting_human" and head(run).is_cancel_requested
    is_sound(run)
    stage.reconcile(run, "happened", {"ref": "mail:a", "amount": 1})
    assert stage.settle(run) == "cancelled"
    assert "CancelRequested" in kinds(run) and kinds(run).count("RunCancelled") == 1
    is_sound(run)
