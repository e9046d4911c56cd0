"""The durable store: one SQLite file, one writer thread, group commit.

Every change goes through one thread, so "database is locked" never occurs, and jobs that wait while the disk syncs
share the next sync. A job's future is settled only after the COMMIT it is part of has returned, with
``synchronous=FULL`` in WAL mode: the write-ahead log is fsynced by then. Each job has its own savepoint, so a refusal
rolls back that job and not its neighbours.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

# Bounds how long the first job of a batch waits for its neighbours; far above what two cores can queue during one sync.
LARGEST_BATCH = 256
_NEWER = (
    ("requests", "sender", "INTEGER"),
    ("requests", "sent_at", "TEXT"),
    ("faults", "refuse_rate", "REAL NOT NULL DEFAULT 0"),
)
SCHEMA = Path(__file__).with_name("schema.sql")


class StoreUnavailable(Exception):
    """The store couldn't commit (disk full, file gone). Nothing of the job remains."""


@dataclass(frozen=True)
class _Job:
    work: Work[Any]
    future: asyncio.Future[Any]


@dataclass(frozen=True)
class _Settled:
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class Store:
    """Call from the event loop's thread only; ``open`` before use, ``close`` at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._readers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-reader")
        self._reading: sqlite3.Connection | None = None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create what is missing and start the writer. Raises sqlite3.Error or OSError if the file can't be used."""
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = _connect(self._path)
        connection.executescript(SCHEMA.read_text())
        _add_what_is_newer(connection)
        self._reading = _connect(self._path)
        self._reading.execute("PRAGMA query_only = ON")
        self._writer = threading.Thread(target=self._write_until_closed, args=(connection, loop), name="sandbox-writer")
        self._writer.daemon = True
        self._writer.start()

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` in a transaction and return its result once it is on disk. Raises the exceptions of ``work``."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def read(self, work: Work[T]) -> T:
        """Run ``work`` on the committed data, concurrently with the writer and without delaying it."""
        assert self._reading is not None
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, self._reading)

    def close(self) -> None:
        """Commit what is queued and stop."""
        self._jobs.put(None)
        if self._writer is not None:
            self._writer.join(timeout=1)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _write_until_closed(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        is_closing = False
        while not is_closing:
            batch, is_closing = self._next_batch()
            settled = _commit_together(connection, batch)
            try:
                loop.call_soon_threadsafe(_settle, settled)
            except RuntimeError:
                return  # the loop is gone: nobody is left to be told, and what was committed stays
        connection.close()

    def _next_batch(self) -> tuple[list[_Job], bool]:
        first = self._jobs.get()
        batch: list[_Job] = []
        while first is not None:
            batch.append(first)
            if len(batch) == LARGEST_BATCH:
                return batch, False
            try:
                first = self._jobs.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True


def _add_what_is_newer(connection: sqlite3.Connection) -> None:
    """Add the columns that are missing from a file made by an older sandbox."""
    for table, name, kind in _NEWER:
        if name not in {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")


def _connect(path: Path) -> sqlite3.Connection:
    # check_same_thread off: made in the main thread, used by exactly one other.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _commit_together(connection: sqlite3.Connection, batch: list[_Job]) -> list[_Settled]:
    if not batch:
        return []
    try:
        connection.execute("BEGIN IMMEDIATE")
        settled = [_run(connection, job) for job in batch]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return [_Settled(job.future, error=StoreUnavailable(str(error))) for job in batch]
    return settled


def _run(connection: sqlite3.Connection, job: _Job) -> _Settled:
    connection.execute("SAVEPOINT job")
    try:
        settled = _Settled(job.future, result=job.work(connection))
    except sqlite3.OperationalError:
        raise  # the disk's trouble, not the job's: SQLite may have rolled back the whole transaction already
    except Exception as error:
        connection.execute("ROLLBACK TO job")
        settled = _Settled(job.future, error=error)
    connection.execute("RELEASE job")
    return settled


def _settle(settled: list[_Settled]) -> None:
    for one in settled:
        if one.future.done():
            continue  # its request was cancelled at shutdown; the commit stands
        if one.error is not None:
            one.future.set_exception(one.error)
        else:
            one.future.set_result(one.result)
