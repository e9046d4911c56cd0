"""Housekeeping alone ends every wait that the system has to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from django.db import transaction

from durableagents import Agent, Context, End
from ledger.errors import IllegalTransition
from runs.models import Run
from runs.services import lifecycle
from runs.services.starts import keys
from runs.workers.housekeeping import Housekeeping
from tests.apps import offered
from tests.integration.runs.aging import runs_out
from tests.integration.runs.families_undone import all_sound, family
from tests.integration.runs.stage import Stage, follow_actions, fresh, kinds, now, problems, waiting
from tests.unit.engine.undoings import Reversible, names
from tests.waiting import eventually
from tests.world import OLGA, SHOP, Asked, Notes, Outside, Toolbox, agent_of, ends_with

DEAR = {"name": "x", "amount": 1000}


@dataclass
class Scene:
    stage: Stage
    outside: Outside
    monkeypatch: pytest.MonkeyPatch
    tools: Toolbox = field(init=False)

    def __post_init__(self) -> None:
        self.tools = Toolbox(self.outside)

    def parked(self, agent: Agent, **input: str) -> Run:
        run = self.stage.start(agent, **input)
        self.drive()
        return run

    def drive(self) -> None:
        while self.stage.drive() != "idle":
            pass

    def look(self) -> None:
        house = Housekeeping(self.stage.worker.id)
        house.keep()
        house.close()

    def lose_follow_ups(self) -> None:
        """Skip everything after the commit of an action, as if its process died there."""
        follow_actions(self.monkeypatch, is_all=True)


def overdue(scene: Scene, wait_for: Callable[[Context], object]) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        await wait_for(ctx)  # type: ignore[misc]
        return End({})

    run = scene.parked(agent_of(node, tools=scene.tools.all()))
    for wait in waiting(run):
        runs_out(run.pk, wait.kind)
    return run


def child_ended(scene: Scene) -> Run:
    async def work(state: Notes, ctx: Context) -> End:
        return End(state.asked)

    helper = agent_of(work, name="helper", output=Asked)

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.child(helper, Asked(text="x")))

    return scene.parked(agent_of(node, name="parent"))


def child_to_cancel(scene: Scene) -> Run:
    run = scene.parked(family(Reversible(scene.outside), "wait", fails=False))
    scene.lose_follow_ups()
    lifecycle.cancel(run.pk, by=OLGA, justification="no more", effects="leave")
    return Run.objects.get(parent=run.pk)


def begun(agent: Agent, rule: str, **plan: datetime) -> Run:
    with transaction.atomic():
        wanted = keys.Wanted(agent.graph_id, {}, business_key="k", on_conflict=rule, **plan)
        return keys.start(wanted, by=SHOP).run


def queued_behind(scene: Scene) -> Run:
    agent = agent_of(ends_with({}))
    first, second = begun(agent, "refuse"), begun(agent, "queue")
    scene.lose_follow_ups()
    lifecycle.cancel(first.pk, by=OLGA, justification="no more")
    return second


def late_start(scene: Scene) -> Run:
    run = begun(agent_of(ends_with({})), "refuse", start_before=now() + timedelta(seconds=1))
    eventually(lambda: run.start_before is not None and now() > run.start_before, what="the time to begin passing")
    return run


def time_is_up(scene: Scene) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        return End({})

    run = scene.parked(agent_of(node))
    Run.objects.filter(pk=run.pk).update(time_up_at=now() - timedelta(seconds=1))
    return run


# How a run comes to wait for something only housekeeping does, and the event that proves it did.
SCENES: dict[str, tuple[Callable[[Scene], Run], str]] = {
    "a timer": (lambda s: overdue(s, lambda ctx: ctx.sleep(3600)), "WaitResolved"),
    "a signal": (lambda s: overdue(s, lambda ctx: ctx.signal("go")), "WaitResolved"),
    "a question": (
        lambda s: overdue(s, lambda ctx: ctx.ask("finance_po", title="Which?", schema=Asked)),
        "WaitResolved",
    ),
    "a callback": (lambda s: overdue(s, lambda ctx: ctx.call(s.tools.ask, {"name": "x"})), "WaitResolved"),
    "an approval": (lambda s: overdue(s, lambda ctx: ctx.call(s.tools.pay, DEAR)), "ApprovalDecided"),
    "a child's end": (child_ended, "ChildEnded"),
    "a parent's cancel": (child_to_cancel, "RunCancelled"),
    "a key": (queued_behind, "RunAdmitted"),
    "a start": (late_start, "RunCancelled"),
    "its time": (time_is_up, "BudgetExceeded"),
}
for scenes in offered("situations", "SCENES"):
    SCENES |= scenes


@pytest.mark.every(3)
@pytest.mark.parametrize("name", SCENES)
def test_housekeeping_acts_on_the_only_run_there_is(
    name: str, stage: Stage, outside: Outside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene, (build, found) = Scene(stage, outside, monkeypatch), SCENES[name]
    run = build(scene)
    assert found not in kinds(run)
    scene.look()

    assert found in kinds(run), caplog.text
    assert [each for each in problems(run) if "deadline" not in each] == []


def test_completed_child_is_undone_on_time(stage: Stage, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(stage, outside, monkeypatch)
    run = scene.parked(family(Reversible(outside), "ok"))
    for _ in range(4):  # the child's end, its undo, the end of that
        scene.look()
        scene.drive()
    assert (fresh(run).state, Run.objects.get(parent=run.pk).state) == ("failed", "cancelled")
    assert names(outside) == ["post", "book", "unbook", "unpost"]
    all_sound()


def test_retried_undo_looks_at_children_again(stage: Stage, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(stage, outside, monkeypatch)
    run = scene.parked(family(Reversible(outside), "ok"))
    scene.look()
    scene.drive()
    (wait,) = waiting(run)
    assert (fresh(run).state, wait.kind) == ("waiting_event", "child")
    with pytest.raises(IllegalTransition, match="retry it if it is only waiting"):
        lifecycle.cancel(run.pk, by=OLGA, justification="no more")
    assert lifecycle.retry(run.pk, by=OLGA, justification="it waits too long").state == "compensating"
    child = Run.objects.get(parent=run.pk)
    assert child.state == "compensating"
    all_sound()
    scene.drive()
    assert fresh(child).state == "cancelled" and [w.pk for w in waiting(run)] == [wait.pk]
    scene.look()
    scene.drive()
    assert fresh(run).state == "failed" and names(outside) == ["post", "book", "unbook", "unpost"]
    all_sound()
