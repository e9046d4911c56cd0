from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import Agent, Context, End, Renew
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from ledger import events as e
from runs.engine.agents import registry
from runs.models import Process, Run
from runs.services import lifecycle, signals
from runs.workers import failover
from tests.contrib.releases.moving import NAME, moved
from tests.contrib.releases.test_migrating import go, parked, sound
from tests.contrib.releases.test_upgraders import ONE, UPGRADERS, again, broken, parked_by, to_two, version
from tests.integration.messages import desk as messages
from tests.integration.runs.stage import Stage, dump, events, fresh, now, output
from tests.integration.runs.test_other_code import announce
from tests.unit.engine.undoings import Reversible, names
from tests.world import OLGA, SHOP, Asked, Item, Notes, Outside, Toolbox, agent_of

WHY = "as it was planned"


@pytest.fixture(autouse=True)
def nobody_else() -> None:
    """Unregister all versions: the same code under another version's name would be recognised."""
    for agent in registry.versions(NAME):
        registry.remove(agent.graph_id)


def stops(run: Run) -> list[str]:
    return [stop.reason for stop in events(run, e.OperatorNeeded)]


# --- a run that nobody can continue, and its end ----------------------------------------------------------------------


def booked(tools: Toolbox, upgraders: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})  # type: ignore[attr-defined]
        await ctx.signal("go")
        return End()

    return agent_of(node, tools=tools.all(), name=NAME, version="1.0.0", upgraders=upgraders)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("upgraders", "reason"),
    [(UPGRADERS["2.0.0"], "unknown_format"), (UPGRADERS["3.0.0"] | {3: broken}, "bad_checkpoint")],
)
@pytest.mark.parametrize("effects", ["undo", "leave"])
def test_unreadable_run_can_end(stage: Stage, outside: Outside, upgraders: Any, reason: str, effects: str) -> None:
    tools = Reversible(outside)
    booked(tools, UPGRADERS["3.0.0"])
    announce(stage)
    run = lifecycle.start(f"{NAME}@1.0.0", {"text": "x"}, by=SHOP)
    assert stage.settle(run) == "parked"
    booked(tools, upgraders)
    announce(stage)
    go(run)
    assert stage.settle(run) == "operator" and stops(run) == [reason]
    lifecycle.cancel(run.pk, by=OLGA, justification="take it all back", effects=effects)
    stage.settle(run)
    assert fresh(run).state == "cancelled" and stops(run) == [reason]
    assert names(outside) == (["book", "unbook"] if effects == "undo" else ["book"])
    sound(run)


def test_unreadable_run_settles_its_call_of_unknown_outcome_first(stage: Stage, tools: Toolbox) -> None:
    def of(upgraders: Any) -> None:
        async def node(state: Notes, ctx: Context) -> End:
            await ctx.call(tools.fax, Item(name="a"))
            return End()

        agent_of(node, tools=tools.all(), name=NAME, version="1.0.0", upgraders=upgraders)
        announce(stage)

    of(UPGRADERS["3.0.0"])
    run = lifecycle.start(f"{NAME}@1.0.0", {"text": "x"}, by=SHOP)
    stage.kill_at.append(("CP4", "fax"))
    assert stage.drive() == "killed"
    failover.worker_died(stage.worker.id, "the test says so")
    Process.objects.update(ended_at=None)
    Run.objects.filter(pk=run.pk).update(ready_at=now())
    of(UPGRADERS["2.0.0"])
    assert stage.settle(run) == "operator" and stops(run) == ["unknown_format"]
    lifecycle.cancel(run.pk, by=OLGA, justification="it is enough", effects="leave")
    assert stage.settle(run) == "parked" and stops(run) == ["unknown_format"]
    assert run.waits.filter(resolved_at=None, kind="reconcile").count() == 1
    stage.reconcile(run, "fail", sender_is_gone=True)
    stage.settle(run)
    assert fresh(run).state == "cancelled" and stops(run) == ["unknown_format"]
    sound(run)


def test_a_stop_for_a_number_stays_one_stop_however_often_it_is_taken_up(stage: Stage) -> None:
    run = parked_by(stage, version("1.0.0", upgraders=UPGRADERS["3.0.0"]))
    again(stage, "1.0.0", upgraders=UPGRADERS["2.0.0"])
    go(run)
    assert stage.settle(run) == "operator"
    lifecycle.retry(run.id, by=OLGA, justification="it may")
    assert stage.settle(run) == "operator" and stops(run) == ["unknown_format"] * 2
    again(stage, "1.0.0", upgraders=UPGRADERS["3.0.0"])
    lifecycle.retry(run.id, by=OLGA, justification="its code is back")
    assert stage.settle(run) == "completed" and output(run) == []
    sound(run)


# --- a fork -----------------------------------------------------------------------------------------------------------


def forked(run: Run, to: str, **more: Any) -> Run:
    return forking.fork(run.pk, ForkRequest(1, version=to, **more), by=OLGA, justification=WHY)


