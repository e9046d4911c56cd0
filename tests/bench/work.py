"""The workloads, driven in this process as a worker's host does it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
from psycopg_pool import AsyncConnectionPool

from tests.bench.agents import TEXT


@dataclass
class Measured:
    """One run of a workload."""

    steps: int
    seconds: float
    cpu_seconds: float
    latencies: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.steps / self.seconds

    @property
    def cpu_per_step_us(self) -> float:
        """This process's CPU time per step, in microseconds; the server's is not in it."""
        return self.cpu_seconds / self.steps * 1e6


@asynccontextmanager
async def pool(size: int = 8) -> AsyncIterator[Any]:
    from runs.dsn import dsn

    async with AsyncConnectionPool(
        dsn(name="bench"), min_size=size, max_size=size, kwargs={"autocommit": True}
    ) as made:
        yield made


def start(agent: str, count: int, **wanted: Any) -> None:
    """Accept `count` runs."""
    from ledger.actors import Actor
    from runs import services

    for _ in range(count):
        services.start(agent, wanted, by=Actor(kind="system", name="bench"))


async def drive_all(connections: Any, graph_id: str, count: int, latencies: list[float] | None = None) -> None:
    """Claim `count` runs and drive them together until each is let go of."""
    from runs.engine.agents import registry
    from runs.engine.drive import Driver
    from runs.engine.visit import Control
    from runs.runtime import runtime
    from runs.store import PgJournal, Worker, claim

    class Timed(PgJournal):
        async def record(self, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            reply = await super().record(*args, **kwargs)
            if latencies is not None:
                latencies.append(time.perf_counter() - began)
            return reply

    worker, lent = Worker(uuid4(), "bench", os.getpid()), runtime()
    claimed: list[Any] = []
    while len(claimed) < count:
        claimed += await claim(connections, worker, [graph_id], count - len(claimed))
    agent = registry.find(graph_id)
    drivers = [Driver(agent, Timed(connections, worker, c), lent, Control(), trace_id=c.trace_id) for c in claimed]
    await asyncio.gather(*(d.drive() for d in drivers))


async def timed(steps: int, work: Callable[[], Awaitable[None]], latencies: list[float]) -> Measured:
    began, cpu = time.perf_counter(), time.process_time()
    await work()
    return Measured(steps, time.perf_counter() - began, time.process_time() - cpu, latencies)


async def ours(graph_id: str, runs: int, steps: int) -> Measured:
    """W1, W2: `runs` runs of `steps` steps each, in one process."""
    await asyncio.to_thread(start, graph_id, runs, steps=steps)
    latencies: list[float] = []
    async with pool() as connections:
        return await timed(runs * steps, lambda: drive_all(connections, graph_id, runs, latencies), latencies)


_BARE = """
WITH head AS (UPDATE floor_head SET seq = seq + 1, chain = %b WHERE run_id = %s RETURNING seq)
INSERT INTO floor_event (run_id, seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, hash)
SELECT %s, seq, 1, clock_timestamp(), 'ToolRead', '0.1/' || seq, 0, 'result', %b, %b, %b, %b FROM head
"""


def make_floor() -> None:
    """Tables like ours (same columns, same indexes), without triggers, for the bare statement."""
    from durableagents import databases, env

    os.environ["DURABLEAGENTS_DB_ROLE"] = "owner"
    owner = databases.django_databases(env.load())["default"]
    del os.environ["DURABLEAGENTS_DB_ROLE"]
    from django.conf import settings

    role = settings.DATABASES["default"]["USER"]
    with psycopg.connect(
        dbname=owner["NAME"], user=owner["USER"], password=owner["PASSWORD"], host=owner["HOST"], autocommit=True
    ) as link:
        link.execute(
            "CREATE TABLE floor_head (LIKE ledger_head INCLUDING ALL); CREATE TABLE floor_event (LIKE ledger_event INCLUDING ALL)"
        )
        link.execute(f"GRANT SELECT, INSERT, UPDATE ON floor_head, floor_event TO {role}")


async def floor(runs: int, steps: int) -> Measured:
    """The same bytes through one bare statement a step, by as many coroutines."""
    sealed, clear, link = b"\x01" + TEXT.encode()[:700], b"x" * 190, b"h" * 32
    ids = [uuid4() for _ in range(runs)]
    latencies: list[float] = []
    async with pool() as connections:
        async with connections.connection() as one:
            for run_id in ids:
                await one.execute(
                    "INSERT INTO floor_head (run_id, epoch, seq, claimed_seq, deaths, chain, is_pause_requested, is_cancel_requested,"
                    " is_on_hold, steps, tokens_in, tokens_out, usd_micro, tool_calls, model_calls)"
                    " VALUES (%s, 1, 0, 0, 0, %b, false, false, false, 0, 0, 0, 0, 0, 0)",
                    [run_id, link],
                )

        async def one_run(run_id: Any) -> None:
            for _ in range(steps):
                began = time.perf_counter()
                async with connections.connection() as one:
                    await one.execute(_BARE, [link, run_id, run_id, clear, sealed, link, link], prepare=True)
                latencies.append(time.perf_counter() - began)

        async def work() -> None:
            await asyncio.gather(*(one_run(i) for i in ids))

        return await timed(runs * steps, work, latencies)


async def resume(behind: int) -> list[float]:
    """W7: seconds from claim to the first new step, for a run with `behind` steps on record in visits of ten."""
    graph = "bench-pure@1.0.0"
    found: list[float] = []
    async with pool() as connections:
        for _ in range(5):
            await asyncio.to_thread(start, graph, 1, steps=behind, per_visit=10, rest=0.001)
            await drive_all(connections, graph, 1)
            from runs import sweeper

            await asyncio.sleep(0.02)
            await asyncio.to_thread(sweeper.sweep)
            began = time.perf_counter()
            latencies: list[float] = []
            await drive_all(connections, graph, 1, latencies)
            found.append(time.perf_counter() - began)
    return found


async def model_calls(count: int) -> Measured:
    """`count` runs of one model request of two seconds, all in this process."""
    graph = "bench-model@1.0.0"
    await asyncio.to_thread(start, graph, count, steps=1)
    async with pool() as connections:
        return await timed(count, lambda: drive_all(connections, graph, count), [])
