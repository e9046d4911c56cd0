"""Run the embedded PostgreSQL of `make up`: a thin wrapper around packaged binaries.

Failures raise `EmbeddedProblem`, which gives the reason in one line and mentions DATABASE_URL.
"""

# The package's own `get_server()` adds a system user and opens directory modes up to `/` if run by root, trusts every
# local user, and reports a dead server as up for seconds after a kill. Here the only access is a unix socket in a 0700
# directory, with scram and generated passwords. *Up* means that the process we started answered a connection. The mode
# of existing directories is never changed. Paths and account: embedded_layout.py.

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import psutil
import psycopg
from psycopg import sql

from durableagents.databases import CONNECTION_FILE, DATABASE_NAME, OWNER_ROLE, RUNTIME_ROLE
from durableagents.dev.embedded_layout import (
    PACKAGE,
    SOCKET_PORT,
    EmbeddedProblem,
    binaries_for,
    give,
    layout,
    own_directory,
)
from durableagents.env import EnvironmentProblem, ensure_directory, replace_private
from durableagents.server import child_processes

ADMIN_ROLE = "durableagents_admin"
START_PATIENCE_SECONDS = 30.0

# Tuned for a small machine that web and workers share. Durability is not tuned: the engine relies on fsync and
# synchronous_commit.
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": str(SOCKET_PORT),
    "fsync": "on",
    "synchronous_commit": "on",
    "password_encryption": "scram-sha-256",
    # Key stretching protects guessable passwords. Ours are 256 random bits, and the web process connects for each
    # request.
    "scram_iterations": "1",
    "shared_buffers": "128MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "wal_buffers": "8MB",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "10min",
    "random_page_cost": "1.1",
    "io_method": "sync",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    # The statement of a dead worker ends once the server notices the lost connection.
    "client_connection_check_interval": "1000",
}


