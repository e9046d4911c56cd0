"""A real restore: an effect that the backup doesn't know of is not made again before an operator says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from durableagents.databases import CONNECTION_FILE
from durableagents.dev.embedded_layout import binaries_for, layout
from tests.conftest import CHECKOUT
from tests.system.infra.installation import Installation
from tests.system.restore.agents import charges
from tests.waiting import eventually

PAUSE_SECONDS = 8


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Restored]:
    with Restored(tmp_path / "data") as found:
        yield found


class Restored(Installation):
    """An installation whose database can be backed up and put back."""

    def environment(self, **extra: str) -> dict[str, str]:
        return super().environment(DURABLEAGENTS_AGENTS="tests.system.restore.agents", **extra)

    def manage(self, *args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "manage.py", *args]
        env = self.environment(**extra)
        return subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=400, check=False)

    def start(self, name: str, pause_seconds: float, *tags: str) -> str:
        body = {"agent": "restore-charge", "input": {"name": name, "pause_seconds": pause_seconds}, "tags": [*tags]}
        key = self.demo()["api_keys"]["integrator"]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1/runs",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Idempotency-Key": name},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(json.load(answer)["id"])

    def charges(self) -> list[str]:
        file = charges(self.data)
        return file.read_text().split() if file.exists() else []

    def head(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "restore.head").read_text())["head"]
        return found

    def state(self, run: str) -> str:
        known = json.loads((self.data / CONNECTION_FILE).read_text())
        address = make_conninfo(host=known["host"], port=known["port"], dbname=known["dbname"], **known["runtime"])
        with psycopg.connect(address) as link:
            row = link.execute("SELECT state FROM runs_run WHERE id = %s", [run]).fetchone()
        return "" if row is None else str(row[0])

    def as_own_server(self) -> dict[str, str]:
        """Return the settings by which the database is a server of one's own, with its programs on PATH."""
        known = json.loads((self.data / CONNECTION_FILE).read_text())
        admin, where = known["admin"], f"host={quote(known['host'])}&port={known['port']}"
        url = f"postgresql://{admin['user']}:{quote(admin['password'])}@/{known['dbname']}?{where}"
        return {
            "DATABASE_URL": url,
            "PATH": f"{binaries_for(layout(self.data).account)}{os.pathsep}{os.environ['PATH']}",
        }

    def back_up(self, to: Path) -> None:
        known, account = json.loads((self.data / CONNECTION_FILE).read_text()), layout(self.data).account
        to.mkdir(mode=0o700)
        if account:
            os.chown(to, account.uid, account.gid)
        subprocess.run(
            [binaries_for(account) / "pg_basebackup", "-D", to, "-X", "stream", "-c", "fast"],
            env={"PGHOST": known["host"], "PGPORT": "5432", "PGUSER": known["admin"]["user"]}
            | {"PGPASSWORD": known["admin"]["password"]},
            cwd="/",
            user=account.uid if account else None,
            check=True,
        )

    def put_back(self, backup: Path) -> None:
        cluster = layout(self.data).pgdata
        shutil.rmtree(cluster)
        shutil.move(backup, cluster)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's account can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="durableagents-restore-") as found:
        Path(found).chmod(0o755)
        yield Path(found)


@pytest.mark.timeout(900)  # two drills, each of which verifies a whole copy
def test_a_restored_database_sends_nothing_until_an_operator_lifts_the_hold(
    installation: Restored, folder: Path
) -> None:
    installation.options = ["--hold"]
    up = installation.up_and_ready()
    up.options = []
    eventually(lambda: (up.data / "restore.head").exists(), "a head file")
    first, second = up.start("first", PAUSE_SECONDS, "eu"), up.start("second", PAUSE_SECONDS)
    status = up.manage("restore_hold", "status")  # takes longer than workers need for a ready run
    assert status.returncode == 1 and "requested" in status.stdout and status.stdout.count("next\t") == 2
    assert up.state(first) == up.state(second) == "pending"
    lifted = up.manage("restore_hold", "lift", "--all", "--reason", "The installation may begin.")
    assert lifted.returncode == 0, lifted.stderr
    due = time.monotonic() + PAUSE_SECONDS
    eventually(lambda: up.state(first) == up.state(second) == "waiting_event", "both wait for their timer")
    up.back_up(folder / "pg")
    at_backup = up.head()["number"]

    # A drill next to it holds its copy, and changes nothing here.
    drilled = up.manage("drill", "restore", "--report", str(folder / "drill.md"), "--folder", str(folder))
    assert drilled.returncode == 0, drilled.stdout + drilled.stderr
    report = json.loads((folder / "drill.json").read_text())
    assert report["is_passed"] and {check["name"] for check in report["checks"]} >= {"the copy holds"}
    assert report["rto_seconds"] > 0 and report["copy"]["runs"] == 2 and "RTO" in (folder / "drill.md").read_text()
    drilled = up.manage("drill", "restore", "--folder", str(folder), **up.as_own_server())
    assert drilled.returncode == 0 and "Restore drill: passed" in drilled.stdout, drilled.stdout + drilled.stderr
    assert sorted(each.name for each in folder.iterdir()) == ["drill.json", "drill.md", "pg"]

    eventually(lambda: sorted(up.charges()) == ["first", "second"], "both effects")
    eventually(lambda: up.state(first) == up.state(second) == "completed", "both completed")
    eventually(lambda: up.head()["number"] > at_backup, "a newer head")
    assert up.stop()[0] == 0
    up.put_back(folder / "pg")

    up.up_and_ready()
    assert time.monotonic() > due
    status = up.manage("restore_hold", "status")
    assert status.returncode == 1 and "behind" in status.stdout, status.stdout + status.stderr
    lines = [line for line in status.stdout.splitlines() if line.startswith("next\t")]
    assert {line.split("\t")[1] for line in lines} == {first, second}
    assert all("charge_customer (unsafe_on_replay)" in line or "\tpause\t" in line for line in lines)
    time.sleep(4)  # far longer than workers need for what is due
    assert sorted(up.charges()) == ["first", "second"]

    lifted = up.manage("restore_hold", "lift", "--tag", "eu", "--reason", "The bank has no charge of the first.")
    assert lifted.returncode == 0, lifted.stderr
    eventually(lambda: up.state(first) == "completed", "the first goes on")
    time.sleep(1)
    assert sorted(up.charges()) == ["first", "first", "second"]
    lifted = up.manage("restore_hold", "lift", "--all", "--reason", "The rest may go on as well.")
    assert lifted.returncode == 0, lifted.stderr
    eventually(lambda: up.state(second) == "completed", "the second goes on")
    eventually(lambda: up.head()["waits_for"] is None, "the host follows the restored database")
    verified = up.manage("ledger", "verify", "--all")
    assert verified.returncode == 0, verified.stdout[-2000:]
