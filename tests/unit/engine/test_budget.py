from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, Context, End, ModelFailure, TransportError
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.assistants import ModelRefused, ModelTurn
from runs.engine.budget import RESOURCES, Caps, Route, Usage
from runs.engine.errors import NotServed
from runs.engine.thinking.request import request_model
from tests.cases import each_case
from tests.unit.engine.mortal import Death, mortal
from tests.unit.engine.story import Story
from tests.unit.engine.test_crashes import PRICE, sum_of_debits
from tests.world import AT_ONCE, IN_PLACE, Done, Item, Notes, Outside, Toolbox, agent_of


def calling(tools: Toolbox, *names: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        for i, name in enumerate(names):
            await ctx.call(getattr(tools, name), Item(name=str(i)))
        return End(len(names))

    return agent_of(node, tools=tools.all())


def at_once(tools: Toolbox, *names: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        calls = (ctx.call(getattr(tools, name), Item(name=str(i))) for i, name in enumerate(names))
        return End(len(await ctx.gather(*calls)))

    return agent_of(node, tools=tools.all())


def thinking(tools: Toolbox, *turns: list[Any], most_tokens: int | None = 50, times: int = 1) -> Agent:
    def mind(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(m, ModelResponse) for m in messages)
        return ModelResponse(parts=turns[min(turn, len(turns) - 1)])

    assistant = Assistant(
        name="mind", instructions="Think.", output=Done, tools=tools.all(), offline=mind, most_tokens=most_tokens
    )

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End([(await ctx.think(assistant, "Do it.")).ref for _ in range(times)])
        except ModelFailure as failure:
            return End(failure.code)

    return agent_of(node, assistants=[assistant])


def final() -> ToolCallPart:
    return ToolCallPart("final_result", {"ref": "done"})


def ordering(name: str) -> ToolCallPart:
    return ToolCallPart("order", {"name": name})


# --- caps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["look", "order", "mail", "hooked", "fax"])
@pytest.mark.parametrize("resource", ["tool_calls", "steps"])
async def test_call_beyond_a_cap_waits_for_a_raise(tools: Toolbox, outside: Outside, name: str, resource: str) -> None:
    story = Story(calling(tools, name, name, name), caps=Caps(**{resource: 2}))
    assert await story.drive() == "paused" and story.run.state == "paused"
    assert len(outside.requests) == 2
    (over,), (wait,) = story.events(e.BudgetExceeded), story.waiting("budget")
    assert (over.resource, over.most, over.used, over.wanted, over.call) == (resource, 2, 2, 1, "0.1/3")
    assert wait[1].spec.detail["queue"] == "finance_po" and wait[1].spec.detail["resource"] == resource
    story.run.raise_budget(Caps(**{resource: 3}))
    assert await story.drive() == "completed" and len(outside.requests) == 3
    assert sum_of_debits(story) == story.run.used == Usage(steps=3, tool_calls=3)


async def test_a_raise_that_is_not_enough_is_asked_for_again(tools: Toolbox, outside: Outside) -> None:
    story = Story(calling(tools, "order", "order", "order"), caps=Caps(tool_calls=0))
    for n in range(3):
        assert await story.drive() == "paused" and len(outside.requests) == n
        story.run.raise_budget(Caps(tool_calls=n + 1))
    assert await story.drive() == "completed" and len(story.events(e.BudgetExceeded)) == 3


@pytest.mark.parametrize("name", ["look", "order", "mail"])
async def test_calls_at_once_share_what_is_left(tools: Toolbox, outside: Outside, name: str) -> None:
    story = Story(at_once(tools, *[name] * 7), caps=Caps(tool_calls=3))
    assert await story.drive() == "paused" and len(outside.requests) == 3
    story.run.raise_budget(Caps(tool_calls=7))
    assert await story.drive() == "completed"
    assert len(outside.requests) == 7 and story.run.used.tool_calls == 7


async def test_people_are_not_asked_about_what_can_not_be_paid_for(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.pay, Item(name="a", amount=5000))
        return End(None)

    story = Story(agent_of(node, tools=tools.all()), caps=Caps(tool_calls=0))
    assert await story.drive() == "paused"
    assert not story.waiting("approval")
    story.run.raise_budget(Caps(tool_calls=1))
    assert await story.drive() == "parked"
    story.run.decide("approved")
    assert await story.drive() == "completed"


async def test_a_cap_that_was_lowered_meanwhile_is_held_by_the_journal(tools: Toolbox, outside: Outside) -> None:
    story = Story(calling(tools, "order", "order"), caps=Caps(tool_calls=5))
    outside.trouble("order", lambda call: setattr(story.run, "caps", Caps(tool_calls=1)), when="after")
    assert await story.drive() == "paused" and len(outside.requests) == 1
    assert story.events(e.BudgetExceeded)[0].most == 1


async def test_a_cancel_ends_a_run_that_waits_for_its_budget(tools: Toolbox) -> None:
    story = Story(calling(tools, "order"), caps=Caps(tool_calls=0))
    assert await story.drive() == "paused"
    story.run.is_cancel_requested = True
    assert await story.drive() == "cancelled" and not story.run.open_waits()


async def test_who_dies_between_the_question_and_letting_go_asks_once(tools: Toolbox) -> None:
    # the visit's entry and the question are written; then it would park
    story = Story(calling(tools, "order"), caps=Caps(tool_calls=0), journal=mortal([Death(2, "after")]))
    assert await story.drive() == "killed" and len(story.waiting("budget")) == 1
    assert await story.drive() == "paused"
    assert len(story.events(e.BudgetExceeded)) == len(story.waiting("budget")) == 1


# --- money ------------------------------------------------------------------------------------------------------------


async def test_each_request_is_debited_once_with_its_price(tools: Toolbox) -> None:
    story = Story(thinking(tools, [ordering("a")], [final()]), prices={"mind": PRICE})
    assert await story.drive() == "completed"
    routed, debits, answers = (story.events(k) for k in (e.ModelRouted, e.BudgetDebited, e.ModelResponded))
    assert [(r.slot, r.n, r.price) for r in routed] == [(d.slot, d.n, d.price) for d in debits]
    for debit, answer in zip(debits, answers, strict=True):
        assert (debit.tokens_in, debit.tokens_out) == (answer.tokens_in, answer.tokens_out)
        assert debit.usd_micro == PRICE.cost(answer.tokens_in, answer.tokens_out) > 0 and not debit.is_estimate
    assert story.run.used == sum_of_debits(story) and story.run.used.usd_micro == sum(d.usd_micro for d in debits)


async def test_a_model_without_a_price_costs_nobody_knows_what(tools: Toolbox) -> None:
    story = Story(thinking(tools, [final()]))
    assert await story.drive() == "completed"
    (debit,) = story.events(e.BudgetDebited)
    assert debit.usd_micro is None and debit.price is None and story.run.used.model_calls == 1


@each_case("resource", ["usd_micro", "model_calls", "tokens_in", "tokens_out", "steps"])
async def test_no_request_goes_out_beyond_a_cap(tools: Toolbox, resource: str) -> None:
    question, model = counted()
    whole = Story(thinking(tools, [ordering("a")], [ordering("b")], [final()]), prices={"mind": PRICE})
    assert await whole.drive() == "completed"
    wanted = {"tokens_in": "tokens_in", "tokens_out": "tokens_out", "usd_micro": "usd_micro"}
    routes = whole.events(e.ModelRouted)
    second = getattr(routes[1], wanted[resource]) if resource in wanted else 1
    before = {"steps": 2, "model_calls": 1}.get(resource) or getattr(whole.events(e.BudgetDebited)[0], resource)
    story = Story(whole.agent, prices={"mind": PRICE}, model=model, caps=Caps(**{resource: before + second - 1}))
    assert await story.drive() == "paused" and len(question) == 1
    assert story.events(e.BudgetExceeded)[0].resource == resource
    story.run.raise_budget(Caps())
    assert await story.drive() == "completed" and len(question) == 3
    assert story.run.used == sum_of_debits(story)


@each_case("point", ["CP2", "CP4"])
async def test_a_request_whose_answer_was_lost_stands_on_record_with_its_estimate(tools: Toolbox, point: str) -> None:
    story = Story(thinking(tools, [final()]), prices={"mind": PRICE}, kill_at=[(point, "model")])
    assert await story.drive() == "killed" and await story.drive() == "completed"
    (lost, known), (first, second) = story.events(e.BudgetDebited), story.events(e.ModelRouted)
    assert lost.is_estimate and not known.is_estimate and (lost.n, known.n) == (first.n, second.n) == (0, 1)
    assert (lost.tokens_in, lost.tokens_out, lost.usd_micro) == (first.tokens_in, first.tokens_out, first.usd_micro)
    assert story.run.used == sum_of_debits(story) and story.run.used.model_calls == 2


@pytest.mark.parametrize("nth", range(1, 16))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_deaths_debit_each_request_once(tools: Toolbox, outside: Outside, nth: int, when: Any) -> None:
    requests, model = counted()
    agent = thinking(tools, [ordering("a"), ordering("b")], [ordering("c")], [final()])
    story = Story(agent, prices={"mind": PRICE}, journal=mortal([Death(nth, when)]), model=model)
    for _ in range(3):
        how = await story.drive()
    assert how == "completed" or story.run.state == "completed"
    assert story.run.used == sum_of_debits(story)
    debits = story.events(e.BudgetDebited)
    # A recorded request that was never sent counts as well: nobody knows that it wasn't.
    assert len(debits) == len(story.events(e.ModelRouted)) == 3 + sum(d.is_estimate for d in debits)
    assert len(requests) in (3, len(debits)) and len(outside.executed("order")) == 3


@each_case("trouble", [TransportError("cut off"), TimeoutError("too long")])
async def test_a_try_that_may_have_been_paid_for_is_debited(tools: Toolbox, trouble: Exception) -> None:
    story = Story(thinking(tools, [final()]), prices={"mind": PRICE}, retry=IN_PLACE, model=once(trouble))
    assert await story.drive() == "completed"
    assert [d.is_estimate for d in story.events(e.BudgetDebited)] == [True, False]
    assert story.run.used == sum_of_debits(story)


@each_case("retry", [IN_PLACE, AT_ONCE])
async def test_a_try_that_nobody_served_costs_nothing(tools: Toolbox, retry: Any) -> None:
    story = Story(thinking(tools, [final()]), prices={"mind": PRICE}, retry=retry, model=once(NotServed("503")))
    assert await story.settle() == "completed"
    assert not any(d.is_estimate for d in story.events(e.BudgetDebited))
    assert story.run.used.model_calls == 1 and story.run.used == sum_of_debits(story)
    assert story.run.used.usd_micro == story.events(e.BudgetDebited)[-1].usd_micro


async def test_an_outage_uses_nothing_up(tools: Toolbox) -> None:
    story = Story(
        thinking(tools, [final()]),
        prices={"mind": PRICE},
        caps=Caps(model_calls=1),
        model=once(*[NotServed("503")] * 9),
    )
    assert await story.settle() == "completed" and not story.events(e.BudgetExceeded)


async def test_what_the_provider_refuses_costs_nothing_and_counts(tools: Toolbox) -> None:
    story = Story(thinking(tools, [final()]), prices={"mind": PRICE}, model=once(ModelRefused("no", "no")))
    assert await story.drive() == "completed" and story.output == "no"
    (debit,) = story.events(e.BudgetDebited)
    assert (debit.model_calls, debit.tokens_in, debit.usd_micro) == (1, 0, 0)


async def test_a_cancelled_run_tells_of_the_request_that_it_left_behind(tools: Toolbox) -> None:
    async def model(assistant: Any, messages: Any, model: str) -> ModelTurn:
        story.control.ask("cancel")
        story.run.is_cancel_requested = True
        raise TransportError("never read")

    story = Story(thinking(tools, [final()]), prices={"mind": PRICE}, kill_at=[("CP2", "model")], model=model)
    assert await story.drive() == "killed"
    story.run.is_cancel_requested = True
    assert await story.drive() == "cancelled"
    (debit,) = story.events(e.BudgetDebited)
    assert debit.is_estimate and story.run.used == sum_of_debits(story)


async def test_a_price_that_was_put_in_a_moment_ago_is_waited_for(tools: Toolbox) -> None:
    story = Story(thinking(tools, [final()]), caps=Caps(usd_micro=10**9))
    checks = iter([None, PRICE])

    class Patient(Story):
        @property
        def runtime(self) -> Any:
            routed = lambda model: Route(model, next(checks, PRICE))  # noqa: E731
            return replace(super().runtime, route=routed, price_patience=5.0)

    patient = Patient(story.agent, caps=story.caps)
    assert await patient.drive() == "completed", patient.run.events[-1].payload
    assert patient.events(e.BudgetDebited)[0].price == PRICE.id
    assert await story.drive() == "operator" and story.found.reason == "no_price"


async def test_what_its_tools_take_is_set_aside_with_each_request(tools: Toolbox) -> None:
    with_tools, without = Story(thinking(tools, [final()])), Story(thinking_alone())
    assert await with_tools.drive() == await without.drive() == "completed"
    assert with_tools.events(e.ModelRouted)[0].tokens_in > without.events(e.ModelRouted)[0].tokens_in + 100


def thinking_alone() -> Agent:
    def mind(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[final()])

    assistant = Assistant(name="mind", instructions="Think.", output=Done, offline=mind, most_tokens=50)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(assistant, "Do it.")).ref)

    return agent_of(node, assistants=[assistant])


