"""The workloads driven in this process, as in a worker's host: W1, W2, W7, waits, storage."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

from psycopg_pool import AsyncConnectionPool

from ledger.actors import Actor
from ledger.models import Event
from runs.connections import dsn
from runs.engine.agents import registry
from runs.engine.driver import Driver
from runs.engine.journal import Batch, Reply
from runs.engine.runtime import Control
from runs.journal.claims import Worker, claim
from runs.journal.postgres import PgJournal
from runs.services import lifecycle
from runs.workers import timers
from runs.workers.engine_runtime import runtime
from runs.workers.run_loop import POOL_SIZE
from tests.system.bench import agents, floor
from tests.system.bench.figures import Figure, latency, middle
from tests.system.bench.place import CHECKOUT, server_cpu_seconds

OUR_TABLES = ("ledger_event", "ledger_ledgerentry", "ledger_head", "runs_run", "runs_wait", "runs_checkpoint")
FLOOR_TABLES = ("floor_event", "floor_head")
SHORT_VISIT, LONG_VISIT = 10, 1_000_000
# Shares of the bare function by kind and number of runs. Below these something has become slower.
LEAST_SHARES = {"pure": {1: 0.40, 8: 0.40, 32: 0.85}, "keyed": {1: 0.18, 8: 0.18, 32: 0.38}}
BENCH = Actor(kind="system", name="bench")
PURE, KEYED, TALK = "bench-pure@1.0.0", "bench-keyed@1.0.0", "bench-talk@1.0.0"
LONG_TALK = "bench-long-talk@1.0.0"


@dataclass(frozen=True)
class Measured:
    steps: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    bytes: int = 0

    @property
    def per_second(self) -> float:
        return self.steps / self.seconds


@asynccontextmanager
async def pool() -> AsyncIterator[Any]:
    async with AsyncConnectionPool(
        dsn(name="bench"), min_size=POOL_SIZE, max_size=POOL_SIZE, kwargs={"autocommit": True}, check=None
    ) as made:
        await made.wait()
        yield made


def start(agent: str, count: int, **wanted: Any) -> list[UUID]:
    return [lifecycle.start(agent, wanted, by=BENCH).id for _ in range(count)]


class Timed(PgJournal):
    """Times from a tool's return to its durable result."""

    seconds: list[float]

    async def commit(self, batch: Batch) -> Reply:
        reply = await super().commit(batch)
        returned = None if batch.is_intent else agents.returned_at.pop(self.run_id, None)
        if returned is not None:
            self.seconds.append(time.perf_counter() - returned)
        return reply


async def drive_all(connections: Any, graph_id: str, count: int, seconds: list[float] | None = None) -> None:
    worker, lent = Worker(uuid4(), "bench", os.getpid()), runtime()
    claimed: list[Any] = []
    while len(claimed) < count:
        claimed += await claim(connections, worker, [graph_id], count - len(claimed))
    agent = registry.find(graph_id)
    drivers = []
    for each in claimed:
        journal = Timed(connections, worker, each)
        journal.seconds = [] if seconds is None else seconds
        drivers.append(Driver(agent, journal, lent, Control(), trace_id=each.trace_id))
    await asyncio.gather(*(driver.drive() for driver in drivers))


async def timed(steps: int, work: Callable[[], Awaitable[None]]) -> Measured:
    server, cpu, began = server_cpu_seconds(), time.process_time(), time.perf_counter()
    await work()
    return Measured(steps, time.perf_counter() - began, time.process_time() - cpu, server_cpu_seconds() - server)


async def driven(
    connections: Any, graph_id: str, runs: int, steps: int, seconds: list[float] | None = None
) -> Measured:
    """Start runs and measure their steps, from before the runs are claimed until they have ended."""
    await asyncio.to_thread(start, graph_id, runs, steps=steps)
    return await timed(runs * steps, lambda: drive_all(connections, graph_id, runs, seconds))


