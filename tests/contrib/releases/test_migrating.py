from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import Agent, Context, End, Migration
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migration_requests import MigrateBody, MigrationPreviewBody
from ledger import events as e
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, NotFound
from runs.engine.agents import registry
from runs.models import Checkpoint, Run
from runs.services import lifecycle, signals
from tests.contrib.releases import moving
from tests.contrib.releases.moving import BACK, NODES, asked, moved, old, renamed, rewritten, seen
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, announce, dump, events, fresh, output, overrides, problems, waiting
from tests.world import FIONA, OLGA, SHOP, Asked, Notes, Outside, Toolbox, agent_of, ends_with


def names(outside: Outside) -> list[str]:
    return [json.loads(r.body)["name"] for r in outside.requests if r.executed and r.tool == "order"]


def sound(run: Run) -> None:
    check_against_journal(run)
    assert problems(run) == []


def parked(stage: Stage, agent: Agent) -> Run:
    run = stage.start(agent)
    assert stage.settle(run) == "parked"
    return run


def go(run: Run, name: str = "go") -> None:
    signals.signal(run.id, name, {}, by=SHOP)


def test_moved_visit_goes_on_where_it_was(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    before = dump()
    found = seen(run)
    assert (found.how, found.node, found.to_node, found.is_moved) == ("replayed", "hold", "wait_here", False)
    assert found.answered == ["0.2/1"] and dump() == before, "a look changes nothing"
    reads = len(outside.requests)
    assert moved(run).is_moved
    row = fresh(run)
    assert (row.graph_id, row.version, row.generation, row.node) == ("mover@2.0.0", "2.0.0", 1, "wait_here")
    assert row.state == "waiting_event" and [w.slot for w in waiting(run)] == ["0.2/2"], "it waits for the same signal"
    (event,) = events(run, e.RunMigrated)
    assert (event.of, event.to, event.how, event.visit, event.slots) == ("mover@1.0.0", "mover@2.0.0", "replayed", 2, 0)
    assert event.payload["nodes"] == NODES and event.payload["justification"] == "the old one is wrong"
    (record,) = overrides(run)
    assert record.action == "migrate" and record.before["version"] == "mover@1.0.0"
    assert (record.after["version"], record.after["generation"]) == ("mover@2.0.0", 1)
    sound(run)
    go(run)
    assert stage.settle(run) == "completed" and output(run) == "new"
    assert names(outside) == ["first", "new end"] and len(outside.requests) == reads + 1, "nothing was done twice"
    assert {x.slot for x in events(run, e.ToolInvoked)} == {"0.1/1", "1.3/1"}
    sound(run)


def test_changed_node_is_entered_again_if_nothing_repeats(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    rewritten(tools)
    found = seen(run)
    assert found.how == "reentered" and "the record says: look" in found.why
    assert found.repeated == ["look at 0.2/1", "signal go at 0.2/2"] and found.withdrawn == ["signal at 0.2/2"]
    assert moved(run).is_moved
    row = fresh(run)
    assert (row.state, row.node, row.visit, row.generation) == ("running", "wait_here", 2, 1)
    assert row.ready_at is not None and waiting(run) == []
    sound(run)
    assert stage.settle(run) == "parked"
    (wait,) = waiting(run)
    assert wait.slot == "1.3/2" and wait.detail["name"] == "resume"
    cut = Checkpoint.objects.filter(run_id=run.id).order_by("-seq")[0]
    assert (cut.generation, cut.node, cut.visit) == (1, "wait_here", 3)
    sound(run)
    go(run, "resume")
    assert stage.settle(run) == "completed" and names(outside) == ["first", "new end"]
    sound(run)


def test_what_has_had_an_effect_in_the_visit_is_not_done_again(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "once"})
        await ctx.signal("go")
        return End()

    async def other(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "another"})
        return End()

    run = parked(stage, agent_of(hold, tools=tools.all(), name=moving.NAME))
    agent_of(other, tools=tools.all(), name=moving.NAME, version="2.0.0")
    before = dump()
    for found in (seen(run, nodes={"hold": "other"}), moved(run, nodes={"hold": "other"})):
        assert (found.how, found.code, found.is_moved) == ("refused", "would_repeat", False)
        assert "order at 0.1/1, which was sent" in found.why and '"another"' in found.why
    assert dump() == before
    go(run)
    assert stage.settle(run) == "completed" and names(outside) == ["once"]


