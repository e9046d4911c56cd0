from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from approvals.models import Approval
from approvals.services import decide
from durableagents import Agent, Context, End, Gate, Migration
from durableagents.contrib.releases import migrating
from ledger import events as e
from ledger.errors import DurableAgentsError
from runs.engine.agents import registry
from runs.models import Run
from runs.services import questions
from runs.services.families import ends
from tests.contrib.releases.moving import NAME, moved
from tests.contrib.releases.test_migrating import go, parked, sound
from tests.integration.runs.stage import Stage, dump, events, fresh, output, waiting
from tests.tampering import tamper
from tests.world import FIONA, OLGA, Asked, Item, Notes, Outside, Toolbox, agent_of

ONE = {"hold": "hold"}


def of_one(*functions: Any, version: str = "1.0.0", **more: Any) -> Agent:
    return agent_of(*functions, name=NAME, version=version, **more)


# --- the visit's content ----------------------------------------------------------------------------------------------


def test_a_callback_that_is_awaited_comes_to_the_moved_run(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    from runs.services import callbacks

    async def hold(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.ask, Item(name="a"))).ref)

    run = parked(stage, of_one(hold, tools=tools.all()))
    of_one(hold, tools=tools.all(), version="2.0.0")
    assert moved(run, nodes=ONE).how == "replayed"
    token = outside.urls["0.1/1"].rpartition("/")[2]
    callbacks.receive_callback(token, {"ref": "back", "amount": 1})
    assert stage.settle(run) == "completed" and output(run) == "back"
    assert len([r for r in outside.requests if r.tool == "ask"]) == 1
    sound(run)


def test_an_open_question_and_gate_are_withdrawn_with_the_visit(stage: Stage, tools: Toolbox) -> None:
    class Yes(BaseModel):
        yes: bool

    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.gather(
            ctx.call(tools.pay, Item(name="dear", amount=5000)), ctx.ask("operator", title="Well?", schema=Yes)
        )
        return End()

    async def other(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.look, {"name": "b"})
        await ctx.signal("resume")
        return End("other")

    run = parked(stage, of_one(hold, tools=tools.all()))
    of_one(other, tools=tools.all(), version="2.0.0")
    (gate,) = Approval.objects.filter(run=run)
    question = next(w for w in waiting(run) if w.kind == "input")
    found = moved(run, nodes={"hold": "other"})
    assert found.how == "reentered"
    assert sorted(x.partition(" ")[0] for x in found.withdrawn) == ["approval", "input"]
    gate = Approval.objects.get(pk=gate.pk)
    assert gate.state == "withdrawn" and waiting(run) == []
    sound(run)
    with pytest.raises(DurableAgentsError):
        decide(gate.id, verdict="approve", plan_hash=gate.plan_hash, justification="late", by=FIONA)
    with pytest.raises(DurableAgentsError):
        questions.answer(run.id, question.id, {"yes": True}, by=OLGA)
    assert stage.settle(run) == "parked"
    sound(run)


def gated(tools: Toolbox, version: str, **gate: Any) -> Agent:
    pay = tools._plain("pay", tools.pay.replay_class, external_id="ref", gate=Gate(**gate) if gate else None)

    async def hold(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="dear", amount=5000))).ref)

    return of_one(hold, tools=[pay], version=version)


DEAR = {"queue": "finance_po", "rule": "orders from 1000"}


@pytest.mark.parametrize("is_decided", [False, True])
@pytest.mark.parametrize("new", [{"queue": "legal", "rule": "orders from 1000"}, DEAR | {"rule": "all orders"}])
def test_a_yes_to_one_gate_is_none_to_another(
    stage: Stage, tools: Toolbox, outside: Outside, new: dict[str, str], is_decided: bool
) -> None:
    run = parked(stage, gated(tools, "1.0.0", **DEAR))
    gated(tools, "2.0.0", **new)
    if is_decided:
        stage.decide(run)
    before = dump()
    found = moved(run, nodes=ONE)
    assert (found.how, found.code) == ("refused", "gate_differs") and dump() == before
    assert "orders from 1000" in found.why and new["queue"] in found.why
    registry.remove("mover@2.0.0")
    gated(tools, "2.0.0", **DEAR)
    assert moved(run, nodes=ONE).how == "replayed"
    if not is_decided:
        stage.decide(run)
    assert stage.settle(run) == "completed" and len(outside.requests) == 1
    sound(run)


def to_the_end(stage: Stage, child: Run) -> None:
    assert stage.settle(child) == "completed"
    ends.tell_parent(child.pk)
    while stage.drive() != "idle":
        pass


