"""The database server dies and returns: no process of the fleet ends, the log stays short, work continues."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from runs.services import wakeups
from tests.conftest import CHECKOUT, plain_env
from tests.kept import clean
from tests.system.fleet.conftest import Crew, hired
from tests.waiting import eventually


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from durableagents.dev.embedded import Server

    data = tmp_path_factory.mktemp("server") / "data"
    data.mkdir(mode=0o700)
    server = Server(data)
    server.prepare()
    server.start()
    try:
        env = plain_env(data) | {"DATABASE_URL": server.url("runtime"), "DATABASE_OWNER_URL": server.url("owner")}
        migrate = [sys.executable, str(CHECKOUT / "manage.py"), "migrate", "--verbosity=0", "--skip-checks"]
        subprocess.run(migrate, env=env | {"DURABLEAGENTS_DB_ROLE": "owner"}, check=True)
        yield server
    finally:
        server.stop(at_once=True)
        server.close()
        shutil.rmtree(server.layout.socket_dir, ignore_errors=True)
        if server.layout.account:
            shutil.rmtree(server.layout.pgdata.parent, ignore_errors=True)


@pytest.fixture
def server(migrated: Any) -> Any:
    """The server, running and empty; a test may leave it stopped."""
    if not migrated.answers():
        migrated.start()
    clean(migrated.url("admin"))
    return migrated


@pytest.fixture
def crew(server: Any, tmp_path: Path) -> Iterator[Crew]:
    env = plain_env(server.layout.data) | {
        "PYTHONPATH": str(CHECKOUT),
        "DATABASE_URL": server.url("runtime"),
        "DURABLEAGENTS_RESTORE_HEAD": str(tmp_path / "restore.head"),
    }
    with hired(env, tmp_path) as crew:
        yield crew


def ask(server: Any, statement: str, *args: object) -> list[tuple[Any, ...]]:
    with server.connect("admin") as link:
        return link.execute(statement, args).fetchall()


def fresh_kinds(server: Any, after: Any) -> set[str]:
    return {kind for (kind,) in ask(server, "SELECT kind FROM runs_process WHERE last_heartbeat_at > %s", after)}


def enqueue(server: Any) -> None:
    with psycopg.connect(server.url("runtime")) as link:
        link.execute(wakeups.ENQUEUE_SQL, [str(uuid4())])


@pytest.mark.parametrize("how", ["back at once", "back when all have noticed"])
def test_the_fleet_lives_through_a_killed_database(server: Any, crew: Crew, how: str) -> None:
    crew.start(processes=2)
    trees = [crew.tree(worker) for worker in crew.serving()]
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    if how == "back when all have noticed":
        # Two pushers, two workers, the supervisor.
        eventually(lambda: crew.log().count("the database is away") >= 5, what="everybody noticing")
    server.start()
    (began,) = ask(server, "SELECT clock_timestamp()")[0]
    eventually(
        lambda: fresh_kinds(server, began) == {"supervisor", "cluster", "worker"}, what="everybody announcing again"
    )
    heard = len(crew.notes("ring"))
    enqueue(server)
    eventually(lambda: len(crew.notes("ring")) > heard, what="the ring")
    assert [crew.tree(worker) for worker in crew.serving()] == trees
    assert crew.log().count("the database is away") <= 10
    assert "Traceback" not in crew.log()
    assert crew.stop() == 0


def test_a_death_while_the_database_is_away_is_reported_when_it_is_back(server: Any, crew: Crew) -> None:
    crew.start(processes=1, STANDIN_BEHAVIOUR="database needed")
    (worker,) = crew.serving()
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: "can't be reported yet" in crew.log(), what="the attempt to report")
    assert crew.notes("died") == []
    server.start()
    eventually(lambda: [died[0] for died in crew.notes("died")] == [crew.incarnation(worker)], what="the report")
    # A worker that starts while the database is away waits for it, and then serves.
    eventually(lambda: crew.serving() and crew.serving() != [worker], what="a new worker")


def test_without_a_database_the_supervisor_waits_and_stops_when_told(server: Any, crew: Crew) -> None:
    server.stop(at_once=True)
    crew.start(processes=1, wait=False)
    eventually(lambda: crew.log().count("the database is away") >= 2, what="everybody noticing")
    assert crew.stop() == 0
    assert crew.log().count("the database is away") <= 4


START = """
import sys, django
django.setup()
from ledger.actors import Actor
from runs.services import lifecycle
for _ in range(int(sys.argv[1])):
    print(lifecycle.start("fleet-counter", {"steps": 12}, by=Actor("key", "shop", role="integrator")).id)
"""


def test_a_server_that_is_stopped_at_once_again_and_again_loses_nothing_that_was_acknowledged(
    server: Any, tmp_path: Path
) -> None:
    """`pg_ctl stop -m immediate`, repeatedly, in the middle of steps whose effects nobody deduplicates."""
    env = plain_env(server.layout.data) | {
        "PYTHONPATH": str(CHECKOUT),
        "DATABASE_URL": server.url("runtime"),
        "DURABLEAGENTS_AGENTS": "tests.system.fleet.agents",
        "COUNTER_FILE": str(tmp_path / "effects"),
        "DURABLEAGENTS_RESTORE_HEAD": str(tmp_path / "restore.head"),  # the server's tables were emptied before
    }
    crew = Crew(env, tmp_path, settings="durableagents.settings")

    def start(count: int) -> list[str]:
        command = [sys.executable, "-c", START, str(count)]
        settings = env | {"DJANGO_SETTINGS_MODULE": "durableagents.settings"}
        return subprocess.run(
            command, env=settings, cwd=CHECKOUT, check=True, capture_output=True, text=True
        ).stdout.split()

    try:
        crew.start(processes=2, wait=False)
        runs = start(6)
        for round_ in range(1, 5):
            done = round_ * 6
            eventually(lambda done=done: _lines(tmp_path / "effects") >= done, what="some steps", seconds=60)  # type: ignore[misc]
            server.stop(at_once=True)
            server.start()
        runs += start(2)
        states = "SELECT state, count(*) FROM runs_run GROUP BY state"
        eventually(lambda: ask(server, states) == [("completed", 8)], what="the end of every run", seconds=90)
        assert sorted(str(row[0]) for row in ask(server, "SELECT id FROM runs_run")) == sorted(runs)
        effects = (tmp_path / "effects").read_text().split()
        assert len(effects) == len(set(effects)) == 8 * 12, "each effect once"
        troubled = (
            "SELECT kind FROM ledger_event WHERE kind IN ('WorkerLost', 'ToolOutcomeUnknown', "
            "'RunFailed', 'OperatorNeeded')"
        )
        assert ask(server, troubled) == [], "no worker was declared dead and no person asked"
    finally:
        crew.clean_up()
        print(crew.log())  # noqa: T201  pytest shows it when the test failed


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
