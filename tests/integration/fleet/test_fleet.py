from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from runs.fleet import members, procfs
from runs.models import Process

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def row(pid: int) -> Process:
    return Process.objects.get(pid=pid)


def test_announcing_twice_is_one_row_with_the_latest_slots() -> None:
    assert members.beat(kind="worker", pid=os.getpid(), slots_used=1, slots_total=5)
    first = row(os.getpid())
    assert members.beat(kind="worker", pid=os.getpid(), slots_used=3, slots_total=5)
    second = row(os.getpid())
    identity = members.identify(os.getpid())
    assert identity is not None
    assert second.id == first.id == members.incarnation_id(identity)
    assert second.started_at == first.started_at
    assert second.last_heartbeat_at > first.last_heartbeat_at
    assert [found.slots_used for found in members.alive()] == [3]


def test_a_killed_process_is_gone_at_once_even_as_a_zombie(child: subprocess.Popen[bytes]) -> None:
    members.beat(kind="web", pid=child.pid)
    assert not members.is_gone(row(child.pid))
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead and not reaped
    assert members.is_gone(row(child.pid))
    assert members.alive() == []
    assert [gone.pid for gone in members.gone_here()] == [child.pid]


def test_the_same_pid_with_another_start_time_is_another_process() -> None:
    identity = members.identify(os.getpid())
    assert identity is not None
    earlier = replace(identity, born_ticks=identity.born_ticks - 1)
    assert members.incarnation_id(earlier) != members.incarnation_id(identity)
    members.beat_all([members.Sign("worker", earlier)])
    assert members.is_gone(row(os.getpid()))


def test_silence_of_another_host_or_boot_is_no_proof(settings: Any) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"database_url": "postgresql://others.reach.it/too"}
    )
    identity = members.identify(os.getpid())
    assert identity is not None
    elsewhere = replace(identity, host="elsewhere", pid=1, born_ticks=1)
    rebooted = replace(identity, boot="another/1", pid=2, born_ticks=1)
    members.beat_all([members.Sign("worker", elsewhere), members.Sign("worker", rebooted)])
    assert not any(members.is_gone(process) for process in Process.objects.all())
    assert members.gone_here() == []


def test_a_process_of_an_earlier_boot_is_gone_where_nobody_else_can_reach_the_database() -> None:
    identity = members.identify(os.getpid())
    assert identity is not None
    rebooted = replace(identity, boot="another/1", pid=2, born_ticks=1)
    members.beat_all([members.Sign("worker", identity), members.Sign("worker", rebooted)])

    assert [gone.pid for gone in members.gone_here()] == [2]
    assert [members.is_gone(process) for process in Process.objects.order_by("pid")] == [True, False]


def test_a_buried_process_stays_buried() -> None:
    members.beat(kind="worker", pid=os.getpid())
    assert members.bury(row(os.getpid()))
    members.beat(kind="worker", pid=os.getpid())
    assert row(os.getpid()).ended_at is not None
    assert members.alive() == []


def test_forgetting_ends_the_row_of_that_kind_and_pid() -> None:
    members.beat(kind="web", pid=os.getpid())
    members.forget("sandbox", os.getpid())
    assert row(os.getpid()).ended_at is None
    members.forget("web", os.getpid())
    assert row(os.getpid()).ended_at is not None


def test_old_heartbeats_are_not_listed() -> None:
    from django.db import connection

    members.beat(kind="web", pid=os.getpid())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_process SET last_heartbeat_at = clock_timestamp() - interval '1 minute'")
    assert members.alive() == []


def test_a_lost_connection_costs_no_beat() -> None:
    from django.db import connection

    members.beat(kind="web", pid=os.getpid())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            "current_database() AND application_name = 'durableagents fleet'"
        )
    assert members.beat(kind="web", pid=os.getpid())


def test_a_process_that_does_not_exist_is_not_announced(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert not members.beat(kind="web", pid=child.pid)
    assert procfs.stat(child.pid) is None
    assert not Process.objects.exists()
