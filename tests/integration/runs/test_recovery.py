"""Dead workers and due times: what is proven or due is acted on once, and nothing else."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest

from ledger import events as e
from ledger.errors import StaleLease
from runs.fleet import members
from runs.journal.claims import Worker
from runs.models import Process, Run, Wait
from runs.workers import failover, timers
from runs.workers.failover import MAX_DEATHS
from tests.integration.approvals.timing import due
from tests.integration.runs.situations import Situations, act
from tests.integration.runs.stage import Stage, dump, events, fresh, head, in_thread, kinds, now, problems, waiting
from tests.integration.runs.test_steering import check_form
from tests.world import Outside, agent_of, ends_with
from tests.writing import record


def ready(run: Run) -> None:
    Run.objects.filter(pk=run.pk, ready_at__isnull=False).update(ready_at=now())


def die_after_claiming(stage: Stage, run: Run, *, writes: bool = False) -> Worker:
    worker = stage.hire(is_dead=True)
    journal = stage.take(run, worker)
    if writes:
        stage.wait(record(journal, [e.ValueRead(slot=f"0.1/{journal.seq}", what="now", payload=1)]))
    return worker


def test_a_dead_workers_runs_are_ready_again_at_once_and_it_can_not_write_any_more(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = stage.hire(is_dead=True)
    journal = stage.take(run, worker)
    assert failover.worker_died(worker.id, "reaped") == 1
    assert (fresh(run).owner, str(fresh(run).state)) == (None, "running")
    with pytest.raises(StaleLease):
        stage.wait(record(journal, [e.ValueRead(slot="0.1/1", what="now", payload=1)]))
    (lost,) = events(run, e.WorkerLost)
    assert (lost.worker, lost.pid, lost.proof, lost.epoch) == (str(worker.id), worker.pid, "reaped", 1)
    assert stage.drive() == "completed"
    check_form(run)


def test_hearing_of_a_death_again_changes_nothing(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = die_after_claiming(stage, run)
    failover.worker_died(worker.id, "reaped")
    before = dump()
    assert failover.worker_died(worker.id, "reaped") == 0 and failover.watch() == 0
    assert dump() == before


def test_the_watch_frees_what_is_proven_and_lets_the_living_be(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    dead, alive = stage.start(agent), stage.start(agent)
    gone = stage.hire(is_dead=True)
    (first,) = stage.claim(gone)
    (second,) = stage.claim()
    assert {first.run_id, second.run_id} == {dead.id, alive.id}
    assert failover.watch() == 1
    freed, kept = Run.objects.get(pk=first.run_id), Run.objects.get(pk=second.run_id)
    assert freed.owner is None and kept.owner == stage.worker.id
    assert Process.objects.get(pk=gone.id).ended_at is not None


def test_who_looks_for_the_dead_of_this_host_finds_them_and_nobody_else(stage: Stage) -> None:
    living, gone = stage.worker, stage.hire(is_dead=True)
    assert members.beat(kind="web", pid=os.getpid())
    assert [(each.id, each.kind) for each in members.gone_here()] == [(gone.id, "worker")]
    assert Process.objects.get(pk=living.id).ended_at is None


def test_silence_on_another_host_is_no_proof(stage: Stage, settings: Any) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = stage.hire(is_dead=True)
    stage.take(run, worker)
    Process.objects.filter(pk=worker.id).update(host="elsewhere", last_heartbeat_at=now() - timedelta(days=9))
    shared = settings.DURABLEAGENTS.model_copy(update={"database_url": "postgresql://a.server.for.many/"})
    settings.DURABLEAGENTS = shared
    assert failover.watch() == 0 and fresh(run).owner == worker.id


@pytest.mark.parametrize("proof", ["an earlier boot", "another process's pid", "an end on record"])
def test_watch_frees_the_runs_of_a_proven_death(stage: Stage, proof: str) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = stage.hire()
    stage.take(run, worker)
    identity = members.identify(os.getpid())
    assert identity is not None
    changes: dict[str, dict[str, Any]] = {
        "an earlier boot": {"boot": "an earlier one"},
        "another process's pid": {"born_ticks": identity.born_ticks - 1},
        "an end on record": {"ended_at": now()},
    }
    Process.objects.filter(pk=worker.id).update(**changes[proof])
    assert failover.watch() == 1 and fresh(run).owner is None


def test_deaths_in_a_row_that_got_nowhere_stop_the_run_for_an_operator(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    for n in range(1, MAX_DEATHS + 1):
        worker = die_after_claiming(stage, run)
        before = now()
        assert failover.worker_died(worker.id, "reaped") == 1
        assert head(run).deaths == n
        if n < MAX_DEATHS:
            ready_at, after = fresh(run).ready_at, now()
            assert ready_at is not None and ready_at - before <= timedelta(seconds=31)
            assert n > 1 or ready_at <= after, "the first recovery is at once"
            ready(run)
    check_form(run)
    assert str(fresh(run).state) == "waiting_human" and stage.claim() == []
    (wait,) = waiting(run)
    assert wait.kind == "operator" and wait.detail["reason"] == "poison"
    assert kinds(run)[-4:] == ["WorkerLost", "OperatorNeeded", "WaitOpened", "RunParked"]
    assert problems(run) == []
    act("retry", run)
    assert head(run).deaths == 0 and stage.drive() == "completed"


def test_a_death_after_something_was_written_starts_the_count_again(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    for _ in range(3):
        failover.worker_died(die_after_claiming(stage, run).id, "reaped")
        ready(run)
    assert head(run).deaths == 3
    failover.worker_died(die_after_claiming(stage, run, writes=True).id, "reaped")
    ready(run)
    assert head(run).deaths == 0
    assert [x.is_counted for x in events(run, e.WorkerLost)] == [True, True, True, False]
    for _ in range(MAX_DEATHS - 1):
        failover.worker_died(die_after_claiming(stage, run).id, "reaped")
        ready(run)
    assert str(fresh(run).state) == "running"


def test_a_wish_survives_the_worker_that_was_to_hear_it(situations: Situations, stage: Stage) -> None:
    for service, how in (("pause", "paused"), ("cancel", "cancelled")):
        run = stage.start(situations.agent, text="end")
        worker = die_after_claiming(stage, run)
        act(service, run)
        failover.worker_died(worker.id, "reaped")
        assert stage.drive() == how
        check_form(run)


@pytest.mark.parametrize("situation", ["at_gate", "paused_at_gate", "completed", "cancelled", "queued"])
def test_a_death_concerns_nobody_whom_it_does_not_drive(situations: Situations, stage: Stage, situation: str) -> None:
    situations.make(situation)
    before = dump()
    assert failover.worker_died(stage.worker.id, "reaped") == 0
    assert dump() == before


def test_an_engine_failure_that_repeats_stops_for_an_operator(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    stage.take(run)
    assert failover.engine_failed(run.id, stage.hire().id, "not mine") is False
    assert failover.engine_failed(run.id, stage.worker.id, "it raised three times") is True
    check_form(run)
    assert waiting(run)[0].detail["reason"] == "engine_failed"
    act("retry", run)
    assert stage.drive() == "completed"


# --- the sweeper ---


def test_a_timer_wakes_its_run_when_it_is_due_and_not_before(situations: Situations, stage: Stage) -> None:
    run = situations.make("asleep")
    before = dump()
    assert 0 < timers.sweep() <= timers.IDLE_SECONDS
    assert dump() == before
    due(run)
    timers.sweep()
    (fired,) = events(run, e.WaitResolved)
    assert (fired.resolution, fired.by, str(fresh(run).state)) == ("fired", "system:sweeper", "running")
    assert stage.drive() == "completed"


def test_nobody_deciding_means_no(situations: Situations, stage: Stage, outside: Outside) -> None:
    run = situations.make("at_gate")
    due(run)
    timers.sweep()
    approval = run.approvals.get()
    (found,) = events(run, e.ApprovalDecided)
    assert (approval.state, found.verdict, found.by) == ("expired", "expired", "system:sweeper")
    assert approval.decisions.count() == 0, "nobody decided"
    assert stage.drive() == "failed" and fresh(run).error_code == "rejected" and outside.requests == []


def test_no_callback_in_time_comes_to_the_node_as_a_failure(situations: Situations, stage: Stage) -> None:
    run = situations.make("at_callback")
    due(run)
    timers.sweep()
    assert stage.drive() == "failed" and fresh(run).error_code == "no_answer"


def test_moved_deadline_is_read_again(situations: Situations, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep finds a wait due; then the system accepts the call and extends it."""
    run = situations.make("at_callback")
    Wait.objects.filter(run=run).update(deadline=now() - timedelta(seconds=1))
    locked = timers.locked

    def after_somebody_else(run_id: Any, **more: Any) -> Any:
        in_thread(lambda: Wait.objects.filter(run=run).update(deadline=now() + timedelta(hours=1)))
        return locked(run_id, **more)

    monkeypatch.setattr(timers, "locked", after_somebody_else)
    timers.sweep()
    assert [w.kind for w in waiting(run)] == ["webhook"] and stage.drive() == "idle"