class Server:
    """One cluster and its postmaster. Holds a file lock from `prepare` to `close`."""

    def __init__(self, data: Path) -> None:
        self.layout = layout(data)
        self.log = data / "logs" / "postgres.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._binaries: Path | None = None
        self._passwords: dict[str, str] = {}

    # --- before the first start ---------------------------------------------------------------

    def prepare(self) -> None:
        """Take the lock; create the binaries, socket directory, passwords and cluster that are missing."""
        self._take_lock()
        self._binaries = binaries_for(self.layout.account)
        own_directory(self.layout.socket_dir, self.layout.account)
        self._passwords = self._kept_passwords()
        if not (self.layout.pgdata / "PG_VERSION").exists():
            self._initialise()
        self._check_version()

    def _take_lock(self) -> None:
        path = self.layout.data / "pg.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise EnvironmentProblem(f"another process already runs the database in {self.layout.data}") from None
        self._lock = descriptor

    def _kept_passwords(self) -> dict[str, str]:
        """Return the passwords.

        The passwords are generated before the cluster, so that they exist if the first start was interrupted.
        """
        path = self.layout.data / CONNECTION_FILE
        known: dict[str, Any] = {}
        try:
            known = json.loads(path.read_text())
        except FileNotFoundError:
            if (self.layout.pgdata / "PG_VERSION").exists():
                raise EmbeddedProblem(f"{path} with the passwords of {self.layout.pgdata} is missing") from None
        except (OSError, ValueError) as error:
            raise EmbeddedProblem(f"cannot read {path}: {error}") from None
        passwords = {
            role: known.get(role, {}).get("password") or secrets.token_urlsafe(32)
            for role in ("admin", "owner", "runtime")
        }
        names = {"admin": ADMIN_ROLE, "owner": OWNER_ROLE, "runtime": RUNTIME_ROLE}
        content = {
            "host": str(self.layout.socket_dir),
            "port": SOCKET_PORT,
            "dbname": DATABASE_NAME,
            **{role: {"user": names[role], "password": passwords[role]} for role in passwords},
        }
        if content != known:
            replace_private(path, json.dumps(content, indent=1) + "\n")
        return passwords

    def _initialise(self) -> None:
        """Run initdb in a temporary folder, then rename it.

        So nobody mistakes a partial cluster for a complete one.
        """
        target = self.layout.pgdata
        if target.exists() and any(target.iterdir()):
            raise EmbeddedProblem(f"{target} exists and is not a PostgreSQL cluster")
        # The account must be able to traverse /var/lib/durableagents/<id> to reach its own 0700 folder.
        ensure_directory(target.parent, 0o755 if self.layout.account else 0o700)
        draft = target.with_name("pg.new")
        shutil.rmtree(draft, ignore_errors=True)
        password_file = self.layout.socket_dir / ".password"
        password_file.unlink(missing_ok=True)
        try:
            draft.mkdir(mode=0o700)
            give(draft, self.layout.account)
            replace_private(password_file, self._passwords["admin"])
            give(password_file, self.layout.account)
            self._run_initdb(draft, password_file)
            draft.replace(target)
        except OSError as error:
            raise EmbeddedProblem(f"cannot create the cluster in {target}: {error.strerror}") from None
        finally:
            password_file.unlink(missing_ok=True)

    def _run_initdb(self, draft: Path, password_file: Path) -> None:
        account = self.layout.account
        done = subprocess.run(
            [
                self._binary("initdb"),
                f"--pgdata={draft}",
                f"--username={ADMIN_ROLE}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--locale=C",
                "--no-instructions",
            ],
            env=self._environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            preexec_fn=child_processes.die_with_parent(signal.SIGKILL),
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            cause = next((line for line in lines if "error" in line.lower()), "initdb failed")
            raise EmbeddedProblem(cause.removeprefix("initdb: error: "))

    def _check_version(self) -> None:
        path = self.layout.pgdata / "PG_VERSION"
        version = path.read_text().strip()
        ours = metadata.version(PACKAGE).split(".")[0]
        if version != ours:
            raise EmbeddedProblem(f"{path.parent} was created by PostgreSQL {version}, but this is version {ours}")

    def _binary(self, name: str) -> Path:
        assert self._binaries is not None, "prepare() comes first"
        return self._binaries / name

    def _environment(self) -> dict[str, str]:
        """Return a clean environment. The caller's PG* variables and locale must not reach the server."""
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", child_processes.MARKER: self.layout.instance}

    # --- running ------------------------------------------------------------------------------

    def start(self, idle: Callable[[float], None] = time.sleep) -> None:
        """Start the postmaster and return once it answers a connection. Raises EmbeddedProblem.

        `idle` is called between checks, and may raise an exception to give up. A postmaster that dies because backends
        of an earlier one hold its shared memory is restarted until they end.
        """
        deadline = time.monotonic() + START_PATIENCE_SECONDS
        while True:
            self._wait_for_the_dead(deadline, idle)
            # A reboot empties the temporary folder, including the socket's directory.
            own_directory(self.layout.socket_dir, self.layout.account)
            self._spawn()
            if self._comes_up(idle):
                return
            if time.monotonic() > deadline or not self._may_retry():
                self._give_up()
            idle(0.2)

    def _spawn(self) -> None:
        settings = {**SETTINGS, "unix_socket_directories": str(self.layout.socket_dir)}
        argv: list[str | Path] = [self._binary("postgres"), "-D", self.layout.pgdata]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        self.process = child_processes.spawn(
            argv,
            env=self._environment(),
            log=self.log,
            # SIGINT is PostgreSQL's "fast shutdown". If this process is killed, the server disconnects clients and
            # checkpoints the data.
            death_signal=signal.SIGINT,
            account=self.layout.account,
        )

    def _comes_up(self, idle: Callable[[float], None]) -> bool:
        assert self.process is not None
        while self.process.poll() is None:
            if self.answers():
                self._provision()
                return True
            idle(0.05)
        return False

    def answers(self) -> bool:
        """Return whether the process we started accepts a connection and a statement."""
        if self.process is None or _postmaster_pid(self.layout.pgdata) != self.process.pid:
            return False
        try:
            with self.connect("admin", dbname="postgres") as connection:
                connection.execute("select 1")
            return True
        except psycopg.OperationalError:
            return False

    def connect(self, role: str = "admin", dbname: str = DATABASE_NAME) -> psycopg.Connection[Any]:
        """Connect as `admin` (the superuser), `owner` or `runtime`; autocommit."""
        names = {"admin": ADMIN_ROLE, "owner": OWNER_ROLE, "runtime": RUNTIME_ROLE}
        return psycopg.connect(
            host=str(self.layout.socket_dir),
            port=SOCKET_PORT,
            user=names[role],
            password=self._passwords[role],
            dbname=dbname,
            connect_timeout=2,
            autocommit=True,
        )

    def url(self, role: str = "runtime", dbname: str = DATABASE_NAME) -> str:
        """Return the connection as a DATABASE_URL."""
        names = {"admin": ADMIN_ROLE, "owner": OWNER_ROLE, "runtime": RUNTIME_ROLE}
        return (
            f"postgresql://{names[role]}:{self._passwords[role]}@/{dbname}"
            f"?host={self.layout.socket_dir}&port={SOCKET_PORT}"
        )

    def _provision(self) -> None:
        """Create or repair roles and database.

        This runs at every start: it is fast, and repairs an incomplete first start.
        """
        with self.connect("admin", dbname="postgres") as connection:
            for name, role in ((OWNER_ROLE, "owner"), (RUNTIME_ROLE, "runtime")):
                exists = connection.execute("select 1 from pg_roles where rolname = %s", [name])
                verb = sql.SQL("alter" if exists.fetchone() else "create")
                connection.execute(
                    sql.SQL("{} role {} login nosuperuser nocreatedb nocreaterole password {}").format(
                        verb, sql.Identifier(name), sql.Literal(self._passwords[role])
                    )
                )
            for setting, value in (
                ("idle_in_transaction_session_timeout", "5s"),
                ("lock_timeout", "2s"),
            ):
                connection.execute(
                    sql.SQL("alter role {} set {} = {}").format(
                        sql.Identifier(RUNTIME_ROLE), sql.Identifier(setting), sql.Literal(value)
                    )
                )
            rows = connection.execute("select 1 from pg_database where datname = %s", [DATABASE_NAME])
            if not rows.fetchone():
                connection.execute(
                    sql.SQL("create database {} owner {}").format(
                        sql.Identifier(DATABASE_NAME), sql.Identifier(OWNER_ROLE)
                    )
                )
            connection.execute(
                sql.SQL("revoke temporary, create on database {} from public").format(sql.Identifier(DATABASE_NAME))
            )

    # --- trouble ------------------------------------------------------------------------------

    def _wait_for_the_dead(self, deadline: float, idle: Callable[[float], None]) -> None:
        """Wait for an earlier postmaster and its backends to end, then remove its stale pid file.

        A pid that now belongs to another process (as after a container restart) would prevent every start. If no server
        runs in the cluster and we hold the lock, the file is stale. (The server itself checks for shared memory of
        backends that we can't see.)
        """
        account = self.layout.account
        while pids := _servers_in(self.layout.pgdata, account.uid if account else os.geteuid()):
            if time.monotonic() > deadline:
                text = ", ".join(map(str, pids))
                raise EmbeddedProblem(f"another server (pid {text}) is still running in {self.layout.pgdata}")
            idle(0.1)
        (self.layout.pgdata / "postmaster.pid").unlink(missing_ok=True)

    def _may_retry(self) -> bool:
        message = child_processes.last_line(self.log, containing="FATAL")
        return "pre-existing shared memory" in message or "lock file" in message or "in use" in message

    def _give_up(self) -> NoReturn:
        message = child_processes.last_line(self.log, containing="FATAL") or child_processes.last_line(self.log)
        cause = message.split("FATAL:", 1)[-1].strip() or "the server ended without a message"
        raise EmbeddedProblem(f"{cause}; see {self.log}")

    # --- the end ------------------------------------------------------------------------------

    def stop(
        self,
        *,
        patience_seconds: float = 5.0,
        at_once: bool = False,
        idle: Callable[[float], None] = time.sleep,
    ) -> None:
        """Shut down: fast, then immediate, then SIGKILL; return when the postmaster has ended."""
        steps = [(signal.SIGINT, patience_seconds), (signal.SIGQUIT, 1.0), (signal.SIGKILL, 5.0)]
        for signum, patience in steps[1:] if at_once else steps:
            if self.process is None:
                return
            child_processes.send(self.process.pid, signum)
            deadline = time.monotonic() + patience
            while self.process.poll() is None and time.monotonic() < deadline:
                idle(0.02)
            if self.process.poll() is not None:
                self.process = None

    def close(self) -> None:
        """Release the lock, and remove the socket's directory if it is empty."""
        if self._lock is not None:
            with suppress(OSError):
                self.layout.socket_dir.rmdir()
            os.close(self._lock)
            self._lock = None


def _postmaster_pid(pgdata: Path) -> int | None:
    try:
        return int((pgdata / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _servers_in(pgdata: Path, uid: int) -> list[int]:
    """Return the pids of the account's PostgreSQL processes on `pgdata`.

    Other command lines may contain the folder's name (that of a backup does), so only processes named `postgres` of
    this account count. A postmaster names the folder after `-D`. A backend rewrites its command line and has the folder
    as its working directory, which root without CAP_SYS_PTRACE may not read.
    """
    pids = []
    for process in psutil.process_iter():
        try:
            if process.uids().real != uid or process.status() == psutil.STATUS_ZOMBIE or not _is_postgres(process):
                continue
            if process.cmdline()[1:3] == ["-D", str(pgdata)] or process.cwd() == str(pgdata):
                pids.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return pids


def _is_postgres(process: psutil.Process) -> bool:
    try:
        return Path(process.exe()).name == "postgres"
    except psutil.AccessDenied:
        return process.name() == "postgres"