def still(stage: Stage, agent: Agent) -> Run:
    run = parked(stage, agent)
    lifecycle.pause(run.pk, by=OLGA, justification="stand still please")
    return run


def test_a_fork_begins_with_the_state_of_its_version_s_number(stage: Stage) -> None:
    run = still(stage, version("1.0.0"))
    version("2.0.0")
    version("3.0.0")
    one = forked(run, "2.0.0")
    assert stage.settle(one) == "parked"
    assert moved(one, nodes=ONE, of="2.0.0", to="3.0.0").is_moved
    go(one)
    assert stage.settle(one) == "completed" and output(one) == ["two", "three"]
    sound(one)


def test_a_fork_of_code_that_changed_in_place_is_brought_up(stage: Stage) -> None:
    run = parked_by(stage, version("1.0.0"))
    lifecycle.pause(run.pk, by=OLGA, justification="stand still please")
    again(stage, "1.0.0", upgraders=UPGRADERS["3.0.0"])
    assert events(forked(run, ""), e.RunForked)[0].payload["state"]["seen"] == ["two", "three"]


# --- a continuation ---------------------------------------------------------------------------------------------------


def renewing(stage: Stage, **more: Any) -> Agent:
    async def hold(state: Notes, ctx: Context) -> Any:
        if not state.seen:
            state.seen.append("one")
            return Renew(state)
        await ctx.signal("go")
        return End(state.seen)

    agent = agent_of(hold, name=NAME, version="1.0.0", **more)
    announce(stage)
    return agent


def test_the_state_that_a_run_was_renewed_with_has_the_number_of_who_made_it(stage: Stage) -> None:
    renewing(stage)
    run = lifecycle.start(f"{NAME}@1.0.0", {"text": "x"}, by=SHOP)
    assert stage.drive() == "completed"
    successor = Run.objects.exclude(pk=run.pk).get()
    renewing(stage, upgraders={1: to_two})
    assert stage.settle(successor) == "parked"
    go(successor)
    assert stage.settle(successor) == "completed" and output(successor) == ["one", "two"]
    sound(successor)


# --- changes by a message ---------------------------------------------------------------------------------------------


class Split(BaseModel):
    documents: list[str] = []
    sheets: int = 0


def split(state: dict[str, Any]) -> dict[str, Any]:
    return {"documents": state["documents"], "sheets": state["pages"]}


def with_sheets(stage: Stage, tools: Toolbox, own: Agent, number: str = "") -> Agent:
    async def wait(state: Split, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="first"))
        await ctx.signal("go")
        return End(state.model_dump())

    agent = agent_of(
        wait,
        tools=tools.all(),
        input=Asked,
        state=Split,
        initial=lambda asked: Split(),
        name=own.name,
        version=number or own.version,
        upgraders={1: split},
    )

    @agent.message(takes=messages.Add, answers=messages.Count)
    def add(state: Split, request: messages.Add) -> messages.Count:
        state.documents.append(request.name)
        state.sheets += request.pages
        return messages.Count(documents=len(state.documents))

    announce(stage)
    return agent


def test_what_a_message_changed_of_an_older_number_stops_the_run_and_is_not_lost(stage: Stage, tools: Toolbox) -> None:
    own = messages.desk(tools)
    announce(stage)
    run = stage.start(own)
    assert stage.drive() == "parked"
    messages.send(run)
    assert stage.drive() == "parked" and "number" not in events(run, e.MessageHandled)[0].payload
    with_sheets(stage, tools, own)
    signals.signal(run.id, "go", by=SHOP)
    assert stage.settle(run) == "operator" and stops(run) == ["bad_checkpoint"]
    problem = events(run, e.OperatorNeeded)[0].payload["problem"]
    assert "a change made during the visit (documents, pages) has no place in" in problem


def test_what_a_message_changed_of_the_new_number_stays(stage: Stage, tools: Toolbox) -> None:
    """The checkpoint still has the older number and is upgraded at each claim."""
    own = messages.desk(tools)
    announce(stage)
    run = stage.start(own)
    assert stage.drive() == "parked"
    with_sheets(stage, tools, own)
    for name in ("a", "b"):
        messages.send(run, name)
        assert stage.drive() == "parked"
    assert [x.payload["number"] for x in events(run, e.MessageHandled)] == [2, 2]
    signals.signal(run.id, "go", by=SHOP)
    assert stage.settle(run) == "completed" and output(run) == {"documents": ["a", "b"], "sheets": 2}
    sound(run)


def test_what_messages_changed_of_two_numbers_is_not_mixed_by_a_move(stage: Stage, tools: Toolbox) -> None:
    own = messages.desk(tools, name=NAME, version="1.0.0")
    announce(stage)
    run = stage.start(own)
    assert stage.drive() == "parked"
    with_sheets(stage, tools, own)
    messages.send(run)
    assert stage.drive() == "parked"
    with_sheets(stage, tools, own, "2.0.0")
    before = dump()
    found = moved(run, nodes={"wait": "wait"})
    assert found.code == "message_lost" and "under a different schema number" in found.why and dump() == before
