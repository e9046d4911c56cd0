from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai.messages import ModelResponse, ToolCallPart, UserPromptPart

from durableagents import Assistant, Context, End
from ledger import events as e
from ledger.errors import Forbidden, IllegalTransition, InvalidInput
from ledger.models import Event
from runs.engine.agents import Agent
from runs.models import Run
from runs.services import authority, lifecycle, signals
from runs.services.injecting import ContextBody, Look, Moved, StateSeen, go_on, look
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, dump, events, fresh, head, kinds, output, overrides, problems
from tests.tampering import tamper
from tests.world import FIONA, OLGA, SHOP, Asked, Done, Item, Toolbox, agent_of

WHY = "The supplier wrote that the price has changed."


class Terms(BaseModel):
    """Terms of the deal."""

    price: int = Field(default=10, ge=1)
    currency: str = "EUR"


class Deal(BaseModel):
    name: str = "steel"
    terms: Terms = Terms()
    notes: list[str] = []


def deal(*functions: Any, tools: Toolbox | None = None, **more: Any) -> Agent:
    return agent_of(
        *functions, tools=tools.all() if tools else (), input=Asked, state=Deal, initial=lambda asked: Deal(), **more
    )


async def asks(state: Deal, ctx: Context) -> End:
    """Waits for a signal, and says what the state is then."""
    state.notes.append("before")
    await ctx.signal("go")
    state.notes.append(f"price {state.terms.price}")
    return End(state.model_dump(mode="json"))


async def asks_on(state: Deal, ctx: Context) -> str:
    """The same, and the next node says it."""
    await asks(state, ctx)
    return "says"


async def says(state: Deal, ctx: Context) -> End:
    return End(state.model_dump(mode="json"))


def handed(
    run: Run, *, by: Any = OLGA, why: str = WHY, act: str = "resume", seen: Look | None = None, **what: Any
) -> Run:
    seen = seen or look(run.id)
    body = ContextBody(**what, seen=StateSeen(seq=seen.seq, head=seen.head))
    return go_on(act, run.id, body, by=by, justification=why)


def paused(stage: Stage, agent: Agent) -> Run:
    run = stage.start(agent)
    assert stage.drive() == "parked"
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    return run


# --- a patch of the state ---------------------------------------------------------------------------------------------


def test_a_patch_is_seen_by_the_node_when_the_call_ends_that_it_waits_in(stage: Stage) -> None:
    run = paused(stage, deal(asks))
    seen = look(run.id, patch={"terms": {"price": 12}})
    assert (seen.stands.visit, seen.stands.place, seen.stands.node) == ("0.1", 1, "asks")
    assert seen.stands.state["notes"] == ["before"] and seen.stands.open == ("signal go at 0.1/1",)
    assert seen.made is not None and seen.made.lines == [("terms.price", 10, 12)]
    assert (seen.seq, seen.head) == (head(run).seq, bytes(head(run).chain).hex())
    assert handed(run, patch={"terms": {"price": 12}}).state == "waiting_event"
    assert kinds(run)[-2:] == ["ContextInjected", "RunResumed"]
    (fact,) = events(run, e.ContextInjected)
    assert (fact.by, fact.role, fact.seen, fact.head) == ("user:olga", "operator", seen.seq, seen.head)
    assert fact.payload == {
        "justification": WHY,
        "change": {"terms": {"price": 12, "currency": "EUR"}},
        "before": {"terms": {"price": 10, "currency": "EUR"}},
    }
    act, resumed = overrides(run)[-2:]
    assert (act.action, act.role, act.seq, resumed.action) == ("inject", "operator", seen.seq, "resume")
    assert act.after["context"] == {"fields": ["terms"], "has_message": False}
    assert "12" not in str(act.after) and act.justification == resumed.justification == WHY
    check_against_journal(run)
    signals.signal(run.id, "go", by=SHOP)
    assert stage.drive() == "completed"
    assert output(run)["terms"]["price"] == 12 and output(run)["notes"] == ["before", "price 12"]
    assert problems(run) == []


def test_another_worker_sees_the_same(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Deal, ctx: Context) -> End:
        await ctx.signal("go")
        done = await ctx.call(tools.order, Item(name=state.name, amount=state.terms.price))
        await ctx.signal("end")
        return End([done.amount, state.terms.price, state.notes])

    run = paused(stage, deal(node, tools=tools))
    handed(run, patch={"terms": {"price": 12}, "notes": ["by phone"]})
    signals.signal(run.id, "go", by=SHOP)
    stage.kill_at = [("CP0", ""), ("CP1", "order"), ("CP4", "order"), ("CP8", "")]
    assert stage.settle(run) == "parked"
    signals.signal(run.id, "end", by=SHOP)
    stage.kill_at = [("CP0", "")]
    assert stage.settle(run) == "completed" and output(run) == [12, 12, ["by phone"]]
    assert {x.body for x in tools.outside.seen("order")} == {'{"amount": 12, "name": "steel"}'}
    assert len(tools.outside.executed("order")) == 1
    check_against_journal(run)