@pytest.mark.parametrize("situation", ["unknown", "stopped", "doomed_unknown"])
def test_persons_question_becomes_overdue(situations: Situations, stage: Stage, situation: str) -> None:
    run = situations.make(situation)
    before = kinds(run)
    due(run)
    timers.sweep()
    assert all(wait.is_overdue for wait in waiting(run)) and waiting(run)
    assert kinds(run) == before and str(fresh(run).state) == "waiting_human"
    assert timers.sweep() > 0, "it is not looked at over and over"


def test_under_a_pause_time_passes_and_wakes_nothing_until_the_resume(situations: Situations, stage: Stage) -> None:
    run = situations.make("paused_asleep")
    due(run)
    timers.sweep()
    assert str(fresh(run).state) == "paused" and fresh(run).is_woken and stage.claim() == []
    act("resume", run)
    assert stage.drive() == "completed"


@pytest.mark.parametrize("situation", ["completed", "failed", "cancelled"])
def test_an_ended_run_has_nothing_that_could_be_due(situations: Situations, situation: str) -> None:
    run = situations.make(situation)
    Wait.objects.filter(run=run).update(deadline=now() - timedelta(seconds=1))
    before = dump()
    timers.sweep()
    assert dump() == before


def test_one_runs_trouble_keeps_no_other_waiting(situations: Situations, stage: Stage) -> None:
    bad, good = situations.make("at_gate"), situations.make("asleep")
    Wait.objects.filter(run=bad).update(deadline=now() - timedelta(days=1))
    due(good)
    bad.approvals.update(state="withdrawn")  # a change by hand, which no code makes
    timers.sweep()
    assert str(fresh(good).state) == "running" and str(fresh(bad).state) == "waiting_human"


def test_only_one_process_sweeps_at_a_time(situations: Situations, stage: Stage) -> None:
    import psycopg

    from runs.connections import dsn

    run = situations.make("asleep")
    due(run)
    with psycopg.connect(dsn()) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [timers._LOCK])
        assert timers.sweep() == timers.IDLE_SECONDS and str(fresh(run).state) == "waiting_event"
    timers.sweep()
    assert str(fresh(run).state) == "running"


def test_a_sweep_leaves_its_time(situations: Situations, stage: Stage) -> None:
    assert members.last_sweep_age_seconds() is None
    timers.sweep()
    age: Any = members.last_sweep_age_seconds()
    assert 0 <= age < 60