def test_a_run_that_has_not_begun_only_changes_its_version(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(old(tools))
    renamed(tools)
    assert moved(run).how == "unbegun"
    row = fresh(run)
    assert (row.state, row.graph_id, row.node, row.generation) == ("pending", "mover@2.0.0", "", 1)
    sound(run)
    assert stage.settle(run) == "parked"
    assert events(run, e.VisitEntered)[0].payload["version"] == "mover@2.0.0"
    go(run)
    assert stage.settle(run) == "completed" and output(run) == "new"
    sound(run)


class Strict(BaseModel):
    """It wants to know for whom."""

    whom: str
    asked: Asked = Asked()
    seen: list[Any] = []


def test_an_input_that_does_not_fit_keeps_a_run_where_it_is(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(old(tools))
    renamed(tools, input=Strict, initial=None, state=Strict)
    found = moved(run)
    assert (found.how, found.code) == ("refused", "input_misfit") and "whom" in found.why
    assert fresh(run).graph_id == "mover@1.0.0"
    sound(run)


def test_a_state_that_does_not_fit_wants_a_function(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    renamed(tools, state=Strict)
    found = moved(run)
    assert (found.how, found.code) == ("refused", "state_misfit") and "whom: Field required" in found.why
    sound(run)
    made: list[Any] = []

    def known(state: dict[str, Any]) -> dict[str, Any]:
        made.append(state)
        return state | {"whom": "olga"}

    registry.remove("mover@2.0.0")
    renamed(tools, state=Strict, migrations=[Migration("1.0.0", NODES, known)])
    assert moved(run).how == "replayed" and made[0] == {"asked": {"name": "x", "amount": 1}, "seen": []} | made[0]
    (event,) = events(run, e.RunMigrated)
    assert event.payload["state"]["whom"] == "olga"
    assert (
        event.payload["state_made_by"]["name"].endswith("known") and len(event.payload["state_made_by"]["source"]) == 64
    )
    go(run)
    assert stage.settle(run) == "completed" and output(run) == "new"
    sound(run)


class Less(BaseModel):
    asked: Asked = Asked()


def test_a_lower_schema_loses_nothing_silently(stage: Stage, tools: Toolbox) -> None:
    run = parked(stage, old(tools))
    renamed(tools, state=Less, initial=lambda asked: Less(asked=asked))
    found = moved(run)
    assert (found.how, found.code) == ("refused", "state_lost") and "no field for seen" in found.why
    assert "older schema" in found.why
    sound(run)


def test_a_function_that_breaks_changes_nothing(stage: Stage, tools: Toolbox) -> None:
    run = parked(stage, old(tools))

    def broken(state: dict[str, Any]) -> dict[str, Any]:
        state["asked"] = None
        raise SystemError("no such customer")

    renamed(tools, migrations=[Migration("1.0.0", NODES, broken)])
    before = dump()
    found = moved(run)
    assert (found.how, found.code) == ("refused", "state_function") and "no such customer" in found.why
    assert dump() == before


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"nodes": {"take": "take", "hold": "wait_here"}}, "nodes.settle", "is missing"),
        ({"nodes": NODES | {"gone": "take"}}, "nodes.gone", "is not a node of mover@1.0.0"),
        ({"nodes": NODES | {"hold": "holt"}}, "nodes.hold", "leads to 'holt'"),
        ({"to": "3.0.0"}, "to_version", "is unknown here"),
        ({"of": "0.9.0"}, "from_version", "is unknown"),
        ({"to": "1.0.0"}, "to_version", "is already their version"),
    ],
)
def test_invalid_move_is_refused(
    stage: Stage, tools: Toolbox, change: dict[str, Any], field: str, problem: str
) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    before = dump()
    for act in (seen, moved):
        with pytest.raises(InvalidInput) as refused:
            act(run, **change)
        errors = {x["field"]: x["problem"] for x in refused.value.extra["errors"]}
        assert problem in errors[field]
    assert dump() == before


def test_an_unknown_agent_and_a_closed_version_are_refused(stage: Stage, tools: Toolbox) -> None:
    from durableagents.contrib.releases import services

    run = parked(stage, old(tools))
    renamed(tools)
    with pytest.raises(NotFound):
        migrating.preview("nobody-knows-it", MigrationPreviewBody.model_validate(asked(run)))
    services.close_version(moving.NAME, "2.0.0", by=OLGA, justification="it is wrong")
    with pytest.raises(InvalidInput, match="closed to new starts"):
        moved(run)


def test_only_an_operator_may_and_only_with_a_reason(stage: Stage, tools: Toolbox) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    for by in (FIONA, SHOP):
        with pytest.raises(Forbidden):
            moved(run, by=by)
    body = MigrateBody.model_validate(asked(run) | {"justification": "  "})
    with pytest.raises(JustificationRequired):
        migrating.migrate(moving.NAME, body, by=OLGA)
    assert fresh(run).generation == 0


def test_runs_that_are_not_of_that_version_stay(stage: Stage, tools: Toolbox) -> None:
    from uuid import uuid4

    run = parked(stage, old(tools))
    renamed(tools)
    done = parked(stage, old(tools))
    go(done)
    stage.settle(done)
    assert moved(done).code == "ended" and moved(uuid4()).code == "not_found"
    moved(run)
    assert moved(run).code == "already" and fresh(run).generation == 1
    stranger = stage.start(agent_of(ends_with(None), tools=tools.all()))
    assert moved(stranger).code == "other_version"


