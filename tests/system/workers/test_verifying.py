"""A worker carries out a verification asked for in the console, in a process of its own, also after that was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from django.db.models.functions import Now

from ledger.models import VerificationJob
from ledger.verification import jobs
from runs.services import lifecycle
from tests.conftest import database_urls
from tests.integration.runs import clockwork
from tests.integration.runs.stage import Stage
from tests.system.workers.conftest import Start
from tests.waiting import eventually
from tests.world import OLGA, SHOP

pytestmark = pytest.mark.django_db


def verifying() -> list[int]:
    """Return the processes that carry out a verification."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if words[1:6] == [b"-m", b"django", b"ledger", b"verify", b"--job"]:
            found.append(int(each.parent.name))
    return found


def test_worker_verifies_and_continues_after_a_kill(
    stage: Stage,
    worker: Start,
    postgres: Mapping[str, str],
    manage: Callable[..., CompletedProcess[str]],
) -> None:
    for _ in range(120):
        lifecycle.start(clockwork.agent.graph_id, {"sleep_seconds": 7200}, by=SHOP)
    ask = jobs.ask(OLGA, only_changed=False)
    worker()
    eventually(lambda: verifying(), what="the process", seconds=60)
    for pid in verifying():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not verifying(), what="its end")
    VerificationJob.objects.filter(finished_at=None).update(alive_at=Now() - jobs.SILENCE - timedelta(seconds=1))

    def finished() -> Any:
        return VerificationJob.objects.filter(pk=ask.pk, finished_at__isnull=False).first()

    eventually(finished, what="the verification", seconds=60)
    job = finished()
    assert (job.runs, job.problems, job.findings) == (120, 0, [])

    env = {
        "DATABASE_URL": database_urls(postgres)["runtime"],
        "DURABLEAGENTS_DATA": os.environ["DURABLEAGENTS_TEST_DATA"],
    }
    beside = manage("ledger", "verify", "--all", "--processes", "2", env=env)
    assert beside.returncode == 0 and "120 run(s)" in beside.stdout, beside
