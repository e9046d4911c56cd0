"""Practises a restore: a base backup of the running installation is restored next to it, verified, timed and removed.

The running database is only read. The copy can only be reached over a socket in a private folder, and nothing is sent
from it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from django.conf import settings
from django.core.management import get_commands
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from durableagents.contrib.restore_hold.comparing import lsn_text
from durableagents.contrib.restore_hold.holding import REASON
from durableagents.databases import CONNECTION_FILE
from durableagents.dev.embedded_layout import EmbeddedProblem, account_named, binaries_for, give, layout
from durableagents.env import CHECKOUT, Environment
from durableagents.server.child_processes import Account, die_with_parent, last_line, send, spawn
from runs.connections import dsn

START_SECONDS = 600.0
PORT = 5432
# Reads the newest commit that a worker has acknowledged, and the newest stored event.
_POSITION = """
    SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint, clock_timestamp(),
           (SELECT number FROM restore_hold_mark WHERE id = 1), (SELECT at FROM restore_hold_mark WHERE id = 1),
           (SELECT count(*) FROM runs_run), (SELECT coalesce(sum(seq), 0)::bigint FROM ledger_head)"""
_CAN_REPLICATE = "SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user"
_TABLESPACES = "SELECT count(*) FROM pg_tablespace WHERE spcname NOT IN ('pg_default', 'pg_global')"
_IS_HELD = "SELECT count(*) FROM runs_haltnow WHERE scope = 'all' AND key = %s AND NOT is_staged"
# The check that precedes every intent, tried here for a run that doesn't exist. It fails with DA007 if everything is
# halted.
_INTENT = "SELECT runs_check_halts(gen_random_uuid(), ARRAY[]::ledger_line[])"
HALTED = "DA007"


class DrillImpossible(Exception):
    """The drill can't be performed here. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Position:
    """The newest position, mark and rows of a database."""

    lsn: int
    at: datetime
    mark: int | None
    marked_at: datetime | None
    runs: int
    events: int


@dataclass(slots=True)
class Check:
    """One check of the copy, with its result."""

    name: str
    is_passed: bool
    seconds: float
    output: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """The result of a drill.

    RTO is the time from the start of the restore until the copy is verified. RPO is the data that had been acknowledged
    when the backup was complete, but is not in the copy."""

    began_at: str
    server: str
    backup_seconds: float = 0.0
    backup_bytes: int = 0
    restore_seconds: float = 0.0
    rto_seconds: float = 0.0
    rpo_seconds: float = 0.0
    rpo_bytes: int = 0
    rpo_events: int = 0
    live: dict[str, Any] = field(default_factory=dict)
    copy: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def is_passed(self) -> bool:
        return bool(self.checks) and all(check.is_passed for check in self.checks)

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps({"is_passed": self.is_passed, **asdict(self)}, indent=1, default=str) + "\n"

    def to_markdown(self) -> str:
        """Return the report as Markdown."""
        lines = [
            f"# Restore drill: {'passed' if self.is_passed else 'FAILED'}",
            "",
            f"{self.began_at}, {self.server}",
            "",
            "| figure | value |",
            "|---|---|",
            f"| RTO: from the start of the restore until verified and ready | {self.rto_seconds:.1f} s |",
            f"| of which restoring and starting the server | {self.restore_seconds:.1f} s |",
            f"| RPO: acknowledged when the backup was complete, and not restored | {self.rpo_seconds:.3f} s, "
            f"{self.rpo_events} events, {self.rpo_bytes} bytes of WAL |",
            f"| base backup | {self.backup_seconds:.1f} s, {self.backup_bytes / 1e6:.1f} MB |",
            f"| runs and events in the copy | {self.copy.get('runs')}, {self.copy.get('events')} |",
            "",
            "| check | result | seconds |",
            "|---|---|---|",
            *(f"| {c.name} | {'passed' if c.is_passed else 'FAILED'} | {c.seconds:.1f} |" for c in self.checks),
            "",
        ]
        for check in self.checks:
            lines += [f"`{check.name}`:", "", *(f"    {line}" for line in check.output), ""]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Source:
    """The server to back up: how to connect for the backup, where its programs are, and the account that runs them."""

    conninfo: str
    binaries: Path
    account: Account | None
    folder: Path | None = None


