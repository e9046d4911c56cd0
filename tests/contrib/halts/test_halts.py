from __future__ import annotations

import itertools
from typing import Any

import pytest

from durableagents import Context, End
from durableagents.contrib.halts.models import Halt, HaltNow
from durableagents.contrib.halts.services import AlreadyHalted, HaltMoved
from ledger import events as e
from ledger.errors import Forbidden, InvalidInput, JustificationRequired
from ledger.models import ActRecord
from runs.engine.journal import Batch
from runs.models import Run
from runs.services import lifecycle
from tests.contrib.halts.halting import (
    WHY,
    Asking,
    calls,
    halt,
    held,
    lift,
    lift_for_all,
    now_halted,
    once,
    release_all,
    stage_of,
    tagged,
)
from tests.integration.runs.stage import Stage, at_once, events, facts, fresh, in_thread, kinds, problems, waiting
from tests.world import OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db


def of(scope: str, run: Run) -> str:
    return {"all": "", "tag": "acme", "agent": run.agent, "version": run.graph_id, "tool": "order"}[scope]


# --- the claim --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["all", "tag", "agent", "version"])
def test_a_run_under_a_halt_is_claimed_when_it_is_lifted_and_not_before(stage: Stage, scope: str) -> None:
    run = tagged(agent_of(ends_with(1)), "acme")
    it = halt(scope, of(scope, run))
    assert stage.drive() == "idle" == stage.drive()
    assert (str(fresh(run).state), fresh(run).owner) == ("pending", None) and kinds(run) == ["RunCreated"]
    lift_for_all(it)
    assert stage.drive() == "completed" and not held() and problems(run) == []


def test_what_stands_behind_halted_runs_is_claimed_at_once(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    stopped = [tagged(agent, "acme") for _ in range(40)]
    other = stage.start(agent)
    it = halt("tag", "acme")
    assert [one.run_id for one in stage.claim(limit=1)] == [other.id]
    assert held() <= {run.id for run in stopped}
    lift_for_all(it)
    assert {one.run_id for one in stage.claim(limit=100)} == {run.id for run in stopped}


def test_a_tag_s_halt_is_of_its_runs_children_too(stage: Stage, tools: Toolbox) -> None:
    child = calls(tools, "order", name="child-of-halted")

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.child(child, {}))

    run = tagged(agent_of(node), "acme")
    stage.drive()
    halt("tag", "acme")
    assert stage.drive() == "idle"
    assert held() == set(Run.objects.filter(parent=run.id).values_list("id", flat=True)) != set()


# --- the intent -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["all", "tag", "agent", "version", "tool"])
def test_after_a_halt_s_commit_no_intent_is_made(stage: Stage, tools: Toolbox, outside: Outside, scope: str) -> None:
    run = tagged(calls(tools, "order", "order", "mail"), "acme")
    stage.at = once(lambda: in_thread(lambda: halt(scope, of(scope, run))), "CP1", "order")
    assert stage.drive() == "halted"
    assert outside.seen() == [] and facts(run) == [] and str(fresh(run).state) == "running"
    assert fresh(run).owner is None and held() == {run.id}
    assert stage.drive() == "idle", "it isn't looked at again before the halt says something else"
    lift_for_all(now_halted())
    assert stage.drive() == "completed" and len(outside.seen()) == 3 and problems(run) == []


@pytest.mark.parametrize("name", ["order", "mail", "hooked", "fax"])
def test_what_was_halted_between_intent_and_call_is_not_sent(
    stage: Stage, tools: Toolbox, outside: Outside, name: str
) -> None:
    """A worker suspended there asks before it sends, however recent its intent seems."""
    stage.halts = Asking(stage)
    run = stage.start(calls(tools, name))
    stage.at = once(lambda: in_thread(lambda: halt("tool", name)), "CP2", name)
    assert stage.drive() == "halted"
    assert outside.seen() == [] and [x.tool for x in events(run, e.ToolNotDispatched)] == [name]
    lift_for_all(now_halted())
    assert stage.drive() == "completed" and len(outside.seen()) == 1
    assert facts(run) == ["pending", "committed"] and problems(run) == []