# --- W1, W2 ---------------------------------------------------------------------------------------


async def throughput(connections: Any, runs: int, steps: int, rounds: int) -> list[Figure]:
    """Measure both floors, pure and keyed steps in turn, so that other load affects all; return medians."""
    waits: list[float] = []

    async def ours(graph_id: str) -> Measured:
        return await driven(connections, graph_id, runs, steps, waits if graph_id == PURE else None)

    async def bare(kind: floor.Kind) -> Measured:
        return await timed(runs * steps, lambda: floor.drive(connections, kind, runs, steps))

    async def weighed(work: Awaitable[Measured], tables: Sequence[str]) -> Measured:
        before = await _stored(connections, tables)
        done = await work
        return replace(done, bytes=await _stored(connections, tables) - before)

    found: dict[str, list[Measured]] = {"statement": [], "function": [], "pure": [], "keyed": []}
    for _ in range(rounds):
        found["statement"].append(await weighed(bare("statement"), FLOOR_TABLES))
        found["pure"].append(await weighed(ours(PURE), OUR_TABLES))
        found["function"].append(await weighed(bare("function"), FLOOR_TABLES))
        found["keyed"].append(await weighed(ours(KEYED), OUR_TABLES))
    names = {
        "statement": "floor: bare statement",
        "function": "floor: bare function",
        "pure": "one commit a step (pure)",
        "keyed": "two commits a step (keyed)",
    }
    goals = {kind: f"≥ {least[runs]:.2f} of function" for kind, least in LEAST_SHARES.items()}
    rows = [_throughput(f"W1 {names[k]}, {runs} run(s)", found[k], found, goals.get(k, "")) for k in names]
    if runs == 1:
        rows.append(latency("W2 step end → durable, 1 run", waits, goal="p50 ≤ 0.6, p95 ≤ 0.9"))
    return rows


def _throughput(name: str, ours: list[Measured], all_: dict[str, list[Measured]], goal: str) -> Figure:
    def share(kind: str) -> float:
        return round(middle(a.per_second / b.per_second for a, b in zip(ours, all_[kind], strict=True)), 2)

    steps = sum(m.steps for m in ours)
    return Figure(
        name,
        per_second=round(middle(m.per_second for m in ours), 0),
        of_function=share("function"),
        of_statement=share("statement"),
        cpu_us=round(middle(m.cpu_seconds / m.steps * 1e6 for m in ours), 0),
        server_cpu_us=round(sum(m.server_cpu_seconds for m in ours) / steps * 1e6, 0),
        bytes=round(sum(m.bytes for m in ours) / steps),
        goal=goal,
    )


async def warm_up(connections: Any) -> None:
    """Let every connection have every plan before measuring, as in a worker after its first second."""
    for graph_id in (PURE, KEYED):
        await asyncio.to_thread(start, graph_id, 2 * POOL_SIZE, steps=12)
        await drive_all(connections, graph_id, 2 * POOL_SIZE)
    for kind in ("statement", "function"):
        await floor.drive(connections, kind, POOL_SIZE, 12)
    gc.collect()
    gc.freeze()  # loaded objects, as in a worker since its fork (runs/workers/forkserver.py)


# --- W7 -------------------------------------------------------------------------------------------


async def resume(connections: Any, behind: int, per_visit: int, times: int) -> Figure:
    """Measure from the claim to the next step's begin, with `behind` recorded steps."""
    (run_id,) = await asyncio.to_thread(start, PURE, 1, steps=behind, per_visit=per_visit, rests=times)
    await drive_all(connections, PURE, 1)
    found: list[float] = []
    for _ in range(times):
        await asyncio.sleep(0.005)
        await asyncio.to_thread(timers.sweep)
        began = time.perf_counter()
        await drive_all(connections, PURE, 1)
        found.append(agents.began_at[str(run_id)] - began)
    if per_visit == SHORT_VISIT:
        shape, goal = f"in visits of {per_visit}", "p50 ≤ 10, flat"
    else:
        shape, goal = "in one visit", "p50 ≤ 150" if behind == 5000 else ""
    return latency(f"W7 resume, {behind:,} steps behind {shape}", found, goal=goal)