def drill(say: Callable[[str], None], folder: Path | None = None) -> Report:
    """Perform a drill; `folder` holds the copy meanwhile. Raises DrillImpossible, psycopg.Error, OSError."""
    source = _source(settings.DURABLEAGENTS)
    with (
        psycopg.connect(source.conninfo, autocommit=True) as live,
        _workspace(folder or source.folder, source) as place,
    ):
        server = f"PostgreSQL {live.info.parameter_status('server_version')}"
        _refuse_unsuitable(live)
        _refuse_small(live, place)
        report = Report(datetime.now(UTC).isoformat(timespec="seconds"), server)
        say("taking a base backup")
        began = time.monotonic()
        _run(source, "pg_basebackup", "-D", place / "backup", "-X", "stream", "-c", "fast", "-d", source.conninfo)
        report.backup_seconds = time.monotonic() - began
        report.backup_bytes = sum(each.stat().st_size for each in (place / "backup").rglob("*") if each.is_file())
        acknowledged = _position(live)
        say("restoring it")
        began = time.monotonic()
        with _copy_running(place, source) as address, psycopg.connect(address, autocommit=True) as copy:
            report.restore_seconds = time.monotonic() - began
            restored = _position(copy)
            say("verifying it")
            report.checks = list(_checks(place, copy, _runtime_address(address)))
            report.rto_seconds = time.monotonic() - began
        _compare(report, acknowledged, restored)
    return report


def _source(environment: Environment) -> Source:
    if environment.database_url is None:
        try:
            place = layout(environment.data)
            known = json.loads((environment.data / CONNECTION_FILE).read_text())
            binaries = binaries_for(place.account)
        except (OSError, ValueError, EmbeddedProblem) as error:
            raise DrillImpossible(f"the embedded database isn't there: {error}") from None
        admin = known["admin"]
        conninfo = make_conninfo(
            host=known["host"],
            port=known["port"],
            user=admin["user"],
            password=admin["password"],
            dbname=known["dbname"],
        )
        # If root starts it, the server runs under its own account, which may not reach the folder for temporary files.
        return Source(conninfo, binaries, place.account, place.pgdata.parent if place.account else None)
    # Connects as the owner if the environment says so (DURABLEAGENTS_DB_ROLE=owner), otherwise as the runtime role.
    conninfo = dsn(name="durableagents drill")
    with psycopg.connect(conninfo) as link:
        major = link.info.server_version // 10_000
    try:
        account = account_named("nobody") if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    except EmbeddedProblem as error:
        raise DrillImpossible(str(error)) from None
    return Source(conninfo, _programs(major), account)


def _programs(major: int) -> Path:
    """Return the folder with the programs of this PostgreSQL. Raises DrillImpossible.

    On Debian, the programs on PATH are wrappers, and the server is in a separate folder."""
    on_path = [shutil.which(name) for name in ("postgres", "pg_basebackup")]
    folders = [
        *(Path(os.path.realpath(found)).parent for found in on_path if found),
        Path(f"/usr/lib/postgresql/{major}/bin"),
        Path(f"/usr/pgsql-{major}/bin"),
    ]
    versions = []
    for folder in dict.fromkeys(folders):
        if not all((folder / name).exists() for name in ("postgres", "pg_basebackup")):
            continue
        done = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
        version = done.stdout.split()[-1].split(".")[0] if done.stdout.split() else "?"
        # Some builds print more than a number. The programs of such builds are tried anyway.
        if version == str(major) or not version.isdecimal():
            return folder
        versions.append(version)
    there = f"only programs of {', '.join(versions)} were found" if versions else "they are not on PATH"
    raise DrillImpossible(
        f"the server is PostgreSQL {major}, so its postgres and pg_basebackup are needed: {there}. Install its packages"
    )