def test_a_tool_s_halt_is_of_its_reads_too(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    stage.halts = Asking(stage)
    run = stage.start(calls(tools, "look"))
    it = halt("tool", "look")
    assert stage.drive() == "halted" and outside.seen() == []
    assert stage.drive() == "idle"
    lift_for_all(it)
    assert stage.drive() == "completed" and len(outside.seen()) == 1 and problems(run) == []


def test_what_is_in_flight_comes_back_and_is_recorded(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(calls(tools, "order", "order"))
    stage.at = once(lambda: in_thread(lambda: halt("tool", "order")), "CP4", "order")
    assert stage.drive() == "halted"
    assert facts(run) == ["pending", "committed"] and len(outside.seen()) == 1
    lift_for_all(now_halted())
    assert stage.drive() == "completed" and len(outside.seen()) == 2 and problems(run) == []


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("name", "point"),
    [*itertools.product(["order", "mail", "hooked"], ["CP1", "CP2", "CP3", "CP4", "CP6"])],
)
def test_a_worker_dies_at_each_point_while_its_tool_is_halted(
    stage: Stage, tools: Toolbox, outside: Outside, point: str, name: str
) -> None:
    run = stage.start(calls(tools, name))

    def at(here: str, tool: str) -> None:
        if (here, tool) == (point, name):
            stage.at = lambda *_: None
            in_thread(lambda: halt("tool", name))
            stage.kill_at.append((point, name))

    stage.at = at
    if point == "CP3":
        from tests.world import Killed

        outside.trouble(name, Killed("CP3"), when="after")
        halted_first = lambda: in_thread(lambda: halt("tool", name))  # noqa: E731
        stage.at = once(halted_first, "CP2", name)
    stage.settle(run)
    sent = len(outside.seen(name))
    assert sent <= 1 and fresh(run).owner is None and HaltNow.objects.count() == 1
    lift_for_all(now_halted())
    stage.settle(run)
    if waiting(run) and name == "mail":  # its outcome is unknown, as without a halt
        stage.reconcile(run, "happened" if sent else "fail", {"ref": "x"} if sent else None)
        stage.settle(run)
    assert fresh(run).ended_at is not None and len(outside.executed(name)) == (0 if fresh(run).error_code else 1)
    assert problems(run) == []


# --- people -----------------------------------------------------------------------------------------------------------


def test_a_halt_is_on_record_with_each_of_its_stages(stage: Stage) -> None:
    run = tagged(agent_of(ends_with(1)), "acme")
    it = halt("agent", run.agent)
    stage_of(it, share=10)
    stage_of(it, share=50, tags=["acme"])
    stage_of(it)
    lift(it)
    rows = list(Halt.objects.filter(halt=it.halt).order_by("n"))
    assert [(row.n, str(row.stage), row.share, row.tags) for row in rows] == [
        (0, "whole", 0, []),
        (1, "staged", 1000, []),
        (2, "staged", 5000, ["acme"]),
        (3, "whole", 0, []),
        (4, "lifted", 0, []),
    ]
    assert all(row.is_authentic and row.by == OLGA.ref and row.why == WHY for row in rows)
    acts = ActRecord.objects.filter(subject=f"halt {it.halt}").order_by("n")
    assert [(act.action, act.after["n"]) for act in acts] == [
        ("halt", 0),
        ("halt_stage", 1),
        ("halt_stage", 2),
        ("halt_whole", 3),
        ("halt_lift", 4),
    ]
    assert not HaltNow.objects.exists()


def test_who_may_not_halts_nothing_and_lifts_nothing(stage: Stage) -> None:
    it = halt("tool", "order")
    with pytest.raises(Forbidden):
        halt("tool", "mail", by=SHOP)
    with pytest.raises(Forbidden):
        lift(it, by=SHOP)
    with pytest.raises(JustificationRequired):
        halt("tool", "mail", justification=" ")
    assert HaltNow.objects.count() == 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"scope": "all", "confirm": "yes"}, "confirm"),
        ({"scope": "all", "key": "x"}, "key"),
        ({"scope": "tool", "key": ""}, "key"),
        ({"scope": "tool", "key": " order"}, "key"),
        ({"scope": "tool", "key": "or\u200bder"}, "key"),
        ({"scope": "version", "key": "vendor"}, "key"),
        ({"scope": "agent", "key": "vendor@1.0.0"}, "key"),
        ({"scope": "agent", "key": "vendor", "kind": "quarantine"}, "scope"),
        ({"scope": "tool", "key": "order", "kind": "starts"}, "scope"),
        ({"scope": "tool", "key": "order", "refuse": True}, "refuse"),
    ],
)
def test_what_can_t_be_halted_is_refused_by_name(stage: Stage, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        halt(**given)
    assert field in [error["field"] for error in refused.value.extra["errors"]]
    assert not Halt.objects.exists()


def test_the_same_is_halted_once_and_a_stale_look_changes_nothing(stage: Stage) -> None:
    it = halt("tool", "order")
    with pytest.raises(AlreadyHalted):
        halt("tool", "order")
    stage_of(it, share=10, revision=0)
    with pytest.raises(HaltMoved):
        stage_of(it, share=20, revision=0)
    with pytest.raises(HaltMoved):
        lift(it, revision=0)
    lift(it, revision=1)
    with pytest.raises(HaltMoved):
        lift(it)
    halt("tool", "order")


def test_of_64_at_once_one_halts_and_one_lifts(stage: Stage) -> None:
    answers = at_once(*[lambda: halt("tool", "order")] * 64)
    made = [x for x in answers if isinstance(x, Halt)]
    assert len(made) == 1 and all(isinstance(x, AlreadyHalted) for x in answers if x not in made), answers
    answers = at_once(*[lambda: lift(made[0])] * 64)
    assert sum(isinstance(x, Halt) for x in answers) == 1
    assert all(isinstance(x, (Halt, HaltMoved)) for x in answers), answers
    assert list(Halt.objects.order_by("n").values_list("n", flat=True)) == [0, 1]


# --- stages -----------------------------------------------------------------------------------------------------------


def test_a_halt_is_lifted_in_stages_and_taken_back_at_once(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    runs = {stage.start(agent).id for _ in range(60)}
    it = halt("all")
    assert stage.claim(limit=100) == []
    stage_of(it, share=30)
    first = {one.run_id for one in stage.claim(limit=100)}
    assert 0 < len(first) < 60 and held() == runs - first
    assert stage.claim(limit=100) == []
    stage_of(it, share=60)
    release_all()
    second = {one.run_id for one in stage.claim(limit=100)}
    assert second and not second & first and held() == runs - first - second
    stage_of(it)
    release_all()
    assert stage.claim(limit=100) == [] and held() == runs - first - second
    lift_for_all(it)
    assert {one.run_id for one in stage.claim(limit=100)} == runs - first - second and not held()


def test_an_agent_or_a_tag_may_go_first(stage: Stage) -> None:
    first, second = agent_of(ends_with(1)), agent_of(ends_with(2))
    one, two, three = stage.start(first), tagged(second, "vip"), stage.start(second)
    it = halt("all")
    stage_of(it, agents=[first.name], tags=["vip"])
    assert {claimed.run_id for claimed in stage.claim(limit=10)} == {one.id, two.id}
    assert held() == {three.id}


@pytest.mark.parametrize(
    "order", [*itertools.permutations(("tool", "tag", "all")), ("tool", "tag", "agent", "version", "all")]
)
def test_under_nested_halts_a_run_goes_on_when_the_last_is_lifted(
    stage: Stage, tools: Toolbox, order: tuple[str, ...]
) -> None:
    run = tagged(calls(tools, "order"), "acme")
    its = {s: halt(s, of(s, run)) for s in order}
    for scope in order:
        assert stage.drive() in ("idle", "halted")
        lift_for_all(its[scope])
    assert stage.settle(run) == "completed" and not held() and problems(run) == []


# --- actions on halted runs -------------------------------------------------------------------------------------------


def test_a_run_that_is_put_aside_may_be_paused_resumed_and_cancelled(stage: Stage, tools: Toolbox) -> None:
    agent = calls(tools, "order")
    one, two = tagged(agent, "acme"), tagged(agent, "acme")
    it = halt("tag", "acme")
    assert stage.drive() == "idle" and held() == {one.id, two.id}
    lifecycle.pause(one.id, by=OLGA, justification=WHY)
    lifecycle.cancel(two.id, by=OLGA, justification=WHY)
    assert str(fresh(two).state) == "cancelled"
    lift_for_all(it)
    assert stage.drive() == "idle" and str(fresh(one).state) == "paused" and not held()
    lifecycle.resume(one.id, by=OLGA, justification=WHY)
    assert stage.drive() == "completed" and problems(one) == problems(two) == []


def test_a_resume_under_a_halt_sets_nothing_going(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = tagged(calls(tools, "order"), "acme")
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    it = halt("tag", "acme")
    lifecycle.resume(run.id, by=OLGA, justification=WHY)
    assert stage.drive() == "idle" and held() == {run.id}
    lift_for_all(it)
    assert stage.drive() == "completed" and len(outside.seen()) == 1


def test_a_decision_under_a_halt_is_taken_and_acted_on_after_it(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = tagged(calls(tools, "pay"), "acme")
    assert stage.drive() == "parked"
    it = halt("tag", "acme")
    stage.decide(run)
    assert stage.drive() == "idle" and outside.seen() == []
    lift_for_all(it)
    assert stage.drive() == "completed" and len(outside.seen()) == 1 and problems(run) == []


def test_a_cancel_while_the_halt_s_stop_is_on_its_way_wins(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calls(tools, "order"))

    def both() -> None:
        in_thread(lambda: halt("all"))
        in_thread(lambda: lifecycle.cancel(run.id, by=OLGA, justification=WHY))

    stage.at = once(both, "CP1", "order")
    assert stage.drive() == "cancelled" and facts(run) == [] and problems(run) == []


# --- at once ----------------------------------------------------------------------------------------------------------


def test_in_a_batch_only_the_step_under_the_halt_is_refused(
    stage: Stage, tools: Toolbox, outside: Outside, one_batch: None
) -> None:
    import asyncio

    free, stopped = stage.start(calls(tools, "order")), stage.start(calls(tools, "mail"))
    journals = {
        run.id: stage.journal(claimed)
        for claimed in stage.claim(limit=2)
        for run in (free, stopped)
        if claimed.run_id == run.id
    }
    halt("tool", "mail")

    def intent(name: str) -> Batch:
        tool = getattr(tools, name)
        args = Item(name="x", amount=1).model_dump()
        event = e.ToolInvoked(
            slot="0.1/0",
            attempt=0,
            payload={"arguments": args, "key": None},
            tool=name,
            replay_class=str(tool.replay_class),
            requested_hash="h",
            executed_hash="h",
            grant=None,
        )
        return Batch([event], is_intent=True)

    async def both() -> list[Any]:
        return await asyncio.gather(
            journals[free.id].commit(intent("order")),
            journals[stopped.id].commit(intent("mail")),
            return_exceptions=True,
        )

    first, second = stage.wait(both())
    assert first.is_done and type(second).__name__ == "RunHalted" and second.key == "tool:mail"
    assert "ToolInvoked" in kinds(free) and "ToolInvoked" not in kinds(stopped)
