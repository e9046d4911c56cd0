"""Workers limited to some versions or draining one: they drive what was begun and begin nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from durableagents import Context, End, Renew
from runs.api.present import run_rows
from runs.fleet.agent_versions import Loaded, drivable, is_left_alone, why_not_driven
from runs.models import Run, Served
from runs.services import signals
from tests.integration.runs.stage import Stage, fresh, problems
from tests.integration.runs.two_versions import NAME, served, start, versions
from tests.world import SHOP, Notes, agent_of, ends_with


async def waits(state: Notes, ctx: Context) -> Any:
    if state.seen:
        return End("went on")
    await ctx.signal("go")
    return Renew(Notes(asked=state.asked, seen=["renewed"]))


async def begins(state: Notes, ctx: Context) -> End:
    return End(await ctx.child(f"{NAME}@1.0.0", {}))


def announce(stage: Stage, loaded: Loaded) -> None:
    async def act() -> None:
        async with (await stage.connected()).connection() as link:
            await loaded.announce(link)

    stage.wait(act())


def test_a_worker_drives_only_what_it_is_told_to(stage: Stage) -> None:
    old, new = versions()
    other = agent_of(ends_with(1), name="other")
    loaded = Loaded(stage.worker.id, only=[old.graph_id, "other"])
    announce(stage, loaded)
    assert loaded.graph_ids() == [other.graph_id, old.graph_id]
    assert set(Served.objects.values_list("graph_id", flat=True)) == {old.graph_id, other.graph_id}
    assert drivable() == {old.graph_id, other.graph_id} and new.graph_id not in drivable()


def test_one_that_drains_goes_on_with_what_was_begun_and_begins_nothing(stage: Stage) -> None:
    old, _ = versions(waits)
    begun = start(agent=old.graph_id)
    assert stage.drive() == "parked"
    drainer = stage.hire()
    served(stage, old, worker=drainer, is_draining=True)
    new = start(agent=old.graph_id)
    signals.signal(begun.id, "go", None, by=SHOP)
    taken = stage.claim(drainer, limit=9, graphs=[old.graph_id])
    assert [one.run_id for one in taken] == [begun.id], "what was begun, and not what waits to be"
    assert stage.drive_claimed(taken[0], drainer) == "completed"
    successor = Run.objects.get(came_from=begun.pk)
    (going_on,) = stage.claim(drainer, limit=9, graphs=[old.graph_id])
    assert going_on.run_id == successor.pk, "what goes on from a run was begun with it"
    assert stage.drive_claimed(going_on, drainer) == "completed"
    assert stage.claim(drainer, limit=9, graphs=[old.graph_id]) == [] and str(fresh(new).state) == "pending"
    assert [one.run_id for one in stage.claim(limit=9, graphs=[old.graph_id])] == [new.id], "others begin it"
    assert problems(begun) == [] == problems(successor)


def test_a_step_of_a_run_that_was_begun_is_begun_by_one_that_drains(stage: Stage) -> None:
    old, _ = versions()
    parent = agent_of(begins, name="above")
    run = start(agent=parent.graph_id)
    assert stage.drive() == "parked"
    drainer = stage.hire()
    served(stage, old, parent, worker=drainer, is_draining=True)
    (child,) = stage.claim(drainer, limit=9)
    assert child.parent == str(run.id) and stage.drive_claimed(child, drainer) == "completed"


def test_however_much_waits_to_be_begun_a_drainer_reads_what_was_begun_by_index(stage: Stage) -> None:
    old, _ = versions()
    served(stage, old, is_draining=True)
    run = start(agent=old.graph_id)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_run SELECT (r).* FROM (SELECT jsonb_populate_record(x, jsonb_build_object("
            "'id', gen_random_uuid())) AS r FROM runs_run x, generate_series(1, 20000) WHERE x.id = %s) y",
            [run.pk],
        )
        cursor.execute("ANALYZE runs_run")
        cursor.execute(
            "EXPLAIN SELECT q.id FROM runs_run q WHERE q.graph_id = %s AND NOT q.is_solo AND q.lane = '' AND"
            " q.priority * -1 = 0 AND q.ready_at <= statement_timestamp() AND q.ready_at IS NOT NULL AND"
            " (q.state <> 'pending' OR q.came_from IS NOT NULL OR q.parent IS NOT NULL) ORDER BY q.ready_at LIMIT 10",
            [old.graph_id],
        )
        plan = " ".join(row[0] for row in cursor.fetchall())
    assert "runs_run_wanted_begun" in plan, plan
    assert stage.claim(limit=9, graphs=[old.graph_id]) == []


def test_a_start_rings_for_no_one_that_drains(stage: Stage) -> None:
    old, _ = versions()
    served(stage, old, is_draining=True)
    run = start(agent=old.graph_id)
    with connection.cursor() as cursor:
        for is_draining, called in ((True, ""), (False, str(stage.worker.id))):
            served(stage, old, is_draining=is_draining)
            cursor.execute("UPDATE runs_process SET slots_total = 5, slots_used = 0")
            cursor.execute("LISTEN drains_test")
            cursor.execute("SELECT runs_call('drains_test', %s, 60)", [run.pk])
            heard = list(connection.connection.notifies(timeout=5, stop_after=1))
            assert [one.payload for one in heard] == [called]


def test_a_parked_run_whose_version_is_gone_loses_nothing_and_goes_on_when_it_is_back(stage: Stage) -> None:
    old, _ = versions(waits)
    served(stage, old)
    run = start(agent=old.graph_id)
    assert stage.drive() == "parked" and not is_left_alone(fresh(run), drivable())
    Served.objects.all().delete()
    assert is_left_alone(fresh(run), drivable())
    signals.signal(run.id, "go", None, by=SHOP)
    assert not is_left_alone(fresh(run), drivable()), "now it is ready, and that is said otherwise"
    served(stage, old)
    assert stage.drive() == stage.drive() == "completed" and problems(run) == []
    assert not is_left_alone(fresh(run), frozenset())


@pytest.mark.parametrize("only", ["nobody", f"{NAME}@9.0.0", f"{NAME}@", ""])
def test_a_worker_of_what_it_has_not_is_refused_by_name(stage: Stage, only: str) -> None:
    versions()
    with pytest.raises(CommandError) as refused:
        call_command("worker", "--only", only or "@", "--processes", "1")
    assert refused.value.returncode == 2 and "--only" in str(refused.value)


def test_what_nobody_begins_says_that_its_workers_only_drain(stage: Stage) -> None:
    """A worker has to come that begins its runs. Running ones and their children continue."""
    old, _ = versions(waits)
    begun = start(agent=old.graph_id)
    assert stage.drive() == "parked"
    served(stage, old, is_draining=True)
    new, child = start(agent=old.graph_id), start(agent=old.graph_id)
    Run.objects.filter(pk=child.pk).update(parent=begun.pk)
    signals.signal(begun.pk, "go", {}, by=SHOP)
    now = drivable()
    assert why_not_driven(fresh(new), now) == f"every running worker with {NAME}@1.0.0 drains it and starts no runs"
    assert why_not_driven(fresh(child), now) is None and why_not_driven(fresh(begun), now) is None
    (row,) = run_rows([fresh(new)])
    assert row.served and row.status.reason == "draining" and "drains it" in row.status.sentence
    served(stage, old, worker=stage.hire())
    assert why_not_driven(fresh(new), drivable()) is None
