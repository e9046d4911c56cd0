from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from ledger.errors import StaleLease
from runs import connections as addresses
from runs.connections import dsn, tag_of
from runs.fleet import members
from runs.fleet.members import Sign, identify, incarnation_id
from runs.models import Incident, Process, Run
from runs.workers import failover
from runs.workers.session_lock import Presence
from tests.integration.runs.stage import Stage, at_once, fresh
from tests.waiting import eventually
from tests.world import agent_of, ends_with


def sign() -> Sign:
    identity = identify(os.getpid())
    assert identity is not None
    return Sign("worker", identity, 1, 5)


ME = incarnation_id(sign().identity)


@pytest.fixture
def presence(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Presence]:
    monkeypatch.setattr(addresses, "_tag", tag_of(ME))
    presence = Presence(sign)
    yield presence
    presence.leave()


def is_anchored(id: UUID = ME) -> bool:
    called = members.roll_call()
    assert called is not None
    (member,) = [m for m in called.members if m.id == id]
    return member.is_anchored


def cut(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = "
            "current_database() AND application_name LIKE %s",
            [name + "%"],
        )
        return int(cursor.fetchone()[0])


def test_a_process_that_announces_itself_holds_its_registration(presence: Presence) -> None:
    assert not presence.is_held
    assert presence.announce() and presence.is_held and is_anchored()
    assert Process.objects.get(pk=ME).slots_used == 1


def test_a_worker_whose_connection_is_cut_knows_at_once_and_takes_its_place_again(presence: Presence) -> None:
    presence.announce()
    assert cut("durableagents presence") == 1
    presence.rest(60)  # returns early: the server hung up
    assert not presence.is_held and not is_anchored()
    while not presence.announce():
        pass
    assert presence.is_held and is_anchored()


def test_its_own_half_open_connection_does_not_keep_it_out(presence: Presence) -> None:
    left_behind = Presence(sign)
    assert left_behind.announce() and presence.announce()
    assert presence.is_held and is_anchored()
    left_behind.leave()


def test_unconfirmed_place_counts_as_lost(presence: Presence, monkeypatch: pytest.MonkeyPatch) -> None:
    presence.announce()
    monkeypatch.setattr("runs.workers.session_lock.HOLD_SECONDS", 0.0)
    assert not presence.is_held


def test_a_process_recorded_as_ended_gets_no_registration(presence: Presence) -> None:
    presence.announce()
    members.bury(ME, cause="suspicion", proof="a test says so")
    assert not presence.announce() and presence.is_buried and not presence.is_held


def test_only_the_first_to_put_a_death_on_record_is_told_that_it_did(presence: Presence) -> None:
    presence.announce()
    assert [members.bury(ME, cause="host_gone"), members.bury(ME, cause="suspicion")] == [True, False]
    assert Process.objects.get(pk=ME).end_cause == "host_gone"


@pytest.mark.parametrize("direct", [False, True])
def test_connections_have_limits(stage: Stage, settings: Any, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if direct:
        plain = psycopg.conninfo.conninfo_to_dict(dsn())
        url = psycopg.conninfo.make_conninfo(
            **{k: v for k, v in plain.items() if k in ("host", "port", "user", "dbname", "password")}
        )
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"database_direct_url": url})
    with psycopg.connect(dsn(name="durableagents worker"), autocommit=True) as link, connection.cursor() as cursor:
        for setting, value in (("idle_in_transaction_session_timeout", "5s"), ("lock_timeout", "2s")):
            assert link.execute(f"SHOW {setting}").fetchone() == (value,)
            cursor.execute(f"SHOW {setting}")
            assert cursor.fetchone() == (value,)
        # Asked for by the client: the test server has it off anyway.
        jit = "SELECT setting, source FROM pg_settings WHERE name = 'jit'"
        assert link.execute(jit).fetchone() == ("off", "client")
        cursor.execute(jit)
        assert cursor.fetchone() == ("off", "client")


# --- stopped clients ---


def owned(stage: Stage, count: int) -> list[Run]:
    runs = [stage.start(agent_of(ends_with(1))) for _ in range(count)]
    worker = stage.hire(is_dead=True)
    assert len(stage.claim(worker, limit=count)) == count
    return runs


def test_a_stopped_workers_open_transaction_holds_nobody_up(stage: Stage) -> None:
    """It is in the middle of a commit on its own run; its connections are closed and the run continues elsewhere."""
    one, other = owned(stage, 2)
    owner = fresh(one).owner
    assert owner is not None
    with psycopg.connect(dsn(name=f"durableagents worker {tag_of(owner)}")) as stopped:
        stopped.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [one.id])
        failover.worker_died(owner, "stopped", Incident.Cause.SUSPICION)
        # A terminated backend releases its locks in its own time; the next watchdog frees the run.
        eventually(lambda: failover.watch() >= 0 and fresh(one).owner is None, what="the run being freed")
        with pytest.raises(psycopg.OperationalError):
            stopped.execute("SELECT 1")
    assert [fresh(run).owner for run in (one, other)] == [None, None]


def test_a_run_that_somebody_else_holds_is_passed_over_and_freed_later(stage: Stage) -> None:
    one, other = owned(stage, 2)
    owner = fresh(one).owner
    assert owner is not None
    with psycopg.connect(dsn(name="a person")) as person:
        person.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [one.id])
        assert failover.worker_died(owner, "reaped") == 1
        assert (fresh(one).owner, fresh(other).owner) == (owner, None)
    assert failover.watch() == 1 and fresh(one).owner is None
    assert {i.proof for i in Incident.objects.filter(run_id__in=[one.id, other.id])} == {"reaped"}


def test_the_watch_takes_a_lost_hosts_runs_once_no_matter_who_watches(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = stage.hire()
    journal = stage.take(run, worker)
    Process.objects.filter(pk=worker.id).update(host="lost", last_heartbeat_at="2020-01-01T00:00Z")
    monkeypatch.setattr("runs.fleet.members.is_only_host", lambda: False)
    failover._watcher.cache_clear()
    called = members.roll_call()
    assert called is not None
    called = replace(called, server_age=3600.0)  # right after a database start nobody's silence counts
    freed = [failover._suspect(at, called) for at in (0.0, 1.0, 2.0, 2.9, 3.0, 3.1, 4.0)]
    assert freed == [0, 0, 0, 0, 1, 0, 0]
    (incident,) = Incident.objects.filter(run_id=run.id)
    assert (incident.cause, incident.is_counted, incident.deaths) == ("host_gone", False, 0)
    with pytest.raises(StaleLease):
        stage.wait(journal.load())


def test_many_who_hear_of_a_death_at_once_free_each_run_once(stage: Stage) -> None:
    runs = owned(stage, 6)
    owner = fresh(runs[0]).owner
    assert owner is not None
    counts = at_once(*[partial(failover.worker_died, owner, "reaped")] * 4)
    failover.watch()
    assert sum(counts) <= 6 and not Run.objects.filter(owner=owner).exists()
    assert Incident.objects.filter(run_id__in=[r.id for r in runs]).count() == 6
