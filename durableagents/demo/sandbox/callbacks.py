"""The portal's callbacks: every signed form is posted to its URL until it gets a final answer.

All state is in ``w9_requests``; this task only reads what is due, posts it and records the result. A kill at
any point therefore costs at most a repeated callback, never a lost one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
from dataclasses import dataclass

import httpx

from .effects import now
from .faults import FaultBook
from .store import Store, StoreUnavailable
from .systems import portal

log = logging.getLogger(__name__)

AT_ONCE = 32
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 3.0
ANSWER_TIMEOUT_SECONDS = 10.0
# A wall clock set back must not put the next look off forever.
MAX_NAP_SECONDS = 5.0
_FOR_GOOD = (404, 410)

# Signed or released forms go by their next attempt, the others by the delay in force now.
_DUE = """
SELECT seq, CASE WHEN notice IS NOT NULL OR is_released THEN next_attempt_at ELSE requested_at + :delay END AS ready_at
FROM w9_requests WHERE closed_at IS NULL ORDER BY ready_at, seq LIMIT :limit
"""


@dataclass(frozen=True)
class Attempt:
    """Result of one callback: a status, or None and the reason."""

    status: int | None
    result: str

    @property
    def is_final(self) -> bool:
        return self.status is not None and (200 <= self.status < 300 or self.status in _FOR_GOOD)


class Courier:
    """Delivers callbacks for as long as ``run`` is running."""

    def __init__(self, store: Store, faults: FaultBook) -> None:
        self._store = store
        self._faults = faults
        self._woken = asyncio.Event()
        self._under_way: dict[int, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Check again what is due, because of a new request, a press of the button or a changed delay."""
        self._woken.set()

    async def run(self) -> None:
        # trust_env off: a proxy from the environment has no business between two processes on one machine.
        async with httpx.AsyncClient(timeout=ANSWER_TIMEOUT_SECONDS, trust_env=False) as client:
            try:
                while True:
                    self._woken.clear()
                    await self._nap(await self._start_due(client))
            finally:
                for task in self._under_way.values():
                    task.cancel()

    async def _nap(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), timeout=max(0.0, seconds))
        except TimeoutError:
            pass

    async def _start_due(self, client: httpx.AsyncClient) -> float:
        """Start the callbacks that are due; return the seconds until the next check."""
        query = {"delay": self._faults.w9_delay_seconds, "limit": 2 * AT_ONCE}
        try:
            rows = await self._store.read(lambda connection: connection.execute(_DUE, query).fetchall())
        except sqlite3.Error:
            log.exception("can't read what is due")
            return MAX_NAP_SECONDS
        waiting = [row for row in rows if row["seq"] not in self._under_way]
        for row in waiting:
            remaining = row["ready_at"] - time.time()
            if remaining > 0:
                return min(remaining, MAX_NAP_SECONDS)
            if len(self._under_way) == AT_ONCE:
                break  # the first to finish wakes us
            self._start(client, row["seq"])
        return MAX_NAP_SECONDS

    def _start(self, client: httpx.AsyncClient, seq: int) -> None:
        task = asyncio.create_task(self._deliver(client, seq))
        self._under_way[seq] = task
        task.add_done_callback(lambda done: self._finished(seq, done))

    def _finished(self, seq: int, task: asyncio.Task[None]) -> None:
        del self._under_way[seq]
        self.wake()
        if not task.cancelled() and task.exception() is not None:
            log.error("the callback of REQ-%06d broke", seq, exc_info=task.exception())

    async def _deliver(self, client: httpx.AsyncClient, seq: int) -> None:
        try:
            url, body = await self._store.write(lambda connection: portal.signed_notice(connection, seq))
            attempt = await _post(client, url, body)
            await self._store.write(lambda connection: _record(connection, seq, attempt))
        except StoreUnavailable:
            log.exception("the callback of REQ-%06d waits for the store", seq)
            await asyncio.sleep(MAX_RETRY_SECONDS)


async def _post(client: httpx.AsyncClient, url: str, body: bytes) -> Attempt:
    try:
        # Streamed and left unread: the status is all that counts, however long the body.
        async with client.stream("POST", url, content=body, headers={"Content-Type": "application/json"}) as response:
            return Attempt(response.status_code, f"answered {response.status_code}")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return Attempt(None, f"{type(error).__name__}: {error}"[:300])


def _record(connection: sqlite3.Connection, seq: int, attempt: Attempt) -> None:
    attempts = connection.execute("SELECT attempts FROM w9_requests WHERE seq = ?", (seq,)).fetchone()[0]
    pause = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(attempts, 10)) * random.uniform(0.8, 1.0)
    connection.execute(
        "UPDATE w9_requests SET attempts = attempts + 1, next_attempt_at = ?, last_result = ?, closed_at = ? WHERE seq = ?",
        (time.time() + pause, attempt.result, now() if attempt.is_final else None, seq),
    )
