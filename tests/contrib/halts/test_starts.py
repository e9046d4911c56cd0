from __future__ import annotations

import pytest

from durableagents import Context, End
from runs.models import Run
from runs.services import lifecycle
from runs.services.version_choice import StartsStopped, VersionClosed
from runs.workers import timers
from tests.contrib.halts.halting import WHY, halt, held, lift, lift_for_all
from tests.integration.runs.stage import Stage, fresh, problems
from tests.world import SHOP, Notes, agent_of, ends_with

pytestmark = pytest.mark.django_db


def test_new_starts_are_refused_with_who_since_when_and_why(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    it = halt("agent", agent.name, kind="starts", refuse=True)
    for reference in (agent.name, agent.graph_id):
        with pytest.raises(
            StartsStopped, match=rf"user:olga stopped new starts of .* UTC: {WHY.rstrip('.')}\. Nothing"
        ):
            lifecycle.start(reference, {}, by=SHOP)
    assert not Run.objects.exists()
    lift(it)
    assert stage.start(agent) is not None


def test_new_starts_wait_while_runs_under_way_go_on(stage: Stage) -> None:
    async def nap(state: Notes, ctx: Context) -> End:
        await ctx.sleep(0.01)
        return End(1)

    agent = agent_of(nap)
    begun = stage.start(agent)
    assert stage.drive() == "parked"
    it = halt("agent", agent.name, kind="starts")
    new = stage.start(agent)
    while fresh(begun).ended_at is None:
        timers.sweep()
        assert stage.drive() in ("idle", "completed")
    assert stage.drive() == "idle" and str(fresh(new).state) == "pending" and held() == {new.id}
    lift_for_all(it)
    while fresh(new).ended_at is None:
        timers.sweep()
        assert stage.drive() in ("idle", "parked", "completed")
    assert str(fresh(new).state) == "completed" and problems(new) == []


def test_a_step_of_another_run_is_not_refused_it_waits(stage: Stage) -> None:
    child = agent_of(ends_with(7))

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.child(child, {}))

    run = stage.start(agent_of(node))
    it = halt("agent", child.name, kind="starts", refuse=True)
    stage.settle(run)
    assert stage.drive() == "idle" and held() == {Run.objects.get(parent=run.id).id}
    lift_for_all(it)
    stage.settle(Run.objects.get(parent=run.id))
    from runs.services.families import ends

    ends.tell_many([Run.objects.get(parent=run.id).id])
    assert stage.settle(run) == "completed" and problems(run) == []


def test_a_version_in_quarantine_gets_no_start_and_its_runs_wait(stage: Stage) -> None:
    old = agent_of(ends_with(1), version="1.0.0", name="suspect")
    new = agent_of(ends_with(2), version="2.0.0", name="suspect")
    run = stage.start(new)
    it = halt("version", new.graph_id, kind="quarantine")
    assert lifecycle.start("suspect", {}, by=SHOP).version == old.version
    with pytest.raises(VersionClosed):
        lifecycle.start(new.graph_id, {}, by=SHOP)
    assert stage.drive() == "completed" and stage.drive() == "idle"
    lift(it)
    assert (
        stage.drive() == "completed"
        and fresh(run).ended_at
        and lifecycle.start("suspect", {}, by=SHOP).version == "2.0.0"
    )


def test_someone_who_starts_a_run_under_a_halt_is_told(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    halt("tag", "acme")
    accepted = _accept(agent.graph_id, ["acme"])
    assert accepted.halted is not None and accepted.halted["scope"] == "tag"
    assert _accept(agent.graph_id, ["other"]).halted is None


def _accept(graph_id: str, tags: list[str]) -> lifecycle.Accepted:
    from django.db import transaction

    with transaction.atomic():
        return lifecycle.accept(graph_id, {}, by=SHOP, tags=tags)