# --- its position -----------------------------------------------------------------------------------------------------


def test_a_driven_run_is_not_moved_and_a_paused_one_stays_paused(stage: Stage, tools: Toolbox) -> None:
    run = parked(stage, old(tools))
    rewritten(tools)
    go(run)
    (claimed,) = stage.claim()
    assert moved(run).code == "driven"
    sound(run)
    assert stage.drive_claimed(claimed) == "completed"
    other = parked(stage, old(tools))
    lifecycle.pause(other.id, by=OLGA, justification="a moment")
    assert moved(other).how == "reentered"
    row = fresh(other)
    assert row.state == "paused" and row.ready_at is None and stage.drive() == "idle"
    sound(other)
    lifecycle.resume(other.id, by=OLGA, justification="on with it")
    assert stage.settle(other) == "parked" and waiting(other)[0].slot == "1.3/2"
    sound(other)


def test_a_call_of_unknown_outcome_keeps_a_run_where_it_is(stage: Stage, tools: Toolbox) -> None:
    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.mail, {"name": "a"})
        return End()

    run = stage.start(agent_of(hold, tools=tools.all(), name=moving.NAME))
    agent_of(hold, tools=tools.all(), name=moving.NAME, version="2.0.0")
    stage.kill_at = [("CP4", "mail")]
    stage.settle(run)
    assert fresh(run).state == "waiting_human"
    found = moved(run, nodes={"hold": "hold"})
    assert found.code == "in_doubt" and "mail at 0.1/1" in found.why
    sound(run)
    stage.reconcile(run, "happened", receipt={"ref": "mail:a"}, sender_is_gone=True)
    assert moved(run, nodes={"hold": "hold"}).how == "replayed"
    assert stage.settle(run) == "completed"
    sound(run)


def test_a_run_can_be_moved_twice_and_back(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    assert moved(run).how == "replayed"
    assert moved(run, nodes=BACK, of="2.0.0", to="1.0.0").how == "replayed"
    assert moved(run).how == "replayed"
    row = fresh(run)
    assert (row.generation, row.graph_id) == (3, "mover@2.0.0")
    sound(run)
    go(run)
    assert stage.settle(run) == "completed" and names(outside) == ["first", "new end"]
    assert {x.slot for x in events(run, e.ToolInvoked)} == {"0.1/1", "3.3/1"}
    sound(run)


def test_moved_run_is_moved_again_before_it_is_driven(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    rewritten(tools)
    assert moved(run).how == "reentered"
    assert moved(run, nodes=BACK, of="2.0.0", to="1.0.0").how == "reentered"
    sound(run)
    assert stage.settle(run) == "parked" and waiting(run)[0].slot == "2.3/2"
    go(run)
    assert stage.settle(run) == "completed" and output(run) == "old" and names(outside) == ["first", "old end"]
    sound(run)


def test_a_stop_that_other_code_answers_is_answered_by_the_move(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent = old(tools)
    run = parked(stage, agent)
    del agent.nodes["hold"]
    go(run)
    assert stage.settle(run) == "operator"
    assert events(run, e.OperatorNeeded)[0].reason == "unknown_node"
    renamed(tools)
    agent.nodes["hold"] = agent.nodes["take"]  # its name is still known
    found = moved(run)
    assert found.how == "replayed" and [w.kind for w in waiting(run)] == []
    assert fresh(run).state == "running"
    sound(run)
    assert stage.settle(run) == "completed" and names(outside) == ["first", "new end"]
    sound(run)


def test_a_version_whose_code_is_gone_can_be_left(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    announce(stage)
    registry.remove("mover@1.0.0")
    renamed(tools)
    with pytest.raises(InvalidInput, match=r"nodes\.settle"):
        moved(run, nodes={"take": "take", "hold": "wait_here"})
    assert moved(run).how == "replayed"
    go(run)
    assert stage.settle(run) == "completed" and output(run) == "new"
    sound(run)


def test_many_are_moved_each_by_itself(stage: Stage, tools: Toolbox) -> None:
    first = old(tools)
    runs = [parked(stage, first) for _ in range(3)]
    pending = stage.start(first)
    renamed(tools)
    lifecycle.cancel(runs[1].id, by=OLGA, justification="no more", effects="leave")
    body = asked() | {"justification": "the old one is wrong", "limit": 2}
    found = migrating.migrate(moving.NAME, MigrateBody.model_validate(body), by=OLGA)
    assert [(x.run, x.how) for x in found] == [(runs[0].id, "replayed"), (runs[2].id, "replayed")]
    assert fresh(pending).generation == 0
    left = migrating.preview(moving.NAME, MigrationPreviewBody.model_validate(asked() | {"state": "pending"}))
    assert [x.run for x in left] == [pending.id]
    for run in (*runs, pending):
        sound(run)