def _refuse_unsuitable(live: psycopg.Connection[Any]) -> None:
    row = live.execute(_CAN_REPLICATE).fetchone()
    if row is None or not row[0]:
        raise DrillImpossible(
            f"the role {live.info.user!r} may not take a base backup: run the drill with DATABASE_URL set to a role"
            " with the attribute REPLICATION that may also connect to the database (pg_hba.conf: replication)"
        )
    row = live.execute(_TABLESPACES).fetchone()
    if row is not None and row[0]:
        raise DrillImpossible("the server has tablespaces of its own: the drill can't place them next to the originals")


def _refuse_small(live: psycopg.Connection[Any], place: Path) -> None:
    row = live.execute("SELECT pg_database_size(current_database())").fetchone()
    needed, free = 2 * row[0] if row else 0, shutil.disk_usage(place).free
    if free < needed:
        raise DrillImpossible(
            f"two copies need {needed / 1e9:.1f} GB, and {place.parent} has {free / 1e9:.1f} GB: name a --folder with"
            " more room"
        )


@contextmanager
def _workspace(folder: Path | None, source: Source) -> Iterator[Path]:
    """Yield a private folder that belongs to the server's account, and remove it afterwards."""
    try:
        place = Path(tempfile.mkdtemp(prefix="drill-", dir=folder))
        give(place, source.account)
    except OSError as error:
        raise DrillImpossible(f"no folder for the copy: {error}") from None
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(source: Source, program: str, *arguments: str | Path) -> None:
    """Run one of the server's programs.

    The password is passed in the environment, because others can read arguments."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    given = list(arguments)
    if "-d" in given:
        parts = conninfo_to_dict(source.conninfo)
        environment["PGPASSWORD"] = str(parts.pop("password", ""))
        parts.pop("options", None)  # removes the limits that apply to our own connections
        given[given.index("-d") + 1] = make_conninfo(
            **{key: str(value) for key, value in parts.items() if key != "dbname"}
        )
    account = source.account
    done = subprocess.run(
        [source.binaries / program, *given],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=die_with_parent(signal.SIGKILL),
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line or "FATAL" in line] or [done.stderr]
        raise DrillImpossible(f"{program} failed: {lines[0].strip()}")


@contextmanager
def _copy_running(place: Path, source: Source) -> Iterator[str]:
    """Restore the backup, start a private server on it, and yield its connection address."""
    restored, log = place / "restored", place / "log" / "postgres.log"
    try:
        shutil.copytree(place / "backup", restored, symlinks=True)
    except shutil.Error as error:
        raise DrillImpossible(f"the backup can't be copied: {error.args[0][0][2]}") from None
    (restored / "postgresql.auto.conf").unlink(
        missing_ok=True
    )  # the copy could start archiving, or follow another server
    for signal_file in ("recovery.signal", "standby.signal"):
        (restored / signal_file).unlink(missing_ok=True)
    hba, ident, config = (place / f"{name}.conf" for name in ("pg_hba", "pg_ident", "postgresql"))
    ident.touch()
    hba.write_text("local all all trust\n")  # safe, because only this account can enter the folder
    config.write_text(
        f"data_directory = '{restored}'\nhba_file = '{hba}'\nident_file = '{ident}'\n"
        f"listen_addresses = ''\nport = {PORT}\n"
        f"unix_socket_directories = '{place}'\nunix_socket_permissions = 0700\narchive_mode = off\n"
        "max_wal_senders = 0\nwal_level = replica\ntimezone = 'UTC'\nlog_timezone = 'UTC'\n"
    )
    for each in [place, *place.rglob("*")]:
        give(each, source.account)
    restored.chmod(0o700)
    process = spawn(
        [source.binaries / "postgres", "-c", f"config_file={config}"],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        log=log,
        account=source.account,
        death_signal=signal.SIGQUIT,
    )
    parts = conninfo_to_dict(source.conninfo)
    address = make_conninfo(host=str(place), port=PORT, user=parts["user"], dbname=parts["dbname"], connect_timeout=5)
    try:
        _await_start(process, address, log)
        yield address
    finally:
        send(process.pid, signal.SIGQUIT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_start(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if process.poll() is not None:
            raise DrillImpossible(f"the restored server ended: {last_line(log, containing='FATAL') or last_line(log)}")
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise DrillImpossible(f"the restored server doesn't answer: {error}") from None
        time.sleep(0.05)


def _checks(place: Path, copy: psycopg.Connection[Any], address: str) -> Iterator[Check]:
    """Yield the checks, each performed on request: the record, the seals if they are installed, and the hold."""
    environment = {
        **os.environ,
        "DATABASE_URL": address,
        "DATABASE_OWNER_URL": "",
        "DATABASE_DIRECT_URL": "",
        "DURABLEAGENTS_DB_ROLE": "runtime",
        "DURABLEAGENTS_DATA": str(settings.DURABLEAGENTS.data),  # the keys are there
        "DURABLEAGENTS_RESTORE_HEAD": str(place / "none" / "restore.head"),
        "DURABLEAGENTS_RESTORE_HOLD": "1",
    }
    # This check comes first, while the copy is unchanged; the others may write to it.
    yield _command(environment, "every run's record", ["ledger", "verify", "--all"])
    if "seals" in get_commands():
        yield _command(environment, "seals", ["seals", "verify"])
    yield _hold(environment, copy)


def _command(environment: Mapping[str, str], name: str, argv: Sequence[str], passes: Sequence[int] = (0,)) -> Check:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "manage.py", *argv],
        cwd=CHECKOUT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=die_with_parent(signal.SIGKILL),
        check=False,
    )
    lines = [*done.stdout.splitlines()[-20:], *done.stderr.splitlines()[-5:]]
    return Check(name, done.returncode in passes, time.monotonic() - began, lines)


def _hold(environment: Mapping[str, str], copy: psycopg.Connection[Any]) -> Check:
    """Check that a process without a head places the hold on the copy, and that it then refuses intents."""
    check = _command(environment, "the copy holds", ["restore_hold", "check"], passes=(0, 1))
    row = copy.execute(_IS_HELD, [REASON]).fetchone()
    if row == (0,):
        check.is_passed = copy.execute("SELECT 1 FROM runs_run LIMIT 1").fetchone() is None
        check.output.append("no run exists, so there is nothing to hold" if check.is_passed else "nothing is held")
        return check
    try:
        copy.execute(_INTENT)
    except psycopg.Error as refused:
        check.is_passed = check.is_passed and refused.sqlstate == HALTED
        check.output.append(f"an intent is refused: {refused.diag.message_primary}")
    else:
        check.is_passed = False
        check.output.append("an intent was not refused")
    return check


def _runtime_address(address: str) -> str:
    """Return the copy's address as a URL, for commands.

    It uses the role that took the backup, which is harmless, because the copy is deleted afterwards."""
    parts = conninfo_to_dict(address)
    name = f"{quote(str(parts['user']))}@/{quote(str(parts['dbname']))}"
    return f"postgresql://{name}?{'&'.join(f'{key}={quote(str(parts[key]))}' for key in ('host', 'port'))}"


def _position(link: psycopg.Connection[Any]) -> Position:
    row = link.execute(sql.SQL(_POSITION)).fetchone()
    assert row is not None
    return Position(*row)


def _compare(report: Report, live: Position, copy: Position) -> None:
    report.live, report.copy = ({**asdict(each), "lsn": lsn_text(each.lsn)} for each in (live, copy))
    report.rpo_bytes = max(0, live.lsn - copy.lsn)
    report.rpo_events = max(0, live.events - copy.events)
    if live.marked_at is not None and copy.marked_at is not None and report.rpo_events:
        report.rpo_seconds = max(0.0, (live.marked_at - copy.marked_at).total_seconds())
