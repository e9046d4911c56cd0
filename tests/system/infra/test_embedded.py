"""The embedded PostgreSQL: private, durable, and reported up only when it answers."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from durableagents.dev import embedded_layout
from durableagents.dev.embedded import Server
from durableagents.dev.embedded_layout import EmbeddedProblem, layout, own_directory
from durableagents.env import EnvironmentProblem


@contextmanager
def started(data: Path) -> Iterator[Server]:
    server = Server(data)
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        server.stop(at_once=True)
        server.close()
        shutil.rmtree(server.layout.socket_dir, ignore_errors=True)
        if server.layout.account:
            shutil.rmtree(server.layout.pgdata.parent, ignore_errors=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("embedded") / "data") as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with started(tmp_path / "data") as server:
        yield server


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_secret_is_private(running: Server) -> None:
    assert mode(running.layout.pgdata) == 0o700
    assert mode(running.layout.socket_dir) == 0o700
    assert mode(running.layout.data / "database.json") == 0o600
    assert mode(running.layout.data) == 0o700
    socket_path = running.layout.socket_dir / ".s.PGSQL.5432"
    assert socket_path.is_socket() and len(os.fsencode(socket_path)) < 107


def test_only_the_socket_and_only_with_a_password(running: Server) -> None:
    with running.connect("admin") as connection:
        assert connection.execute("show listen_addresses").fetchone() == ("",)
        assert connection.execute("show fsync").fetchone() == ("on",)
        rules = connection.execute("select distinct auth_method from pg_hba_file_rules").fetchall()
        assert rules == [("scram-sha-256",)]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(
            host=str(running.layout.socket_dir),
            user="durableagents",
            password="guess",
            dbname="durableagents",
        )


def test_root_keeps_the_cluster_with_nobody(running: Server) -> None:
    owner = running.layout.pgdata.stat().st_uid
    if os.geteuid() == 0:
        assert owner != 0
        assert running.layout.pgdata == Path("/var/lib/durableagents") / running.layout.instance / "pg"
    else:
        assert owner == os.geteuid()
        assert running.layout.pgdata == running.layout.data / "pg"


def test_three_roles_with_rising_rights(running: Server) -> None:
    with running.connect("admin") as connection:
        rows = connection.execute(
            "select rolname, rolsuper from pg_roles where rolname like 'durableagents%' order by 1"
        ).fetchall()
        owner = connection.execute(
            "select pg_get_userbyid(datdba) from pg_database where datname = 'durableagents'"
        ).fetchone()
    assert rows == [
        ("durableagents", False),
        ("durableagents_admin", True),
        ("durableagents_owner", False),
    ]
    assert owner == ("durableagents_owner",)


def test_a_killed_postmaster_is_started_again_with_its_data(server: Server) -> None:
    with server.connect("owner") as connection:
        connection.execute("create table kept as select 42 as answer")
    held_open = server.connect("runtime")
    assert server.process is not None
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    assert not server.answers()
    server.start()
    held_open.close()
    with server.connect("owner") as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


def test_stale_pid_file_and_other_processes_in_the_cluster_do_not_delay_the_start(server: Server) -> None:
    """A backup names the folder on its command line and works in it, here even under the server's account."""
    server.stop()
    pgdata, account = server.layout.pgdata, server.layout.account
    (pgdata / "postmaster.pid").write_text(f"{os.getpid()}\n{pgdata}\n0\n5432\n/tmp\n\n\n")
    backup = ["/bin/sh", "-c", "sleep 60; :", "-D", str(pgdata)]
    with subprocess.Popen(backup, cwd=pgdata, user=account.uid if account else None) as other:
        try:
            server.start()
            assert server.answers() and other.poll() is None
        finally:
            other.kill()


def test_a_running_server_is_named_by_its_pid(running: Server) -> None:
    assert running.process is not None
    with pytest.raises(EmbeddedProblem, match=rf"another server \(pid {running.process.pid}[,)]"):
        running._wait_for_the_dead(0.0, time.sleep)


def test_passwords_and_instance_survive_a_restart(server: Server) -> None:
    before = (server.layout.data / "database.json").read_bytes()
    server.stop()
    server.close()
    again = Server(server.layout.data)
    try:
        again.prepare()
        again.start()
        assert (server.layout.data / "database.json").read_bytes() == before
        assert again.layout == server.layout
    finally:
        again.stop(at_once=True)
        again.close()


def test_a_second_server_on_the_same_data_is_refused(running: Server) -> None:
    with pytest.raises(EnvironmentProblem, match="another process"):
        Server(running.layout.data).prepare()


def test_an_interrupted_first_start_is_taken_up_again(tmp_path: Path) -> None:
    half = layout(tmp_path / "data").pgdata.with_name("pg.new")
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with started(tmp_path / "data") as server:
        assert server.answers()


def test_a_cluster_of_another_version_is_refused_by_name(server: Server) -> None:
    server.stop()
    server.close()
    (server.layout.pgdata / "PG_VERSION").write_text("14\n")
    again = Server(server.layout.data)
    with pytest.raises(EmbeddedProblem, match="PostgreSQL 14") as caught:
        again.prepare()
    again.close()
    assert "DATABASE_URL" in str(caught.value) and "\n" not in str(caught.value)


def test_a_server_that_cannot_start_says_why_in_one_line(server: Server) -> None:
    server.stop()
    (server.layout.pgdata / "global" / "pg_control").rename(server.layout.pgdata / "global" / "gone")
    with pytest.raises(EmbeddedProblem) as caught:
        server.start()
    assert "DATABASE_URL" in str(caught.value) and "\n" not in str(caught.value)


def test_a_socket_directory_open_to_others_is_refused_not_repaired(tmp_path: Path) -> None:
    open_to_all = tmp_path / "socket"
    open_to_all.mkdir(mode=0o755)
    with pytest.raises(EmbeddedProblem, match="mode 0700"):
        own_directory(open_to_all, None)
    assert mode(open_to_all) == 0o755
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(EmbeddedProblem, match="not a directory"):
        own_directory(link, None)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_layout.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedProblem, match="not installed"):
        embedded_layout.binaries_for(None)
