"""A death is reported once, by the first of its observers."""

from __future__ import annotations

import logging
import subprocess

import pytest

from ledger.clock import database_now
from runs import log_messages
from runs.fleet import members, procfs
from runs.models import Process
from runs.workers.death_reports import Clerk
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def dead_worker() -> Process:
    child = subprocess.Popen(["sleep", "60"])
    identity = procfs.identify(child.pid)
    assert identity is not None
    child.kill()
    child.wait()
    at = database_now()
    return Process.objects.create(
        id=members.incarnation_id(identity),
        kind="worker",
        host=identity.host,
        boot=identity.boot,
        pid=identity.pid,
        born_ticks=identity.born_ticks,
        started_at=at,
        last_heartbeat_at=at,
    )


def test_a_death_that_the_rows_told_of_first_is_not_reported_again_by_the_supervisor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dead = dead_worker()
    clerk = Clerk(list)

    def reported() -> list[object]:
        return [record.args for record in caplog.records if record.msg == log_messages.DEATH_REPORTED]

    with caplog.at_level(logging.DEBUG, logger="runs.workers.supervisor"):
        clerk.start()
        eventually(reported, what="the report of what the rows told")
        clerk.report(dead.id, "the supervisor saw it")
        clerk.close(30.0)
    dead.refresh_from_db()
    assert (dead.ended_at is not None, len(reported())) == (True, 1)
