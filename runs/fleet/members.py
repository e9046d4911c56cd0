"""The living processes of the installation, with one row per incarnation.
Each thread refreshes rows on its own connection, but not during an outage. Proof of death is local (a changed
start time or a zombie); `runs/workers/failure_detector.py` evaluates silence."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection
from django.db.models import DateTimeField, Func
from django.db.models.expressions import Combinable

from ledger.protocol import PROTOCOL
from runs import features, log_messages
from runs.connections import dsn, tag_of
from runs.engine.threads import BusyTool
from runs.fleet import procfs
from runs.fleet.procfs import Identity, identify, incarnation_id, is_running
from runs.models import Process

SIGNAL = signal.SIGUSR1
DONE = "done"
GIVEN_UP = "given up: "


class Report:
    """The supervisor's end of the report pipe. It never blocks."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def write(self, line: str) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, f"{' '.join(line.split())[:400]}\n".encode())
        except (BrokenPipeError, BlockingIOError):
            pass  # nobody reads the pipe any more; reports are logged too


__all__ = [
    "FRESH_SECONDS",
    "KINDS",
    "Sign",
    "alive",
    "beat",
    "beat_all",
    "beat_anchored",
    "bury",
    "forget",
    "gone_here",
    "hang_up",
    "hush",
    "identify",
    "incarnation_id",
    "is_gone",
    "is_here",
    "last_sweep_age_seconds",
    "roll_call",
]

KINDS = ("supervisor", "cluster", "worker", "web", "sandbox", "postgres")
# Workers send heartbeats every second, other processes every five seconds. A crash of the database may lose a few
# heartbeats.
FRESH_SECONDS = 15.0

# A process that was declared dead stays dead: a late heartbeat can't revive it.
_BEAT = f"""
    INSERT INTO runs_process (id, kind, host, boot, pid, born_ticks, started_at, last_heartbeat_at,
                              slots_used, slots_total, protocol, end_cause, end_proof)
    SELECT id, kind, host, boot, pid, born_ticks, clock_timestamp() - make_interval(secs => age), clock_timestamp(),
           used, total, {PROTOCOL}, '', ''
    FROM unnest(%(id)s::uuid[], %(kind)s::text[], %(host)s::text[], %(boot)s::text[], %(pid)s::int[],
                %(born_ticks)s::bigint[], %(age)s::float[], %(slots_used)s::int[], %(slots_total)s::int[])
        AS sign(id, kind, host, boot, pid, born_ticks, age, used, total)
    ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, last_heartbeat_at = clock_timestamp(),
        slots_used = excluded.slots_used, slots_total = excluded.slots_total
    WHERE runs_process.ended_at IS NULL"""
# A worker's own heartbeat, on the connection that holds its lock. If no row is returned, the worker was declared dead.
_BEAT_ANCHORED = f"""
    INSERT INTO runs_process (id, kind, host, boot, pid, born_ticks, started_at, last_heartbeat_at, anchored_at,
                              slots_used, slots_total, tools_busy, protocol, end_cause, end_proof)
    VALUES (%(id)s, %(kind)s, %(host)s, %(boot)s, %(pid)s, %(born_ticks)s,
            clock_timestamp() - make_interval(secs => %(age)s), clock_timestamp(), clock_timestamp(),
            %(slots_used)s, %(slots_total)s, %(tools_busy)s::jsonb, {PROTOCOL}, '', '')
    ON CONFLICT (id) DO UPDATE SET last_heartbeat_at = clock_timestamp(), anchored_at = clock_timestamp(),
        slots_used = excluded.slots_used, slots_total = excluded.slots_total, tools_busy = excluded.tools_busy,
        protocol = excluded.protocol
    WHERE runs_process.ended_at IS NULL
    RETURNING drain_asked_at IS NOT NULL"""
_BURY = """
    UPDATE runs_process SET ended_at = clock_timestamp(), end_cause = %(cause)s, end_proof = %(proof)s
    WHERE id = %(id)s AND ended_at IS NULL"""
# An incarnation's session lock, as a bigint key; `{id}` is the incarnation's id in SQL.
LOCK_KEY = "hashtextextended({id}::text, 7231002)"
# All processes recorded as alive and, for workers, whether their lock is held.
_ROLL = f"""
    SELECT p.id, p.kind, p.host, p.boot, p.pid, p.born_ticks, p.last_heartbeat_at,
           extract(epoch FROM clock_timestamp() - p.last_heartbeat_at)::float,
           extract(epoch FROM clock_timestamp() - max(p.last_heartbeat_at) OVER (PARTITION BY p.host, p.boot))::float,
           p.anchored_at IS NULL OR EXISTS (
               SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND (l.classid::bigint << 32 | l.objid::bigint) = {LOCK_KEY.format(id="p.id")}),
           extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float,
           (SELECT extract(epoch FROM clock_timestamp() - at)::float FROM runs_sweep WHERE id = 1),
           (SELECT extract(epoch FROM deadline - clock_timestamp())::float FROM runs_wait
            WHERE resolved_at IS NULL AND NOT is_overdue ORDER BY deadline LIMIT 1),
           {{is_due}}
    FROM runs_process p WHERE p.ended_at IS NULL"""
