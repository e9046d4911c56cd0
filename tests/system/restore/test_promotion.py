"""A standby that is promoted: with all that was acknowledged it goes on, without the last of it it holds."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from durableagents.contrib.restore_hold import heads, holding, marking
from durableagents.contrib.restore_hold.comparing import Found, Hold
from durableagents.dev.embedded_layout import binaries_for, layout
from durableagents.server.child_processes import spawn
from runs.connections import dsn
from tests.conftest import database_urls
from tests.contrib.restore_hold.conftest import (
    _agents_of_this_test,
    _django_db_marker,
    on_host,
    outside,
    stage,
    tools,
)
from tests.contrib.restore_hold.test_holding import commit, number, some_run
from tests.system.databases import django_on
from tests.waiting import eventually

__all__ = ["_agents_of_this_test", "_django_db_marker", "on_host", "outside", "some_run", "stage", "tools"]
pytestmark = pytest.mark.django_db


@dataclass
class Standby:
    url: str
    process: subprocess.Popen[bytes]

    def ask(self, statement: str) -> Any:
        with psycopg.connect(self.url, autocommit=True) as link:
            row = link.execute(statement.encode()).fetchone()
        return None if row is None else row[0]


@contextmanager
def standby(primary: str) -> Iterator[Standby]:
    """Run a standby of the test server."""
    account = layout(Path(os.environ["DURABLEAGENTS_TEST_DATA"])).account
    place, known = Path(tempfile.mkdtemp(prefix="durableagents-standby-")), conninfo_to_dict(primary)
    try:
        if account:
            os.chown(place, account.uid, account.gid)
        without_database = make_conninfo(**{key: str(known[key]) for key in ("host", "port", "user", "password")})
        subprocess.run(
            [binaries_for(account) / "pg_basebackup", "-D", place / "pg", "-R", "-c", "fast", "-d", without_database],
            cwd="/",
            user=account.uid if account else None,
            check=True,
        )
        settings = {"listen_addresses": "", "unix_socket_directories": place, "port": 5432, "max_connections": 400}
        argv: list[str | Path] = [binaries_for(account) / "postgres", "-D", place / "pg"]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        process = spawn(argv, env={"PATH": "/usr/bin"}, log=place / "log" / "pg.log", account=account)
        try:
            found = Standby(make_conninfo(primary, host=str(place)), process)
            eventually(lambda: _answers(found), "the standby answers")
            yield found
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(20)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _answers(found: Standby) -> bool:
    try:
        return found.ask("SELECT pg_is_in_recovery()") is True
    except psycopg.OperationalError:
        return False


def _check_connection() -> None:
    """Check a new connection as a worker's pool does."""

    async def check() -> None:
        async with await psycopg.AsyncConnection.connect(dsn(name="test"), autocommit=True) as link:
            await marking.check_connection(link)

    asyncio.run(check())


def test_a_promoted_standby_holds_only_if_it_lacks_what_was_acknowledged(
    some_run: Callable[[], Any], on_host: Callable[[str], Path], postgres: Mapping[str, str]
) -> None:
    on_host("one")
    some_run()
    holding.settle()
    commit()
    primary = database_urls(postgres)["admin"]
    with standby(primary) as other:
        commit()
        mark = "SELECT number FROM restore_hold_mark"
        eventually(lambda: other.ask(mark) == number(), "the standby has the last mark")
        before = heads.read()
        assert before
        url = f"postgresql://{_as_url(other.url)}"
        connection.close()
        with django_on(url):
            with pytest.raises(OperationalError, match="standby in recovery"):
                holding.settle()
            with pytest.raises(psycopg.OperationalError, match="standby in recovery"):
                _check_connection()
            other.ask("SELECT pg_promote()")
            _check_connection()
            assert holding.settle() == Found() and holding.find_hold() is None
            for _ in range(3):
                commit()
            after = heads.read()
            assert after and (before.timeline, after.timeline) == (1, 2) and before.line != after.line
        with heads.locked():
            heads.write(before)
        commit()  # the former primary acknowledged this, and the promoted server went on without it, and further
        with django_on(url):
            _check_connection()
            verdict = holding.settle()
            assert isinstance(verdict, Hold) and verdict.reason == "behind" and holding.find_hold() is not None


def _as_url(conninfo: str) -> str:
    parts = conninfo_to_dict(conninfo)
    return f"{parts['user']}:{parts['password']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