def test_what_was_frozen_for_a_yes_stays_what_people_saw(stage: Stage, tools: Toolbox) -> None:
    """A call that waits for a decision keeps its plan; the patch shows afterwards."""

    async def node(state: Deal, ctx: Context) -> End:
        first = await ctx.call(tools.pay, Item(name=state.name, amount=200 * state.terms.price))
        second = await ctx.call(tools.order, Item(name=state.name, amount=state.terms.price))
        return End([first.amount, second.amount])

    run = stage.start(deal(node, tools=tools))
    how = stage.drive()
    assert (how, [x.payload for x in events(run, e.OperatorNeeded)]) == ("parked", [])
    assert fresh(run).state == "waiting_human"
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    assert look(run.id).stands.open == ("pay at 0.1/1",)
    handed(run, patch={"terms": {"price": 3}})
    assert fresh(run).state == "waiting_human"
    stage.decide(run)
    assert stage.drive() == "completed" and output(run) == [2000, 3]
    assert problems(run) == []


def test_one_before_its_first_node_and_one_that_has_just_entered_it(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(deal(asks_on, says))
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    status = look(run.id).stands
    assert (status.visit, status.place, status.node, status.is_between) == ("0.0", 0, "asks_on", True)
    handed(run, patch={"name": "tin"})
    stage.kill_at = [("CP7", "")]
    assert stage.drive() == "killed"
    from runs.workers import failover

    failover.worker_died(stage.worker.id, "the test says so")
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    status = look(run.id).stands
    assert (status.visit, status.place, status.state["name"]) == ("0.1", -1, "tin")
    stage.worker = stage.hire()
    handed(run, patch={"notes": ["first"]})
    assert stage.drive() == "parked"
    signals.signal(run.id, "go", by=SHOP)
    assert stage.drive() == "completed"
    assert (output(run)["name"], output(run)["notes"]) == ("tin", ["first", "before", "price 10"])
    check_against_journal(run)


def test_a_failed_run_is_retried_with_another_state(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Deal, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name=state.name))
        if state.terms.currency != "USD":
            raise ValueError("only dollars")
        return End(state.terms.price)

    run = stage.start(deal(node, tools=tools))
    assert stage.drive() == "failed"
    seen = look(run.id)
    assert (seen.stands.place, seen.stands.open) == (1, ())
    handed(run, act="retry", patch={"terms": {"currency": "USD"}})
    assert kinds(run)[-2:] == ["ContextInjected", "RunRetried"]
    assert stage.drive() == "completed" and output(run) == 10
    assert len(tools.outside.seen("order")) == 1
    check_against_journal(run)


def test_several_stand_one_after_the_other_and_a_later_node_has_them_all(stage: Stage) -> None:
    async def first(state: Deal, ctx: Context) -> str:
        await ctx.gather(ctx.signal("one"), ctx.signal("two"))
        return "second"

    async def second(state: Deal, ctx: Context) -> End:
        await ctx.signal("go")
        return End(state.model_dump(mode="json"))

    run = paused(stage, deal(first, second))
    handed(run, patch={"name": "tin"})
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    assert look(run.id).stands.state["name"] == "tin"
    handed(run, patch={"name": "lead", "notes": ["twice"]})
    for name in ("one", "two"):
        signals.signal(run.id, name, by=SHOP)
    assert stage.drive() == "parked"
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    assert look(run.id).stands.state["name"] == "lead"
    handed(run, patch={"terms": {"price": 7}})
    signals.signal(run.id, "go", by=SHOP)
    assert stage.drive() == "completed"
    assert (output(run)["name"], output(run)["notes"], output(run)["terms"]["price"]) == ("lead", ["twice"], 7)
    check_against_journal(run)


# --- messages to the models -------------------------------------------------------------------------------------------


def thinker(heard: list[list[str]], tools: Toolbox) -> Agent:
    def say(messages: list[Any], info: Any) -> ModelResponse:
        contents = [p.content for m in messages for p in m.parts if isinstance(p, UserPromptPart)]
        heard.append([str(text) for text in contents])
        turn = sum(isinstance(m, ModelResponse) for m in messages)
        if turn == 0:
            return ModelResponse([ToolCallPart("pay", {"name": "steel", "amount": 2000}, "c1")])
        return ModelResponse([ToolCallPart("final_result", {"ref": "done", "amount": turn}, "c2")])

    mind = Assistant(name="mind", instructions="Think.", output=Done, tools=[tools.pay], offline=say)

    async def node(state: Deal, ctx: Context) -> End:
        done = await ctx.think(mind, "buy it")
        await ctx.signal("go")
        again = await ctx.think(mind, "and again")
        return End([done.ref, again.ref])

    return deal(node, tools=tools, assistants=[mind])