def test_a_child_is_moved_too_and_its_parent_hears_of_its_end(stage: Stage, tools: Toolbox) -> None:
    async def work(state: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        return End("done")

    worker = of_one(work)

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.child(worker, Asked(text="a")))

    run = parked(stage, agent_of(node, name="mover-parent"))
    child = Run.objects.get(parent=run.id)
    stage.settle(child)
    of_one(work, version="2.0.0")
    assert moved(child, nodes={"work": "work"}).how == "replayed"
    sound(child)
    go(child)
    to_the_end(stage, child)
    assert output(run) == "done"
    sound(run)
    sound(child)


def test_a_moved_run_fails_undoes_and_is_retried_as_any_other(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    from durableagents import Failure
    from tests.unit.engine.undoings import Reversible

    more = Reversible(outside)

    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.call(more.book, {"name": "a"})
        await ctx.signal("go")
        raise Failure("no luck", code="no_luck")

    run = parked(stage, of_one(hold, tools=more.all()))
    of_one(hold, tools=more.all(), version="2.0.0")
    assert moved(run, nodes=ONE).how == "replayed"
    go(run)
    stage.kill_at = [("CP4", "unbook")]
    assert stage.settle(run) == "failed"
    assert [r.tool for r in outside.requests if r.executed] == ["book", "unbook"]
    assert {x.slot for x in events(run, e.ToolInvoked)} == {"0.1/1", "1.2/1"}
    sound(run)
    assert moved(run, nodes=ONE, of="2.0.0", to="1.0.0").code == "ended"


def free() -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        return End()

    return node


def test_a_run_that_undoes_is_moved_nowhere(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    from tests.unit.engine.undoings import Reversible, failing

    more = Reversible(outside)
    agent = failing(more, [["book", "buy"]])
    run = stage.start(agent)
    assert stage.settle(run) == "parked" and fresh(run).node == "_undo"
    name = agent.name
    agent_of(free(), tools=more.all(), name=name, version="9.0.0")
    from durableagents.contrib.releases.migration_requests import MigrateBody

    body = MigrateBody.model_validate(
        {
            "from_version": agent.version,
            "to_version": "9.0.0",
            "nodes": dict.fromkeys(agent.nodes, "node"),
            "runs": [run.id],
            "justification": "the old one is wrong",
        }
    )
    (found,) = migrating.migrate(name, body, by=OLGA)
    assert found.code == "undoing"
    sound(run)
    tamper("UPDATE runs_run SET node = 'node' WHERE id = %s", run.id)
    (found,) = migrating.migrate(name, body, by=OLGA)
    assert found.code == "undoing", "its journal says so, whatever its row does"


def test_a_message_that_was_handled_goes_along(stage: Stage, tools: Toolbox) -> None:
    from runs.services.messages import sending

    def made(version: str, ask: str) -> Agent:
        async def hold(state: Notes, ctx: Context) -> End:
            await ctx.call(tools.look, {"name": ask})
            await ctx.signal("go")
            return End(state.seen)

        agent = of_one(hold, tools=tools.all(), version=version)

        @agent.message(takes=Item)
        def note(state: Notes, request: Item) -> None:
            state.seen.append(request.name)

        return agent

    for ask, how in (("a", "replayed"), ("b", "reentered")):
        registry.remove("mover@2.0.0")
        run = parked(stage, made("1.0.0", "a"))
        made("2.0.0", ask)
        sending.send(run.id, "note", {"name": "x", "amount": 1}, by=OLGA)
        assert stage.settle(run) == "parked"
        assert moved(run, nodes=ONE).how == how
        sending.send(run.id, "note", {"name": "y", "amount": 1}, by=OLGA)
        stage.settle(run)
        sound(run)
        go(run)
        assert stage.settle(run) == "completed" and output(run) == ["x", "y"]
        sound(run)


def test_a_message_whose_change_has_no_place_is_not_dropped(stage: Stage, tools: Toolbox) -> None:
    from runs.services.messages import sending

    class Other(BaseModel):
        asked: Asked = Asked()
        noted: list[Any] = []

    async def hold(state: Any, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "once"})
        await ctx.signal("go")
        return End()

    agent = of_one(hold, tools=tools.all())

    @agent.message(takes=Item)
    def note(state: Notes, request: Item) -> None:
        state.seen.append(request.name)

    run = parked(stage, agent)
    sending.send(run.id, "note", {"name": "x", "amount": 1}, by=OLGA)
    stage.settle(run)

    def rename(state: dict[str, Any]) -> dict[str, Any]:
        return {"asked": state["asked"], "noted": state["seen"]}

    of_one(
        hold,
        tools=tools.all(),
        version="2.0.0",
        state=Other,
        initial=lambda asked: Other(asked=asked),
        migrations=[Migration("1.0.0", {}, rename)],
    )
    found = moved(run, nodes=ONE)
    assert found.code == "would_repeat" and "a change made during the visit (seen)" in found.why
    sound(run)


# --- the author's code ------------------------------------------------------------------------------------------------
