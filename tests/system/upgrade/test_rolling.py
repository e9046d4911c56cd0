"""Workers of the last release and of this one drive one database together, while it is migrated under load."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from ledger import definitions
from ledger.protocol import PROTOCOL
from tests.conftest import CHECKOUT, plain_env
from tests.system.databases import database
from tests.system.upgrade import RELEASE, rolling_agents
from tests.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(400)]
STEPS = 4
_START = """
from ledger.actors import Actor
from runs.services import lifecycle
for n in range({count}):
    work = {{"name": "{name}-%d" % n, "steps": {steps}}}
    print(lifecycle.start("rolling", work, by=Actor(kind="user", name="olivia", role="integrator")).id)
"""


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Create no test database: each test has its own."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the last release, out of this repository's history."""
    folder, commit = tmp_path_factory.mktemp("release"), RELEASE.read_text().strip()
    archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True)
    if archive.returncode:
        message = f"no history with the last release, {commit[:8]}: clone the whole repository to test upgrades from it"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)
    subprocess.run(["tar", "x"], input=archive.stdout, cwd=folder, check=True)
    return folder


class Site:
    """One database, with processes from two checkouts."""

    def __init__(self, urls: Mapping[str, str], folder: Path) -> None:
        modules = folder / "modules"
        modules.mkdir()
        shutil.copy(str(rolling_agents.__file__), modules)
        self.url, self.book, self.folder = urls["owner"], folder / "book", folder
        self.env = plain_env(folder / "data") | {
            "PYTHONPATH": str(modules),
            "DATABASE_URL": urls["runtime"],
            "DATABASE_OWNER_URL": urls["owner"],
            "DURABLEAGENTS_DEMO": "0",
            "DURABLEAGENTS_AGENTS": "rolling_agents",
            "ROLLING_BOOK": str(self.book),
        }
        self.started: dict[str, list[str]] = {}

    def manage(self, checkout: Path, *command: str, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=checkout,
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def migrate(self, checkout: Path) -> None:
        self.manage(checkout, "migrate", "-v", "0", DURABLEAGENTS_DB_ROLE="owner")

    def start(self, checkout: Path, name: str, count: int) -> None:
        code = _START.format(count=count, name=name, steps=STEPS)
        self.started[name] = self.manage(checkout, "shell", "--no-imports", "-c", code).split()

    @contextmanager
    def worker(self, checkout: Path) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / f"{checkout.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "worker", "--processes", "2", "--slots", "8"],
                cwd=checkout,
                env=self.env,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait(60)

    def ask(self, statement: str, *arguments: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as link:
            return link.execute(statement.encode(), arguments).fetchall()

    def serving(self, protocol: int) -> list[int]:
        where = f" AND protocol = {protocol}" if protocol > 1 else ""
        return [
            pid
            for (pid,) in self.ask(
                "SELECT pid FROM runs_process WHERE kind = 'worker' AND ended_at IS NULL AND slots_total > 0" + where
            )
        ]

    def completed(self, *names: str) -> int:
        ids = [UUID(run) for name in names for run in self.started[name]]
        return self.ask("SELECT count(*) FROM runs_run WHERE id = ANY(%s) AND state = 'completed'", ids)[0][0]  # type: ignore[no-any-return]


@pytest.fixture
def site(postgres: Mapping[str, str], django_db_setup: None, django_db_blocker: Any, tmp_path: Path) -> Iterator[Site]:
    with django_db_blocker.unblock(), database(postgres) as urls:
        yield Site(urls, tmp_path)
        for log in tmp_path.glob("*.log"):
            print(log.name, log.read_text()[-3000:])  # noqa: T201


def test_old_and_new_workers_drive_one_database_together(site: Site, old: Path) -> None:
    site.migrate(old)
    with site.worker(old) as before:
        eventually(lambda: len(site.serving(1)) == 2, "old workers")
        site.start(old, "before", 20)
        site.migrate(CHECKOUT)
        old_pids = site.serving(1)
        site.start(old, "between", 10)
        with site.worker(CHECKOUT):
            eventually(lambda: len(site.serving(PROTOCOL)) == 2, "new workers", 60)
            site.start(CHECKOUT, "after", 20)
            site.start(old, "late", 10)
            eventually(lambda: site.completed("late") > 2, "runs of the old release", 60)
            # Calls are in flight: their runs go to any worker, with the keys that they had.
            os.kill(old_pids[0], signal.SIGKILL)
            eventually(lambda: site.completed("after") > 10, "runs of the new release", 60)
            before.send_signal(signal.SIGTERM)
            assert before.wait(60) == 0
            eventually(lambda: site.completed(*site.started) == 60, "all runs", 120)

    keys = defaultdict(set)
    for line in site.book.read_text().splitlines():
        entry, key = line.rsplit(" ", 1)
        keys[entry].add(key)
    assert len(keys) == 60 * (STEPS + 1) and {len(each) for each in keys.values()} == {1}, "one key for each effect"
    drivers = site.ask("""
        SELECT r.protocol, array_agg(DISTINCT p.protocol) FROM ledger_event e
        JOIN runs_run r ON r.id = e.run_id
        JOIN runs_process p ON p.id = (convert_from(e.clear, 'UTF8')::jsonb ->> 'worker')::uuid
        WHERE e.kind = 'RunClaimed' GROUP BY 1 ORDER BY 1""")
    assert drivers == [(PROTOCOL - 1, [PROTOCOL - 1, PROTOCOL]), (PROTOCOL, [PROTOCOL])]
    site.manage(CHECKOUT, "ledger", "verify", "--all")


def test_what_the_last_release_calls_is_still_there(old: Path) -> None:
    """A function or type is taken away one release after nothing calls it any more."""
    called = {
        each.key
        for path in old.rglob("sql/*.sql")
        if "demo" not in path.parts
        for each in definitions.parse(path)
        if each.kind != "TRIGGER"
    }
    assert called and called - definitions.definitions().keys() == set()


def test_events_of_the_last_release_have_no_field_more_unless_the_protocol_is_raised(old: Path) -> None:
    was = (
        int(re.search(r"^PROTOCOL = (\d+)", (old / "ledger" / "protocol.py").read_text(), re.M)[1])
        if (old / "ledger" / "protocol.py").exists()
        else 1
    )
    assert PROTOCOL in (was, was + 1), "one step a release"
    same = (old / "ledger" / "events.py").read_text() == (CHECKOUT / "ledger" / "events.py").read_text()
    assert same or was + 1 == PROTOCOL, "events have changed since the last release: raise ledger/protocol.py"
