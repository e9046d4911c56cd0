"""A real PgBouncer in transaction mode between an installation and its database."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
import pytest

from durableagents import databases
from tests.conftest import free_ports
from tests.system.databases import database, migrate
from tests.waiting import eventually

# It refuses to run as root; Debian puts it where only root's PATH looks.
BINARY = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
LIMITS = {"lock_timeout": "2s", "idle_in_transaction_session_timeout": "5s", "statement_timeout": "15s"}


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Create no test database: these tests have their own."""


@pytest.fixture(scope="session")
def pgbouncer() -> str:
    """Return the path of pgbouncer. Without one the test is skipped, or fails under CI=true."""
    if BINARY:
        return BINARY
    message = "no pgbouncer: the stories behind a pooler need one (Debian: apt-get install pgbouncer)"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def behind(
    pgbouncer: str, postgres: Mapping[str, str], django_db_setup: None, django_db_blocker: Any
) -> Iterator[dict[str, str]]:
    """Return addresses: `runtime` past the pooler, `owner`, and `pooled` through it."""
    with django_db_blocker.unblock(), database(postgres) as urls:
        migrate(urls["owner"])
        limit(urls, LIMITS)
        with Pooler(pgbouncer, urls["runtime"]) as pooler:
            yield {**urls, "pooled": pooler.url}


def limit(urls: Mapping[str, str], limits: Mapping[str, str]) -> None:
    """Set the limits of a role reached through a pooler, as an operator does."""
    name = urlsplit(urls["admin"]).path[1:]
    with psycopg.connect(urls["admin"], autocommit=True) as admin:
        for setting, value in limits.items():
            statement = f"ALTER ROLE {databases.RUNTIME_ROLE} IN DATABASE \"{name}\" SET {setting} = '{value}'"
            admin.execute(statement.encode())


class Pooler:
    """One PgBouncer. Server connections rotate, so that nothing works by luck."""

    def __init__(self, binary: str, target: str, *, more: str = "") -> None:
        self._binary, self._more, address = binary, more, urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        self._server = f"host={query['host']} port={query.get('port', '5432')}"
        self._user, self._password = unquote(address.username or ""), unquote(address.password or "")
        (self._port,) = free_ports(1)
        self.url = f"postgresql://{address.username}:{address.password}@127.0.0.1:{self._port}{address.path}"

    def __enter__(self) -> Pooler:
        self.folder = Path(tempfile.mkdtemp(prefix="pooler-"))
        (self.folder / "users.txt").write_text(f'"{self._user}" "{self._password}"\n')
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = {self._server}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir "
            f"=\nauth_type = scram-sha-256\n"
            f"auth_file = {self.folder}/users.txt\npool_mode = transaction\ndefault_pool_size = "
            f"8\nserver_round_robin = 1\n"
            f"max_client_conn = 200\nlog_connections = 0\nlog_disconnections = 0\n{self._more}\n"
        )
        argv = [self._binary, str(self.folder / "pgbouncer.ini")]
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            argv[1:1] = ["-u", "nobody"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        eventually(self._listens, "PgBouncer", 30)
        return self

    def _listens(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as door:
            return door.connect_ex(("127.0.0.1", self._port)) == 0

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        shutil.rmtree(self.folder)