# A stopped client may be in an open transaction, whose locks end with its backends.
_HUSH = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database()
      AND application_name LIKE 'durableagents %%' AND application_name LIKE '%% ' || %(tag)s
      AND pid <> pg_backend_pid()"""
_FORGET = """
    UPDATE runs_process SET ended_at = clock_timestamp()
    WHERE kind = %(kind)s AND host = %(host)s AND boot = %(boot)s AND pid = %(pid)s AND ended_at IS NULL"""
_HERE = """
    SELECT id, kind, pid, born_ticks, host = %(host)s AND boot = %(boot)s FROM runs_process
    WHERE ended_at IS NULL AND (host = %(host)s AND boot = %(boot)s OR %(is_only_host)s)"""

T = TypeVar("T")
log = logging.getLogger("runs.fleet.members")


@dataclass(frozen=True, slots=True)
class Sign:
    """The heartbeat of one process."""

    kind: str
    identity: Identity
    slots_used: int = 0
    slots_total: int = 0
    busy_tools: Sequence[BusyTool] = ()


@dataclass(frozen=True, slots=True)
class Gone:
    """A process of this host and boot that is recorded as alive and provably gone."""

    id: UUID
    kind: str
    pid: int
    born_ticks: int


def beat(*, kind: str, pid: int, slots_used: int = 0, slots_total: int = 0) -> bool:
    """Store a heartbeat of the process with this pid on this host.
    Return False if there is no such process, or during an outage."""
    identity = identify(pid)
    return identity is not None and beat_all([Sign(kind, identity, slots_used, slots_total)])


def beat_all(signs: Iterable[Sign]) -> bool:
    """Store heartbeats of several processes of this host. False during an outage."""
    rows = [_row(sign) for sign in signs]
    return _on_link(lambda link: _write_beats(link, rows)) is not None


def forget(kind: str, pid: int) -> bool:
    """Record the regular end of a process of this host. False during an outage."""
    values = {"kind": kind, "pid": pid, "host": procfs.host(), "boot": procfs.boot()}
    return _on_link(lambda link: link.execute(_FORGET, values)) is not None


def bury(process: Process | Gone | UUID, *, cause: str = "", proof: str = "") -> bool:
    """Record an incarnation's end and its cause.
    Return True for the first caller to do so; otherwise, or during an outage, False."""
    which = {"id": process if isinstance(process, UUID) else process.id, "cause": cause, "proof": proof}
    return bool(_on_link(lambda link: link.execute(_BURY, which).rowcount))


def hush(incarnation: UUID) -> int:
    """Close all connections of a worker that must no longer write. Returns how many."""
    row = _on_link(lambda link: link.execute(_HUSH, {"tag": tag_of(incarnation)}).fetchone())
    return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class Heard:
    """The reply to a worker's heartbeat: whether it was declared dead, and whether it should drain."""

    is_buried: bool
    is_drain_asked: bool = False


def beat_anchored(link: psycopg.Connection, sign: Sign) -> Heard:
    """Store a heartbeat on the connection that holds the worker's lock."""
    row = link.execute(_BEAT_ANCHORED, _row(sign)).fetchone()
    return Heard(is_buried=True) if row is None else Heard(is_buried=False, is_drain_asked=bool(row[0]))


@dataclass(frozen=True, slots=True)
class Member:
    """A process recorded as alive.
    `silence` and `host_silence` are in seconds on the database's clock. `is_anchored` means that it holds its session
    lock, or needs none."""

    id: UUID
    kind: str
    host: str
    boot: str
    pid: int
    born_ticks: int
    last_heartbeat_at: datetime
    silence: float
    host_silence: float
    is_anchored: bool

    @property
    def is_here(self) -> bool:
        return (self.host, self.boot) == (procfs.host(), procfs.boot())

    @property
    def is_gone(self) -> bool:
        """Return whether the process is provably dead. Only its own host can tell."""
        return not is_running(self.pid, self.born_ticks) if self.is_here else is_only_host()


