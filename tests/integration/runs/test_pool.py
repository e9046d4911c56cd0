"""A worker's connections while the database is briefly away."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from runs.journal.libpq import Pool, as_sent, one_row, transaction
from runs.workers import run_loop
from tests.integration.runs.wire import LossyWire

QUEUE_SECONDS = 60.0  # far longer than any statement in the queue should wait
SOON_SECONDS = QUEUE_SECONDS / 2
MAX_CONNECTIONS = 8


def test_waiters_connect_after_outage(postgres: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("p")
    (folder / "way").mkdir()
    wire = LossyWire(folder / "way", make_conninfo(postgres["runtime"], application_name="durableagents away"))

    async def told(pool: Pool) -> float:
        async with pool.connection() as link:
            await link.execute("SELECT 1")
        return time.monotonic()

    async def play() -> float:
        given_up = asyncio.Semaphore(0)

        async def give_up(pool: Pool) -> None:
            given_up.release()
            await run_loop.RECONNECTS["reconnect_failed"](pool)

        pool: Pool = AsyncConnectionPool(
            wire.dsn,
            min_size=2,
            max_size=MAX_CONNECTIONS,
            open=False,
            timeout=QUEUE_SECONDS,
            kwargs={"autocommit": True},
            **run_loop.RECONNECTS | {"reconnect_failed": give_up},
        )
        await pool.open(wait=True)
        # Nobody queries while it is away: all queries are already queued.
        held = [await pool.getconn() for _ in range(MAX_CONNECTIONS)]
        (folder / "way").rename(folder / "gone")
        for link in held:
            await link.close()
            await pool.putconn(link)
        waiting = [asyncio.create_task(told(pool)) for _ in range(MAX_CONNECTIONS)]
        for _ in range(MAX_CONNECTIONS):  # each lost connection reconnects by itself
            await given_up.acquire()
        assert not any(one.done() for one in waiting)
        back = time.monotonic()
        (folder / "gone").rename(folder / "way")
        try:
            return max(await asyncio.gather(*waiting)) - back
        finally:
            await pool.close(timeout=1.0)

    try:
        assert asyncio.run(play()) < SOON_SECONDS
    finally:
        wire.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_transaction_that_is_undone_spoils_no_statement_that_comes_after_it(postgres: Mapping[str, str]) -> None:
    """psycopg then drops all prepared statements on the server, steps included."""

    async def play() -> list[bytes | None]:
        async with await psycopg.AsyncConnection.connect(postgres["runtime"], autocommit=True) as link:
            step = as_sent("SELECT %s::bigint", [7])
            await one_row(link, step)
            for _ in range(10):  # by then psycopg has prepared it too
                await link.execute("SELECT %s::text", ["seven"])
            with pytest.raises(psycopg.errors.DivisionByZero):
                async with transaction(link):
                    await link.execute("SELECT 1 / 0")
            return await one_row(link, step)

    assert asyncio.run(play()) == [(7).to_bytes(8)]