# --- entering a wait ------------------------------------------------------------------------------


async def slots(connections: Any, times: int) -> Figure:
    """Measure from entering a wait (`ctx.sleep`) to the run's release, which frees its slot."""
    found: list[float] = []
    for _ in range(times):
        (run_id,) = await asyncio.to_thread(start, PURE, 1, steps=1, rests=1)
        await drive_all(connections, PURE, 1)
        found.append(time.perf_counter() - agents.waited_at[str(run_id)])
    return latency("slot released on entering a wait", found, goal="p99 ≤ 20")


# --- storage --------------------------------------------------------------------------------------


async def long_talk(connections: Any, turns: int, least: int) -> list[Figure]:
    """Measure the first and last turns and the storage of a conversation that is compacted when its window is full."""
    texts = _texts("random bytes", 2 * turns)
    agents.pages[:], agents.turn_began_at[:] = texts, []
    raw = sum(len(text.encode()) for text in texts)
    before = await _stored(connections, OUR_TABLES)
    (run_id,) = await asyncio.to_thread(start, LONG_TALK, 1, steps=1)
    await drive_all(connections, LONG_TALK, 1)
    taken = await _stored(connections, OUR_TABLES) - before
    made = await asyncio.to_thread(Event.objects.filter(run_id=run_id, kind="TranscriptCompacted").count)
    took = [after - before for before, after in pairwise(agents.turn_began_at)]
    assert len(took) == turns, f"{len(took)} of {turns} turns"
    name = f"a turn of a conversation of {turns}"
    first, last = took[:least], took[-least:]
    flat = middle(last) / middle(first)
    return [
        latency(f"{name}, the first {least}", first),
        latency(f"{name}, the last {least}", last, note=f"{flat:.2f} × the first ones", goal="≤ 1.2 × the first ones"),
        Figure(
            f"stored for a conversation of {turns} turns, random bytes",
            bytes=taken,
            goal="≤ 1.6 × raw",
            note=f"{taken / raw:.2f} × raw; made short {made} times",
        ),
    ]


async def storage(connections: Any, kind: str, messages: int) -> Figure:
    """Measure the storage of a conversation of 4 KB messages, tables and indexes, relative to its text."""
    agents.pages[:] = _texts(kind, messages)
    raw = sum(len(text.encode()) for text in agents.pages)
    before = await _stored(connections, OUR_TABLES)
    await asyncio.to_thread(start, TALK, 1, steps=1)
    await drive_all(connections, TALK, 1)
    taken = await _stored(connections, OUR_TABLES) - before
    goal = "≤ 1.6 × raw" if kind == "random bytes" else "< 1 × raw"
    return Figure(
        f"stored for {messages} messages of 4 KB, {kind}", bytes=taken, note=f"{taken / raw:.2f} × raw", goal=goal
    )


def _texts(kind: str, messages: int) -> list[str]:
    if kind == "random bytes":
        chance = random.Random(11)
        return ["".join(chance.choices(agents.LETTERS, k=agents.MESSAGE)) for _ in range(messages)]
    prose = "\n".join(path.read_text() for path in sorted(CHECKOUT.glob("**/*.md")) if ".venv" not in path.parts)
    ends = range(0, len(prose) - agents.MESSAGE, agents.MESSAGE)
    whole = [prose[at : at + agents.MESSAGE] for at in ends]
    return [whole[i % len(whole)] for i in range(messages)]


async def _stored(connections: Any, tables: Sequence[str]) -> int:
    query = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relkind = 'r' AND c.relname = ANY(%s)"
    async with connections.connection() as link:
        row = await (await link.execute(query, [list(tables)])).fetchone()
    return int(row[0])