def test_the_models_hear_it_with_the_next_request_and_nobody_else_is_asked_again(stage: Stage, tools: Toolbox) -> None:
    heard: list[list[str]] = []
    run = paused(stage, thinker(heard, tools))
    assert heard == [["buy it"]] and fresh(run).state == "paused"
    handed(run, message="Only from the second supplier.")
    stage.decide(run)
    stage.kill_at = [("CP0", ""), ("CP2", "model")]
    assert stage.settle(run) == "parked"
    assert all(texts[0] == "buy it" and texts[1].endswith("\nOnly from the second supplier.") for texts in heard[1:])
    assert heard[1][1].startswith("From a person who operates this run")
    (found,) = [
        x.payload["from_people"] for x in events(run, e.ModelRequested) if x.payload and "from_people" in x.payload
    ]
    assert found == ["Only from the second supplier."]
    signals.signal(run.id, "go", by=SHOP)
    count = len(heard)
    assert stage.drive() == "parked" and heard[count][1].endswith("second supplier."), "what the node asks then, too"
    stage.decide(run)
    assert stage.drive() == "completed"
    assert sum(text.endswith("second supplier.") for text in heard[-1]) == 1, "once in each conversation"
    check_against_journal(run)


# --- refused by name --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "field", "words"),
    [
        ({"terms": {"price": 0}}, "context.patch.terms.price", "is less than"),
        ({"terms": {"price": "many"}}, "context.patch.terms.price", "whole number"),
        ({"prise": 1}, "context.patch.prise", "not a field"),
        ({"terms": {"prise": 1}}, "context.patch.terms.prise", "not a field"),
        ({"terms": 5}, "context.patch.terms", ""),
        ({"name": "steel"}, "context.patch", "changes nothing"),
        ({}, "context.patch", "changes nothing"),
    ],
)
def test_misfit_is_refused_by_its_field(stage: Stage, patch: dict[str, Any], field: str, words: str) -> None:
    run = paused(stage, deal(asks))
    before = dump()
    with pytest.raises(InvalidInput) as no:
        handed(run, patch=patch)
    problem = no.value.extra["errors"][0]
    assert problem["field"] == field and words in problem["problem"]
    assert "sk-live" not in str(no.value.extra) and dump() == before


def test_a_state_that_has_moved_on_is_refused_with_what_moved(stage: Stage) -> None:
    run = paused(stage, deal(asks))
    seen = look(run.id)
    signals.signal(run.id, "go", by=SHOP)
    before = dump()
    with pytest.raises(Moved) as no:
        handed(run, seen=seen, patch={"name": "tin"})
    assert [x["kind"] for x in no.value.extra["moved"]] == ["SignalReceived", "SignalTaken"][
        : len(no.value.extra["moved"])
    ]
    assert "SignalReceived" in no.value.detail
    status = look(run.id)
    forged = ContextBody(patch={"name": "tin"}, seen=StateSeen(seq=status.seq, head="0" * 64))
    with pytest.raises(Moved, match="its journal has no event"):
        go_on("resume", run.id, forged, by=OLGA, justification=WHY)
    assert dump() == before


@pytest.mark.parametrize("who", [FIONA, SHOP])
def test_someone_who_may_resume_it_hands_nothing_to_it(stage: Stage, tools: Toolbox, who: Any) -> None:
    run = paused(stage, thinker([], tools))  # it waits at finance's queue
    before = dump()
    with pytest.raises(Forbidden, match="Only an operator may hand anything"):
        handed(run, by=who, patch={"name": "tin"})
    assert dump() == before


def test_only_what_stands_still_takes_anything(stage: Stage) -> None:
    run = stage.start(deal(asks))
    for _ in range(2):
        with pytest.raises(IllegalTransition, match="Only a run that is paused"):
            look(run.id)
        stage.drive()
    signals.signal(run.id, "go", by=SHOP)
    journal = stage.take(run)
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    with pytest.raises(IllegalTransition, match="A worker is running it"):
        look(run.id)
    assert journal.run_id == str(run.id)


def test_someone_who_handed_something_over_does_not_decide_what_comes_of_it(stage: Stage) -> None:
    run = paused(stage, deal(asks))
    handed(run, patch={"name": "tin"})
    did = authority.own_act(fresh(run), None, "olga")
    assert did is not None and did.startswith("handed something to this run")


# --- forged rows ------------------------------------------------------------------------------------------------------


def test_a_forged_one_is_not_applied_and_one_without_its_act_is_found(stage: Stage) -> None:
    run = paused(stage, deal(asks))
    handed(run, patch={"terms": {"price": 12}})
    assert problems(run) == []
    (act,) = [x for x in overrides(run) if x.action == "inject"]
    tamper("DELETE FROM ledger_overriderecord WHERE id = %s", act.pk)
    assert any("ContextInjected, is a person's act without an override record" in found for found in problems(run))
    row = Event.objects.get(run_id=run.id, kind="ContextInjected")
    tamper("UPDATE ledger_event SET code = NULL WHERE run_id = %s AND seq = %s", run.id, row.seq)
    signals.signal(run.id, "go", by=SHOP)
    assert stage.drive() == "operator" and fresh(run).state == "waiting_human"
    assert any("code" in found for found in problems(run))
