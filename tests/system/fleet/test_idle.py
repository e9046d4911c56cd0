"""The cost of an idle installation."""

from __future__ import annotations

import time

import psutil
import psycopg
import pytest

from runs.connections import dsn
from runs.models import Sweep
from tests.system.fleet.conftest import Crew
from tests.waiting import eventually

# Long, because it waits most of a minute for counts.
pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]
# Transactions of a supervisor and two workers, without web and sandbox. The server's log shows 690 a minute; its
# counts, which include its own, 780 to 850. Autovacuum and late reports of start-up work come in lumps of hundreds, so
# the least of three windows counts.
MAX_A_MINUTE = 900
# Supervisor, nursery, two sentinels and two workers. Measured: 203 MB.
PROCESSES, MAX_MEGABYTES = 6, 260
WINDOWS, WINDOW_SECONDS = 3, 15.0
# An idle connection reports its counts after ten seconds: otherwise start-up work would be counted.
SETTLED_SECONDS = 12.0
_DONE = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def crew(real_crew: Crew) -> Crew:
    return real_crew


def test_an_idle_installation_asks_little_and_shares_its_memory(crew: Crew) -> None:
    """Statements by the server's count; memory with shared pages counted once."""
    crew.start(processes=2, wait=False)
    eventually(lambda: crew.log().count("drives up to 7 runs") == 2, what="two workers", seconds=60)
    eventually(lambda: Sweep.objects.exists(), what="the first sweep", seconds=60)
    with psycopg.connect(dsn(), autocommit=True) as link:
        time.sleep(SETTLED_SECONDS)
        rates = [_transactions_a_minute(link) for _ in range(WINDOWS)]
    sizes = [psutil.Process(pid).memory_full_info().pss >> 20 for pid in (crew.pid, *crew.descendants())]
    assert len(sizes) == PROCESSES and sum(sizes) < MAX_MEGABYTES, sizes
    assert 30 < min(rates) < MAX_A_MINUTE, rates


def _transactions_a_minute(link: psycopg.Connection) -> float:
    before, began = _count(link), time.monotonic()
    time.sleep(WINDOW_SECONDS)
    return (_count(link) - before) / (time.monotonic() - began) * 60


def _count(link: psycopg.Connection) -> int:
    row = link.execute(_DONE).fetchone()
    assert row is not None
    return int(row[0])
