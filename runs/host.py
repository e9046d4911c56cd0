"""The host: one event loop in a worker process that drives many runs at once, since agents mostly wait.

    ring ─┐                  (heard on a connection of its own, and by way of the queue)
    tick ─┼─► claim the best ready runs until the slots are full ─► one task per run: load, visit, act (runs/engine/drive.py)
    slot ─┘        └─ once a second: take back own runs that a lost answer left undriven, look for stop requests
    housekeeping (a thread of its own): sweep what is due, watch for dead workers

The run table is the queue; a ring only makes the host look sooner. Nothing here decides who may write: the lease in the database does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

import psycopg

# Half a second that no event loop should stand still for: loaded with this module, which a cluster's spare imports before any fork.
# Importing it lazily from several threads at once also trips over its own circular imports.
import pydantic_ai.direct
import pydantic_ai.models.function  # noqa: F401
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ledger import events as e
from ledger.errors import StaleLease
from runs import failpoints, recovery, sweeper
from runs.dsn import Patience, dsn
from runs.engine.agents import registry
from runs.engine.canonical import printable
from runs.engine.drive import Driver
from runs.engine.outcomes import LateAnswer
from runs.engine.visit import Control, Runtime
from runs.incidents import note_cut, standing
from runs.late import hand_in, lost_worker
from runs.live import AsyncBell, heard
from runs.processes import host as this_host
from runs.queue import CHANNEL, ENQUEUE_SQL, NOTIFY_SQL
from runs.runtime import runtime
from runs.statements import Pool
from runs.store import Claim, PgJournal, Worker, claim, is_transient, reclaim
from runs.versions import Loaded, Watch

T = TypeVar("T")
log = logging.getLogger("runs.host")

TICK_SECONDS = 1.0
POOL_SIZE = 8  # connections per worker process: more are slower on few cores
HAND_OVER_SECONDS = 1.0
AFTER_DEADLINE_TICK_SECONDS = 0.05
RETIRE_SECONDS = 3600.0
WATCH_SECONDS = 5.0
MOST_FAILURES = 3
TOOL_THREADS = 64  # blocking tool functions at once
_LOST = "SELECT id FROM runs_run WHERE owner = %s"
_ASKED = "SELECT run_id, is_cancel_requested FROM ledger_head WHERE run_id = ANY(%s) AND (is_cancel_requested OR is_pause_requested)"
# The worker with the least to finish, and for how many seconds a run has been waiting to be driven alone.
_SOLO = """
    SELECT p.id, (SELECT extract(epoch FROM clock_timestamp() - min(ready_at))::float FROM runs_run
                  WHERE is_solo AND ready_at <= clock_timestamp() AND graph_id = ANY(%s))
    FROM runs_process p
    WHERE p.kind = 'worker' AND p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - interval '5 seconds'
    ORDER BY p.slots_used, p.id LIMIT 1"""
SOLO_PATIENCE_SECONDS = 15.0


class Host:
    """Drives up to `slots` runs at once until it is drained."""

    def __init__(self, *, slots: int, incarnation: UUID, is_fenced: Callable[[], bool] = lambda: False) -> None:
        import os

        self._is_fenced = is_fenced
        self.slots, self.worker = slots, Worker(incarnation, this_host(), os.getpid())
        self._active: dict[UUID, tuple[asyncio.Task[None], Control]] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._alone_with: UUID | None = None
        self._makes_room = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell = asyncio.Event()
        self._failures: dict[UUID, int] = {}
        self._loaded, self._watch = Loaded(incarnation), Watch()
        self._watch_at = 0.0
        self._drain_at: float | None = None
        self._retire_at = time.monotonic() + RETIRE_SECONDS
        self._threads = ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tool")
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="housekeeping")

    @property
    def slots_used(self) -> int:
        """Runs being driven now."""
        return len(self._active)

    @property
    def unsafe_calls(self) -> int:
        """Calls in flight that must not be cut."""
        return sum(control.unsafe_calls for _, control in list(self._active.values()))

    def ring(self) -> None:
        """Look at the run table now. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._bell.set)

    def drain(self, deadline_seconds: float) -> None:
        """Claim nothing more, hand over at the next step boundary, give up waiting after the deadline. From any thread."""
        self._drain_at = time.monotonic() + deadline_seconds
        self.ring()

    async def serve(self) -> None:
        """Drive until drained."""
        self._loop = asyncio.get_running_loop()
        pool: Pool = AsyncConnectionPool(
            dsn(name="durableagents worker"), min_size=1, max_size=POOL_SIZE, open=False, timeout=5.0, kwargs={"autocommit": True},
            check=None, max_lifetime=3600, reconnect_timeout=1.0,
        )  # fmt: skip
        async with AsyncBell() as bell:
            await pool.open(wait=False)
            beside = [asyncio.create_task(self._housekeeping()), asyncio.create_task(self._listen())]
            try:
                await self._fill(pool, replace(runtime(self._threads), is_fenced=self._is_fenced, hand_in=self._hand_in), bell)
                await self._finish()
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)
                await pool.close(timeout=1.0)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._keeper.shutdown(wait=False, cancel_futures=True)

    async def _listen(self) -> None:
        """Hear the rings oneself: by way of django-q2's processes a ring takes longer than the claim that it is for."""
        async for _ in heard(CHANNEL, name="host"):
            self._bell.set()

    # --- claiming ---

    async def _fill(self, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        """Claim whenever there is room and a reason to look."""
        patience, looked = Patience(), 0.0
        while self._drain_at is None:
            self._bell.clear()
            try:
                if time.monotonic() - looked >= TICK_SECONDS:
                    await self._look_after(pool, lent, bell)
                    looked = time.monotonic()
                is_more = await self._claim(pool, lent, bell)
                patience.reset()
            except (psycopg.Error, OSError, PoolTimeout) as error:
                if isinstance(error, psycopg.Error) and not is_transient(error):
                    raise
                if patience.is_fresh:
                    log.warning(
                        "the database is away (%s): nothing is claimed until it is back",
                        str(error).strip().splitlines()[0],
                    )
                await self._rest(patience.seconds())
                continue
            if not is_more:
                await self._rest(TICK_SECONDS)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._bell.wait(), seconds)

    async def _claim(self, pool: Pool, lent: Runtime, bell: AsyncBell) -> bool:
        """Take what fits. True if the slots are not full and there may be more."""
        room = self.slots - len(self._active)
        if room <= 0 or self._is_fenced() or self._alone_with in self._active:
            return False
        if self._makes_room:
            await self._claim_alone(pool, lent, bell)
            return False
        claimed = await claim(pool, self.worker, registry.graph_ids(), min(room, 32))
        for one in claimed:
            self._start(one, pool, lent, bell)
        return bool(claimed) and len(self._active) < self.slots

    async def _claim_alone(self, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        """Take a run that workers keep dying on, once nothing else is here that could die with it."""
        if self._active:
            return
        self._makes_room = False
        for one in await claim(pool, self.worker, registry.graph_ids(), 1, solo=True):
            self._alone_with = one.run_id
            log.warning("run %s: workers keep dying on it; this one drives nothing beside it", one.run_id)
            self._start(one, pool, lent, bell)

    async def _look_after(self, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        """Take back runs that this process owns and doesn't drive (the answer to a claim was lost), and pass on stop requests."""
        async with pool.connection() as link:
            await self._loaded.announce(link)
            owned = [row[0] for row in await (await link.execute(_LOST, [self.worker.id])).fetchall()]
            asked = await (await link.execute(_ASKED, [list(self._active)])).fetchall() if self._active else []
            self._makes_room = await self._is_asked_for_room(link)
        for run_id in owned:
            if run_id not in self._active:
                with suppress(StaleLease):
                    self._start(await reclaim(pool, self.worker, run_id), pool, lent, bell)
        for run_id, is_cancel in asked:
            if run_id in self._active:
                self._active[run_id][1].ask("cancel" if is_cancel else "pause")

    async def _is_asked_for_room(self, link: psycopg.AsyncConnection[TupleRow]) -> bool:
        """Whether a run waits to be driven alone, and this worker has the least to finish before it could. Where that one doesn't
        come, for want of the run's version perhaps, after a while everybody makes room."""
        row = await (await link.execute(_SOLO, [registry.graph_ids()])).fetchone()
        return row is not None and row[1] is not None and (row[0] == self.worker.id or row[1] > SOLO_PATIENCE_SECONDS)

    # --- driving ---

    def _start(self, claimed: Claim, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        control = Control()
        bell.ring(str(claimed.run_id), claimed.seq)
        task = asyncio.create_task(self._drive(claimed, pool, lent, bell, control), name=f"run {claimed.run_id}")
        self._active[claimed.run_id] = (task, control)

    async def _drive(self, claimed: Claim, pool: Pool, lent: Runtime, bell: AsyncBell, control: Control) -> None:
        """Drive one claim to wherever it goes. Whatever happens, the slot is free afterwards."""
        failpoints.driving(str(claimed.run_id))
        journal = PgJournal(pool, self.worker, claimed, on_write=bell.ring)
        try:
            failpoints.hit("CP0")
            agent = registry.find(claimed.graph_id)
            how = await Driver(
                agent, journal, lent, control, trace_id=claimed.trace_id, generation=claimed.generation
            ).drive()
            log.info("run %s: %s at event %s", claimed.run_id, how, journal.seq)
            if how == "released":
                await self._pass_on(journal)
        except StaleLease as stale:
            log.warning("run %s: refused: %s", claimed.run_id, stale)
        except asyncio.CancelledError:
            await self._hand_over(journal, claimed.seq)
        except Exception as error:
            await self._engine_failed(claimed.run_id, error)
        else:
            self._failures.pop(claimed.run_id, None)
        finally:
            # The run may have been claimed here again already, by a task of its own.
            if self._active.get(claimed.run_id, (None,))[0] is asyncio.current_task():
                del self._active[claimed.run_id]
            self._bell.set()

    def _hand_in(self, late: LateAnswer) -> None:
        """An answer whose run somebody else has by now: told to the database as news, as often as it takes."""
        task = asyncio.create_task(self._keep_handing_in(late), name=f"late answer {late.slot} of {late.run_id}")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _keep_handing_in(self, late: LateAnswer) -> None:
        patience, by = Patience(), lost_worker(self.worker.id)
        while True:
            try:
                await self._aside(partial(hand_in, late, by))
                return
            except (DatabaseError, InterfaceError) as error:
                log.warning("run %s: a late answer could not be handed in (%s); trying on", late.run_id, str(error).strip())
                await asyncio.sleep(patience.seconds())

    async def _aside(self, act: Callable[[], T]) -> T:
        """Do something rare with Django's models, in the housekeeping thread, on a connection of its own that is closed afterwards."""

        def acting() -> T:
            try:
                return act()
            finally:
                connection.close()

        return await asyncio.get_running_loop().run_in_executor(self._keeper, acting)

    async def _engine_failed(self, run_id: UUID, error: Exception) -> None:
        """Not the agent's error but ours: tried again a few times (this process still owns the run), then an operator looks."""
        log.error("run %s: the engine failed on it", run_id, exc_info=error)
        count = self._failures[run_id] = self._failures.get(run_id, 0) + 1
        if count < MOST_FAILURES or is_transient(error):
            await asyncio.sleep(TICK_SECONDS * min(count, MOST_FAILURES))
            return
        problem = printable(f"{type(error).__name__}: {error}"[:2000])
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._keeper, recovery.engine_failed, run_id, self.worker.id, problem)
            del self._failures[run_id]
        except Exception:
            log.exception("run %s: can't be stopped for an operator either; trying again", run_id)

    # --- draining ---

    async def _hand_over(self, journal: PgJournal, claimed_seq: int) -> None:
        """Cut off at the drain's deadline: let go in good order, so that it isn't taken for a death. What was in flight is in doubt."""
        run_id = UUID(journal.run_id)
        try:
            look = partial(standing, run_id, seq=journal.seq, claimed_seq=claimed_seq)
            stood = await asyncio.wait_for(self._aside(look), HAND_OVER_SECONDS)
            event = e.RunReleased(reason="drain deadline")
            reply = await asyncio.wait_for(journal.leave("release", [event], state="running"), HAND_OVER_SECONDS)
            log.warning("run %s: cut off at the drain's deadline and handed over", journal.run_id)
            await self._pass_on(journal)
            by = (self.worker.id, self.worker.host, self.worker.pid)
            await self._aside(partial(note_cut, run_id, reply.seq, journal.lease.epoch, by, stood))
        except (StaleLease, psycopg.Error, DatabaseError, InterfaceError, OSError, PoolTimeout, TimeoutError) as error:
            log.warning("run %s: cut off at the drain's deadline; the watchdog frees it (%s)", journal.run_id, error)

    async def _pass_on(self, journal: PgJournal) -> None:
        """Ring for a run that was let go, so that another worker takes it at once. A ring may be lost: everybody looks each second."""
        try:
            async with journal.pool.connection() as link:
                await link.execute(ENQUEUE_SQL, [journal.run_id])
                await link.execute(NOTIFY_SQL)
        except (psycopg.Error, OSError) as error:
            log.info("run %s: handed over without a ring (%s)", journal.run_id, error)

    async def _finish(self) -> None:
        """Ask every run to stop at its next step boundary and cut off at the deadline what hasn't: model requests, reads, keyed calls.
        An unsafe call is left to its own timeout, after which it is *unknown*; the process's end (runs/tasks.py) waits for that."""
        assert self._drain_at is not None
        for _, control in self._active.values():
            control.ask("drain")
        held: dict[UUID, float] = {}
        while self._active:
            now = time.monotonic()
            patience = self._drain_at - now
            for run_id, (task, control) in self._active.items() if patience <= 0 else ():
                if control.unsafe_calls:
                    held[run_id] = now + HAND_OVER_SECONDS  # after its outcome the run has yet to be parked, or let go
                elif held.get(run_id, 0.0) <= now and not task.cancelling():
                    task.cancel()
            tasks = [task for task, _ in self._active.values()]
            await asyncio.wait(tasks, timeout=patience if patience > 0 else AFTER_DEADLINE_TICK_SECONDS)
        if self._late:
            await asyncio.wait(self._late, timeout=HAND_OVER_SECONDS)

    # --- housekeeping ---

    async def _housekeeping(self) -> None:
        """Sweep and watch, until the host ends; each pass says when the next is due."""
        loop = asyncio.get_running_loop()
        while True:
            seconds = await loop.run_in_executor(self._keeper, self._keep_house)
            await asyncio.sleep(max(0.02, seconds))

    def _keep_house(self) -> float:
        """One pass in the housekeeping thread. An outage of the database is waited out, anything else is logged and tried again."""
        try:
            close_old_connections()
            recovery.watch()
            if time.monotonic() >= self._retire_at:
                self._retire_at = time.monotonic() + RETIRE_SECONDS
                sweeper.retire()
            if time.monotonic() >= self._watch_at:
                self._watch_at = time.monotonic() + WATCH_SECONDS
                self._watch.look()
            return sweeper.sweep()
        except Exception as error:
            connection.close()
            if connection.errors_occurred or "OperationalError" in type(error).__name__:
                log.warning("housekeeping waits for the database: %s", str(error).strip().splitlines()[0])
            else:
                log.exception("housekeeping failed; trying again")
            return sweeper.IDLE_SECONDS