async def test_caps_of_nothing_let_nothing_begin(tools: Toolbox, outside: Outside) -> None:
    story = Story(thinking(tools, [final()]), caps=Caps(**dict.fromkeys(RESOURCES, 0)), prices={"mind": PRICE})
    assert await story.drive() == "paused" and not story.events(e.ModelRequested) and not outside.requests


async def test_a_run_that_fails_tells_of_the_request_that_it_left_behind(tools: Toolbox) -> None:
    """A bug of the provider's client, say: the request may have been paid for. A retry asks and debits again."""
    story = Story(thinking(tools, [final()]), prices={"mind": PRICE}, model=once(ValueError("a bug")))
    assert await story.drive() == "failed" and story.failure.code == "model_error"
    (debit,) = story.events(e.BudgetDebited)
    assert debit.is_estimate and story.run.used == sum_of_debits(story) and story.run.used.model_calls == 1
    story.retry_run()
    assert await story.drive() == "completed"
    assert [d.is_estimate for d in story.events(e.BudgetDebited)] == [True, False]
    assert story.run.used == sum_of_debits(story) and story.run.used.model_calls == 2


async def test_what_has_no_price_is_not_asked_under_a_cap_in_dollars(tools: Toolbox) -> None:
    """The cap predates the price's removal, or the model changed: an operator looks, and nothing is sent."""
    question, model = counted()
    story = Story(thinking(tools, [final()]), caps=Caps(usd_micro=10**9), model=model)
    assert await story.drive() == "operator" and story.found.reason == "no_price" and not question
    assert "mind" in story.found.payload["problem"] and not story.events(e.ModelRouted)
    story.prices["mind"] = PRICE
    wait_id, _ = story.one_waiting("operator")
    story.run.resolve(wait_id, "retried")
    assert await story.drive() == "completed" and story.run.used.usd_micro > 0


def counted() -> tuple[list[int], Callable[..., Any]]:
    items: list[int] = []

    async def model(assistant: Any, messages: Any, model: str) -> ModelTurn:
        items.append(1)
        return await request_model(assistant, messages)

    return items, model


def once(*troubles: BaseException) -> Callable[..., Any]:
    left = list(troubles)

    async def model(assistant: Any, messages: Any, model: str) -> ModelTurn:
        if left:
            raise left.pop(0)
        return await request_model(assistant, messages)

    return model