@dataclass(frozen=True, slots=True)
class Roll:
    """The living processes, with the server's age, the last sweep's age and the time to the next deadline, in seconds;
    and whether a prompt sweep of a feature is due."""

    members: list[Member]
    server_age: float
    sweep_age: float | None
    due_in: float | None
    is_sweep_due: bool


def roll_call() -> Roll | None:
    """Return the fleet's living processes, using one statement; None during an outage."""
    due = [f"({sweep.is_due})" for sweep in features.parts_of_all(lambda each: each.prompt_sweeps)]
    statement = _ROLL.format(is_due=" OR ".join(due) or "false")
    rows = _on_link(lambda link: link.execute(statement).fetchall())
    if rows is None:
        return None
    values = rows[0][-4:] if rows else (0.0, None, 0.0, True)
    return Roll([Member(*row[:-4]) for row in rows], *values)


def last_sweep_age_seconds() -> float | None:
    """Return the age of the last sweep in seconds; None if there was none. Uses Django's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp() - at) FROM runs_sweep WHERE id = 1")
        row = cursor.fetchone()
    return None if row is None else float(row[0])


def is_only_host() -> bool:
    """Return whether only this boot of this host can reach the database.
    If so, processes of earlier boots have ended."""
    return not settings.DURABLEAGENTS.database_url


def is_here(process: Process) -> bool:
    return process.host == procfs.host() and process.boot == procfs.boot()


def is_gone(process: Process) -> bool:
    """Return whether a process is provably dead; always False on other hosts."""
    if is_here(process):
        return not is_running(process.pid, process.born_ticks)
    return is_only_host()


def gone_here() -> list[Gone]:
    """Return processes recorded as alive that are provably gone. Empty during an outage."""
    here = {"host": procfs.host(), "boot": procfs.boot(), "is_only_host": is_only_host()}
    rows = _on_link(lambda link: link.execute(_HERE, here).fetchall()) or []
    return [Gone(*row) for *row, is_here in rows if not is_here or not is_running(row[2], row[3])]


def alive() -> list[Process]:
    """Return the living processes by kind, host and pid, through Django's connection."""
    fresh = Process.objects.filter(ended_at=None, last_heartbeat_at__gt=_database_now() - _seconds(FRESH_SECONDS))
    return sorted((process for process in fresh if not is_gone(process)), key=_place)


def _place(process: Process) -> tuple[int, str, int]:
    kind = KINDS.index(process.kind) if process.kind in KINDS else len(KINDS)
    return kind, process.host, process.pid


def _database_now() -> Combinable:
    return Func(function="clock_timestamp", output_field=DateTimeField())


def _seconds(seconds: float) -> Combinable:
    return Func(seconds, template="make_interval(secs => %(expressions)s)")


def _row(sign: Sign) -> dict[str, Any]:
    identity = sign.identity
    return {
        "id": incarnation_id(identity),
        "kind": sign.kind,
        "host": identity.host,
        "boot": identity.boot,
        "pid": identity.pid,
        "born_ticks": identity.born_ticks,
        "age": identity.age_seconds,
        "slots_used": sign.slots_used,
        "slots_total": sign.slots_total,
        "tools_busy": json.dumps(list(sign.busy_tools)),
    }


def _write_beats(link: psycopg.Connection, rows: list[dict[str, Any]]) -> bool:
    """Store all heartbeats in one statement, sorted, so that concurrent writers can't deadlock."""
    rows = sorted({row["id"]: row for row in rows}.values(), key=lambda row: str(row["id"]))
    if rows:
        link.execute(_BEAT, {name: [row[name] for row in rows] for name in rows[0]})
    return True


def hang_up() -> None:
    """Close this thread's connection; the next use opens a new one."""
    link, _links.link = _links.link, None
    if link is not None:
        link.close()


class _Links(threading.local):
    """One connection per thread, opened on demand, and reopened after it broke."""

    link: psycopg.Connection | None = None


_links = _Links()
_outage = log_messages.Outage(log, "fleet")


def _on_link(act: Callable[[psycopg.Connection], T]) -> T | None:
    """Return `act`'s result; None during an outage. A connection that broke while idle is replaced first."""
    was_open = _links.link is not None
    try:
        try:
            answer = _once(act)
        except psycopg.OperationalError:
            if not was_open:
                raise
            answer = _once(act)
    except psycopg.Error as error:
        _outage.began(error)
        return None
    _outage.over()
    return answer


def _once(act: Callable[[psycopg.Connection], T]) -> T:
    if _links.link is None:
        _links.link = psycopg.connect(dsn(name="durableagents fleet"), autocommit=True)
    try:
        return act(_links.link)
    except psycopg.Error:
        hang_up()
        raise
