"""The host: one event loop in a worker process that drives many runs at once, since agents mostly wait.

    ring ─┐                  (to all, or to one by name; on a connection of its own)
    tick ─┼─► claim the best ready runs until the slots are full ─► one task per run: load, visit, act (driver.py)
    slot ─┘        └─ once a second: reclaim own runs that aren't driven, check for stop requests
    housekeeping (a thread of its own): sweep due items, watch for dead workers

The run table is the queue; a ring only makes the host check sooner. The lease in the database decides which worker may
write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os import getpid
from typing import Any
from uuid import UUID

import psycopg

# Imports that would block an event loop for half a second. They are imported with this module, which the nursery loads
# before any fork. A lazy import in several threads could also fail because of circular imports.
import pydantic_ai.direct
import pydantic_ai.models.function  # noqa: F401
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ledger import context
from ledger import events as e
from ledger.codec import KeyMissing
from ledger.errors import StaleLease, first_line
from runs import failpoints, features, log_messages
from runs.background import run_forever
from runs.backoff import Patience
from runs.connections import dsn
from runs.engine.agents import registry
from runs.engine.canonical import printable
from runs.engine.continuation import LARGE_JOURNAL
from runs.engine.driver import Driver
from runs.engine.halts import RING, Halts
from runs.engine.limits import Limits
from runs.engine.runtime import Control, Runtime
from runs.engine.threads import BusyTool, ToolThreads
from runs.fleet import version_changes
from runs.fleet.agent_versions import Loaded
from runs.fleet.incidents import note_cut, progress_at_loss
from runs.fleet.procfs import host as this_host
from runs.journal.cache import ReadCache
from runs.journal.claims import Claim, Worker, claim, reclaim
from runs.journal.database_errors import StatementRefused, is_refusal, is_transient
from runs.journal.libpq import Connection, Pool, ask_again
from runs.journal.notify import AsyncBell, heard
from runs.journal.postgres import PgJournal
from runs.journal.telling import Teller
from runs.journal.warm import rehearse
from runs.overheard.texts import Texts
from runs.services.budgets import prices
from runs.services.wakeups import CHANNEL, ENQUEUE_SQL, NOTIFY_SQL
from runs.workers.engine_runtime import runtime
from runs.workers.housekeeping import Housekeeping
from runs.workers.look_after import Round, read_round

log = logging.getLogger("runs.workers.run_loop")

TICK_SECONDS = 1.0
POOL_SIZE = 8  # connections per worker process; more would be slower on few cores
RECONNECTS: Any = {"reconnect_timeout": 1.0, "reconnect_failed": ask_again}
WARM = 4  # number of these that are opened before there is work
HAND_OVER_SECONDS = 1.0
AFTER_DEADLINE_TICK_SECONDS = 0.05
ENDS = frozenset({"completed", "failed", "cancelled"})
MAX_FAILURES = 3
MAX_CLAIMED = 32  # per claim
# If no other worker has all versions of this one, other runs wait while it makes room. So it stops making room after
# this time.
ROOM_SECONDS = 15.0
ROOM_PAUSE_SECONDS = 30.0
# Time for which a run is left to other workers if this process lacks its key. Doubled each time.
KEYLESS_SECONDS, MAX_KEYLESS_SECONDS = 30.0, 300.0
MAX_KEYLESS = 1000  # with more such runs, nothing is claimed until some may be tried again
IDLE_LOOK_SECONDS = 3.0  # interval of checks without runs to drive, to find runs whose claim's response was lost


async def _prepare(link: Connection) -> None:
    """Warm up a new connection, and let features check it."""
    await rehearse(link)
    await features.greet(link)


class Keyless:
    """Runs whose encryption keys this process lacks. Each is left to other workers for a while."""

    def __init__(self) -> None:
        self._pauses: dict[UUID, tuple[float, float]] = {}  # end and length of the pause for each run

    def note(self, run_id: UUID) -> None:
        _, seconds = self._pauses.pop(run_id, (0.0, KEYLESS_SECONDS / 2))
        seconds = min(2 * seconds, MAX_KEYLESS_SECONDS)
        self._pauses[run_id] = time.monotonic() + seconds, seconds

    def paused(self) -> list[UUID]:
        """Return the runs that must not be claimed now."""
        if not self._pauses:
            return []
        now = time.monotonic()
        over = [run_id for run_id, (until, seconds) in self._pauses.items() if until + seconds < now]
        for run_id in over:  # another worker has the run, because it has not come back here
            del self._pauses[run_id]
        return [run_id for run_id, (until, _) in self._pauses.items() if until > now]


class Host:
    """Drives up to `slots` runs at once until it is drained."""

    def __init__(self, *, slots: int, incarnation: UUID, is_fenced: Callable[[], bool] = lambda: False) -> None:
        self._is_fenced = is_fenced
        self.slots, self.worker = slots, Worker(incarnation, this_host(), getpid())
        self._active: dict[UUID, tuple[asyncio.Task[None], Control]] = {}
        self._alone_with: UUID | None = None
        self._makes_room = False
        self._room_until = self._no_room_until = 0.0
        self._next_round_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell = asyncio.Event()
        self._is_called = False  # whether a call named this worker, so that no other was called
        self._is_busy = False  # whether more runs may be ready than the last claim took
        self._failures: dict[UUID, int] = {}
        self._damaged: dict[UUID, tuple[UUID | None, str]] = {}
        self._keyless = Keyless()
        known = settings.DURABLEAGENTS
        self._loaded = Loaded(incarnation, only=known.serve, is_draining=known.drain_only)
        self._house = Housekeeping(incarnation)
        make_limits = features.only(lambda each: each.limits)
        self._limits = make_limits(incarnation) if make_limits is not None else Limits()
        make_halts = features.only(lambda each: each.halts)
        self._halts = make_halts(incarnation) if make_halts is not None else Halts()
        self._drain_at: float | None = None
        self._threads = ToolThreads()

    @property
    def slots_used(self) -> int:
        """Return the number of runs being driven."""
        return len(self._active)

    @property
    def busy_tools(self) -> list[BusyTool]:
        """Return the blocking tools whose threads are all busy."""
        return self._threads.all_busy()

    @property
    def unsafe_calls(self) -> int:
        """Return the number of calls in flight that must not be cut off."""
        return sum(control.unsafe_calls for _, control in list(self._active.values()))

    def ring(self) -> None:
        """Check the run table now. Thread-safe."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._bell.set)

    def drain(self, deadline_seconds: float) -> None:
        """Stop claiming, release runs at their next step boundary, and end after the deadline at the latest.
        Thread-safe."""
        self._drain_at = time.monotonic() + deadline_seconds
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ask_to_hand_over)
        self.ring()

    async def serve(self) -> None:
        """Drive until drained."""
        self._loop = asyncio.get_running_loop()
        pool: Pool = AsyncConnectionPool(
            dsn(name="durableagents worker"),
            min_size=WARM,
            max_size=POOL_SIZE,
            open=False,
            timeout=5.0,
            kwargs={"autocommit": True},
            check=None,
            configure=_prepare,
            max_lifetime=3600,
            **RECONNECTS,
        )
        async with AsyncBell() as bell:
            with features.driving(lambda: bell.rings):
                await self._drive_until_drained(pool, bell)
        self._threads.shutdown()
        self._house.close()

    async def _drive_until_drained(self, pool: Pool, bell: AsyncBell) -> None:
        await pool.open(wait=False)
        teller = Teller(lambda run_id: bell.ring(run_id, 0))
        texts = Texts()
        companions = [
            asyncio.create_task(run_forever("the housekeeping", self._housekeeping)),
            asyncio.create_task(run_forever("the listener", partial(self._listen, pool))),
            asyncio.create_task(run_forever("what nodes say", partial(teller.serve, pool))),
            asyncio.create_task(run_forever("the limits", partial(self._limits.serve, pool))),
            asyncio.create_task(run_forever("what models say", partial(texts.serve, pool))),
        ]
        try:
            await self._fill(
                pool,
                replace(
                    runtime(self._threads, pool),
                    is_fenced=self._is_fenced,
                    record_late=self._house.record_late,
                    keep=teller.keep,
                    limits=self._limits,
                    halts=self._halts.lend(pool),
                    overhear=texts.overhear,
                    reads=ReadCache(pool),
                    certificates=features.worker_certificates(pool),
                    code_of=partial(version_changes.code_of, pool),
                ),
                bell,
            )
            await self._finish()
        finally:
            for task in companions:
                task.cancel()
            await asyncio.wait(companions)
            await teller.send(pool)
            await pool.close(timeout=1.0)

    async def _listen(self, pool: Pool) -> None:
        """Listen for wake-ups directly, because going through django-q2 takes longer than the claim itself.
        A wake-up that names another worker is ignored. If a wake-up is lost, workers find the run when they check the
        database, every second."""
        async for called in heard(CHANNEL, name="host"):
            self._limits.hear(called)
            self._next_round_at = 0.0 if called == RING else self._next_round_at
            if called == str(self.worker.id):
                self._is_called = True
                if self._drain_at is not None:
                    await self._call_all(pool)
            if called in (None, "", RING, str(self.worker.id)):
                self._bell.set()

    async def _call_all(self, pool: Pool) -> None:
        """Pass a wake-up that names this worker on to all workers, because this one is full or draining.
        If the new wake-up is lost, workers find the run when they check the database, every second."""
        self._is_called = False
        try:
            async with pool.connection() as link:
                await link.execute(NOTIFY_SQL)
        except (psycopg.Error, OSError, PoolTimeout) as error:
            log.info("a call could not be handed on (%s)", error)

    # --- claiming ---

    async def _fill(self, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        """Claim whenever there is room and a reason to check. An error with a single run never ends the loop."""
        patience, away = Patience(), log_messages.Outage(log, "claiming")
        while self._drain_at is None:
            self._bell.clear()
            try:
                if time.monotonic() >= self._next_round_at:
                    await self._go_round(pool, lent, bell)
                    self._next_round_at = time.monotonic() + (
                        TICK_SECONDS if self._active or self._damaged or self._makes_room else IDLE_LOOK_SECONDS
                    )
                is_more = await self._claim(pool, lent, bell)
                if self._is_called and self._is_busy:
                    await self._call_all(pool)
                self._is_called = self._is_called and self._bell.is_set()  # it was called again during the check
                patience.reset()
                away.over()
            except (psycopg.Error, OSError, PoolTimeout) as error:
                if isinstance(error, psycopg.Error) and not is_transient(error):
                    raise
                self._next_round_at = 0.0  # the response to a claim may have been lost
                away.began(error)
                await self._rest(patience.seconds())
                continue
            await self._stop_damaged()
            if not is_more:
                await self._rest(TICK_SECONDS)
        if self._is_called:
            await self._call_all(pool)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._bell.wait(), seconds)

    async def _claim(self, pool: Pool, lent: Runtime, bell: AsyncBell) -> bool:
        """Claim as many runs as fit. Returns whether there is room left and there may be more runs."""
        room = self.slots - len(self._active)
        is_closed = self._drain_at is not None or room <= 0 or self._is_fenced() or self._alone_with in self._active
        skipped = self._keyless.paused()
        is_closed = is_closed or self._limits.blocks_claims or len(skipped) >= MAX_KEYLESS
        self._is_busy = is_closed or self._makes_room
        if is_closed:
            return False
        if self._makes_room:
            await self._claim_alone(pool, lent, bell, skipped)
            return False
        wanted = min(room, MAX_CLAIMED)
        claimed = await claim(
            pool, self.worker, self._loaded.graph_ids(), wanted, skipped=skipped, on_damaged=self._note_damaged
        )
        for one in claimed:
            self._start(one, pool, lent, bell)
        # If far fewer runs were claimed than requested, there are no more, apart from those that others are claiming at
        # the moment.
        is_more = bool(claimed) and len(claimed) * 4 >= wanted
        self._is_busy = is_more and len(self._active) >= self.slots
        return is_more and not self._is_busy

    async def _claim_alone(self, pool: Pool, lent: Runtime, bell: AsyncBell, skipped: list[UUID]) -> None:
        """Claim a poison run only while this worker is otherwise idle."""
        if self._active:
            return
        self._makes_room = False
        for one in await claim(
            pool, self.worker, self._loaded.graph_ids(), 1, solo=True, skipped=skipped, on_damaged=self._note_damaged
        ):
            self._alone_with = one.run_id
            log.warning("run %s: workers keep dying on it; this one drives nothing else meanwhile", one.run_id)
            self._start(one, pool, lent, bell)

    async def _go_round(self, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        """Reclaim this worker's runs that aren't driven, and pass on stop requests.
        Such a run was claimed, but the response to the claim was lost."""
        async with pool.connection() as link:
            await self._loaded.announce(link)
            await prices.table.refresh_with(link)
            await self._limits.refresh(link)
            for refresh in features.parts_of_all(lambda each: each.before_round):
                await refresh(link)
            await self._halts.refresh(link, {run_id: control for run_id, (_, control) in self._active.items()})
            news = await read_round(link, self.worker.id, self._loaded.graph_ids(), list(self._active))
        self._make_room(news)
        for run_id in news.owned:
            if run_id not in self._active:
                await self._take_back(run_id, pool, lent, bell)
        for run_id in self._active.keys() & {*news.to_cancel, *news.to_pause}:
            self._active[run_id][1].ask("cancel" if run_id in news.to_cancel else "pause")

    async def _take_back(self, run_id: UUID, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        try:
            self._start(await reclaim(pool, self.worker, run_id), pool, lent, bell)
        except StaleLease:
            self._failures.pop(run_id, None)  # another worker has it now
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            if is_transient(error):  # the run's row is locked, and the next check comes soon
                log.info("run %s: can't be taken back yet (%s)", run_id, first_line(error))
            else:
                self._note_damaged(run_id, f"{first_line(error)} ({error.sqlstate})", owner=self.worker.id)

    def _note_damaged(self, run_id: UUID, problem: str, owner: UUID | None = None) -> None:
        self._damaged[run_id] = owner, problem

    async def _stop_damaged(self) -> None:
        """Retry claims that the database refused because of damage, then stop these runs for an operator."""
        damaged, self._damaged = self._damaged, {}
        for run_id, (owner, problem) in damaged.items():
            count = self._failures[run_id] = self._failures.get(run_id, 0) + 1
            log.error("run %s: can't be claimed: %s", run_id, problem)
            if count >= MAX_FAILURES:
                del self._failures[run_id]
                await self._house.stop(run_id, owner, f"the run can't be claimed: {problem}")

    def _make_room(self, news: Round) -> None:
        """Make room for a waiting solo run if this worker was chosen.
        The worker then claims nothing, and hands its runs over. If no other worker can replace it, it does so only for
        limited periods: handing over may have to wait for long calls, and other ready runs wait meanwhile."""
        now, was = time.monotonic(), self._makes_room
        is_chosen = news.is_solo_waiting and news.chosen == self.worker.id and now >= self._no_room_until
        if is_chosen and not was:
            self._room_until = now + ROOM_SECONDS
            log.warning(log_messages.MAKES_ROOM)
        elif is_chosen and not news.others and now >= self._room_until:
            self._no_room_until, is_chosen = now + ROOM_PAUSE_SECONDS, False
        self._makes_room = is_chosen
        if is_chosen:
            self._ask_to_hand_over(but=self._alone_with)

    # --- driving ---

    def _start(self, claimed: Claim, pool: Pool, lent: Runtime, bell: AsyncBell) -> None:
        control = Control()
        if self._drain_at is not None:  # a drain was requested during the claim
            control.ask("drain")
        bell.ring(str(claimed.run_id), claimed.seq)
        if claimed.parent is not None:
            bell.ring(claimed.parent, 0)
        task = asyncio.create_task(self._drive(claimed, pool, lent, bell, control), name=f"run {claimed.run_id}")
        self._active[claimed.run_id] = (task, control)

    async def _drive(self, claimed: Claim, pool: Pool, lent: Runtime, bell: AsyncBell, control: Control) -> None:
        """Drive one claim to its end. The slot is free afterwards in any case."""
        failpoints.driving(str(claimed.run_id))
        context.drive.set(context.Drive(str(claimed.run_id), claimed.trace_id, claimed.epoch))
        journal, is_done = PgJournal(pool, self.worker, claimed, on_write=bell.ring, on_birth=self._bell.set), False
        try:
            failpoints.hit("CP0")
            agent = registry.find(claimed.graph_id)
            how = await Driver(
                agent, journal, lent, control, trace_id=claimed.trace_id, generation=claimed.generation
            ).drive()
            log.info("run %s: %s at event %s", claimed.run_id, how, journal.seq)
            if claimed.seq < LARGE_JOURNAL <= journal.seq and how not in ENDS:
                log.warning(log_messages.LARGE_JOURNAL, claimed.run_id, journal.seq)
            if how == "released":
                await self._pass_on(journal)
            if how in ENDS and (claimed.is_keyed or claimed.parent is not None):
                self._house.note_end(claimed.run_id)
            is_done = True
        except StaleLease as stale:
            self._failures.pop(claimed.run_id, None)
            log.warning("run %s: refused: %s", claimed.run_id, stale)
        except asyncio.CancelledError:
            await self._hand_over(journal, claimed.seq)
        except KeyMissing as missing:
            await self._leave_to_others(journal, claimed.run_id, missing)
        except Exception as error:
            await self._engine_failed(claimed.run_id, error)
        else:
            self._failures.pop(claimed.run_id, None)
        finally:
            if claimed.parent is not None:
                bell.ring(claimed.parent, 0)  # its journal has no new events, so `seq` 0 makes watchers reload
            # The run may already have been claimed here again, and be driven by another task.
            if self._active.get(claimed.run_id, (None,))[0] is asyncio.current_task():
                del self._active[claimed.run_id]
            if self._is_busy or not is_done or self._limits.is_capping:
                self._bell.set()

    async def _engine_failed(self, run_id: UUID, error: Exception) -> None:
        """Handle an engine error: retry the run.
        If the database permanently refuses the run, or after several failures, the run is stopped for an operator."""
        log.error("run %s: the engine failed on it", run_id, exc_info=error)
        count = self._failures[run_id] = self._failures.get(run_id, 0) + 1
        if not isinstance(error, StatementRefused) and (count < MAX_FAILURES or is_transient(error)):
            await asyncio.sleep(TICK_SECONDS * min(count, MAX_FAILURES))
            return
        problem = printable(f"{type(error).__name__}: {error}"[:2000])
        if await self._house.stop(run_id, self.worker.id, problem):
            self._failures.pop(run_id, None)
        else:
            await asyncio.sleep(TICK_SECONDS)

    # --- draining ---

    def _ask_to_hand_over(self, but: UUID | None = None) -> None:
        for run_id, (_, control) in self._active.items():
            if run_id != but:
                control.ask("drain")

    async def _hand_over(self, journal: PgJournal, claimed_seq: int) -> None:
        """Release a run that was cut off at the drain's deadline, so that it doesn't count as a death.
        The outcomes of its calls in flight are unknown."""
        run_id = UUID(journal.run_id)
        try:
            read_standing = partial(progress_at_loss, run_id, claimed_seq=claimed_seq)
            stood = await asyncio.wait_for(self._house.aside(read_standing), HAND_OVER_SECONDS)
            event = e.RunReleased(reason="drain deadline")
            reply = await asyncio.wait_for(journal.leave("release", [event], state="running"), HAND_OVER_SECONDS)
            log.warning("run %s: cut off at the drain's deadline and handed over", journal.run_id)
            await self._pass_on(journal)
            by = (self.worker.id, self.worker.host, self.worker.pid)
            await self._house.aside(partial(note_cut, run_id, reply.seq, journal.lease.epoch, by, stood))
        except (StaleLease, psycopg.Error, DatabaseError, InterfaceError, OSError, PoolTimeout, TimeoutError) as error:
            log.warning("run %s: cut off at the drain's deadline; the watchdog frees it (%s)", journal.run_id, error)

    async def _leave_to_others(self, journal: PgJournal, run_id: UUID, missing: KeyMissing) -> None:
        """Release a run whose encryption key this process lacks, because another worker may have it."""
        self._keyless.note(run_id)
        log.error("run %s: released, since its key is missing here: %s", run_id, first_line(missing))
        event = e.RunReleased(reason=f"{e.KEY_MISSING}{printable(first_line(missing))[:500]}")
        try:
            await journal.leave("release", [event], state="running")
            await self._pass_on(journal)
        except Exception as error:
            await self._engine_failed(run_id, error)

    async def _pass_on(self, journal: PgJournal) -> None:
        try:
            async with journal.pool.connection() as link:
                await link.execute(ENQUEUE_SQL, [journal.run_id])
                await link.execute(NOTIFY_SQL)
        except (psycopg.Error, OSError) as error:
            log.info("run %s: handed over without a ring (%s)", journal.run_id, error)

    async def _finish(self) -> None:
        """Cut off work that was not handed over by the deadline: model requests, reads, keyed calls.
        An unsafe call keeps its own timeout, after which its outcome is unknown; the process's end (worker_process.py)
        waits for it."""
        assert self._drain_at is not None
        held: dict[UUID, float] = {}
        while self._active:
            now = time.monotonic()
            patience = self._drain_at - now
            for run_id, (task, control) in self._active.items() if patience <= 0 else ():
                if control.unsafe_calls:
                    # after the call's outcome, the run must still be parked or released
                    held[run_id] = now + HAND_OVER_SECONDS
                elif held.get(run_id, 0.0) <= now and not task.cancelling():
                    task.cancel()
            tasks = [task for task, _ in self._active.values()]
            await asyncio.wait(tasks, timeout=patience if patience > 0 else AFTER_DEADLINE_TICK_SECONDS)
        if self._house.late:
            # A host that was cut off may have an unread response for every slot. Each one takes several round trips on
            # a slow link.
            patience = max(HAND_OVER_SECONDS, self._drain_at - time.monotonic())
            await asyncio.wait(self._house.late, timeout=patience)

    # --- housekeeping ---

    async def _housekeeping(self) -> None:
        while True:
            seconds = await self._house.in_thread(self._keep_house)
            await asyncio.sleep(max(0.02, seconds))

    def _keep_house(self) -> float:
        return self._house.keep()
