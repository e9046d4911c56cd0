"""A worker's housekeeping in one thread: find dead workers, sweep due items, record late results.
About once a second, one of the workers sweeps on behalf of the whole fleet. Every worker watches for dead ones by
itself, because it must remember how long each process has been silent."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from uuid import UUID

from django.db import close_old_connections, connection

from ledger.errors import first_line
from runs import log_messages
from runs.background import duties
from runs.backoff import Patience
from runs.engine.outcomes import LateAnswer
from runs.fleet import members
from runs.fleet.agent_versions import Watch
from runs.journal.database_errors import Refusals, is_transient
from runs.services.budgets import prices
from runs.services.families import ends, wishes
from runs.services.late_results import lost_worker, note_unrecorded, record_late_result
from runs.services.starts import turns
from runs.workers import failover, timers

T = TypeVar("T")
log = logging.getLogger("runs.workers.housekeeping")

RETIRE_SECONDS = 3600.0
JITTER = 0.2  # random part of pauses, which prevents workers from checking at the same time
WATCH_SECONDS = 5.0
# Interval at which dead workers are looked for, regardless of other work.
PASS_SECONDS = 0.25
# Within this time after another worker's sweep, no sweep is needed.
SWEPT_SECONDS = 0.9
# Limits of the pause between reports of children's ends, which is a multiple of the last report's duration.
TELL_SHARE, TELL_SECONDS = 5, 0.25
# If nothing is due, an occasional sweep keeps the age of the last one small on /readyz and the fleet page.
SHOWN_SECONDS = 4.0
# Check every few seconds which periodic jobs have something to do: runs whose time is up; working children, ended
# children that were not reported to their parent, and children that a parent waits to have undone; queued runs whose
# turn has come, and late starts; and the jobs of other apps. Each condition has an index. Each must be true whenever
# its job would find something, because a job that isn't started here isn't done at all.
_IS_THERE = """
    SELECT {duties}, EXISTS (SELECT 1 FROM runs_run WHERE time_up_at <= statement_timestamp() AND ended_at IS NULL),
        EXISTS (SELECT 1 FROM runs_run WHERE parent IS NOT NULL AND ended_at IS NULL)
            OR EXISTS (SELECT 1 FROM runs_run WHERE parent IS NOT NULL AND ended_at IS NOT NULL AND NOT is_told)
            OR EXISTS (SELECT 1 FROM runs_wait WHERE resolved_at IS NULL AND kind = 'child' AND detail ? 'undo'),
        EXISTS (SELECT 1 FROM runs_run WHERE business_key <> '' AND ended_at IS NOT NULL AND NOT is_passed_on)
            OR EXISTS (SELECT 1 FROM runs_run WHERE start_before <= statement_timestamp() AND started_at IS NULL
                       AND ended_at IS NULL)"""


class Housekeeping:
    """One worker's housekeeping."""

    def __init__(self, incarnation: UUID) -> None:
        self._incarnation = incarnation
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="housekeeping")
        self._versions = Watch()
        self._outage = log_messages.Outage(log, "housekeeping")
        self._versions_at = self._watched_at = 0.0
        self._sweeps = False  # whether something is due within a second
        self._retire_at = time.monotonic() + RETIRE_SECONDS
        self.late: set[asyncio.Task[None]] = set()
        self._ended: list[UUID] = []
        self._telling: asyncio.Task[None] | None = None

    async def aside(self, act: Callable[[], T]) -> T:
        """Run a rare task in the housekeeping thread, and close its connection afterwards."""

        def acting() -> T:
            try:
                return act()
            finally:
                connection.close()

        return await self.in_thread(acting)

    async def in_thread(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    # --- sweeping and watching ---

    def keep(self) -> float:
        """Do one pass.
        Returns the seconds until the next sweep. Outages are waited out; other errors are logged, and the pass is
        retried."""
        try:
            close_old_connections()
            seconds = self._pass()
        except Exception as error:
            connection.close()
            if is_transient(error):
                self._outage.began(error)
            else:
                log.exception("housekeeping failed; trying again")
            return timers.IDLE_SECONDS
        self._outage.over()
        return seconds

    def _pass(self) -> float:
        now = time.monotonic()
        # Rare checks share a pass, because a connection costs more than the checks.
        is_thorough, is_needless, called = now >= self._versions_at, False, None
        if now - self._watched_at >= PASS_SECONDS:
            self._watched_at = now
            called = members.roll_call()
            failover.watch_with(called, is_thorough=is_thorough)
            is_needless = called is not None and self._is_needless(called, is_thorough)
        if now >= self._retire_at:
            self._retire_at = now + RETIRE_SECONDS
            timers.retire()
        if is_thorough:
            self._versions_at = now + WATCH_SECONDS
            self._versions.check()
            prices.table.refresh()
            notified = _look_around()
            if notified >= ends.BATCH:
                self._versions_at = now  # there are more
        if called is not None and called.is_sweep_due:
            timers.sweep_promptly()
        if is_needless:
            return _about(timers.IDLE_SECONDS)
        seconds = timers.sweep()
        self._sweeps = seconds < timers.IDLE_SECONDS
        return seconds if self._sweeps else _about(seconds)

    def _is_needless(self, called: members.Roll, is_thorough: bool) -> bool:
        """Return whether the sweep can be skipped, because another process does it, or nothing will be due."""
        if self._sweeps or called.sweep_age is None:
            return False
        is_quiet = called.due_in is None or called.due_in > timers.IDLE_SECONDS * (1 + JITTER)
        if is_quiet:
            return not is_thorough or called.sweep_age < SHOWN_SECONDS
        return called.sweep_age < SWEPT_SECONDS

    # --- families ---

    def note_end(self, run_id: UUID) -> None:
        """Arrange for the end of a run driven here to be reported to its parent, and for the next run with its business
        key to be started."""
        self._ended.append(run_id)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="telling parents")

    async def _tell(self) -> None:
        """Report ended runs.
        Errors are logged and left to the sweeper. The first end is reported at once. If there are many, they are
        batched, so that reporting takes only a share of the time."""
        while self._ended:
            began, ended, self._ended = time.monotonic(), self._ended, []
            try:
                await self.in_thread(partial(_tell_of, ended))
            except Exception:
                log.exception("%s runs ended, and who waits for that could not be told yet", len(ended))
            await asyncio.sleep(min(TELL_SECONDS, TELL_SHARE * (time.monotonic() - began)))

    # --- one run's trouble ---

    async def stop(self, run_id: UUID, owner: UUID | None, problem: str) -> bool:
        """Stop a run for an operator.
        Returns False after errors, which are only logged because they concern one run."""
        try:
            await self.aside(partial(failover.stop, run_id, owner, problem))
        except Exception:
            log.exception("run %s: can't be stopped for an operator either; trying again", run_id)
            return False
        return True

    def record_late(self, late: LateAnswer) -> None:
        """Record a late result for a run that another worker has taken over. Retries as often as needed."""
        task = asyncio.create_task(self._keep_handing_in(late), name=f"late answer {late.slot} of {late.run_id}")
        self.late.add(task)
        task.add_done_callback(self.late.discard)

    async def _keep_handing_in(self, late: LateAnswer) -> None:
        by = lost_worker(self._incarnation)
        try:
            await self._patiently(late, partial(record_late_result, late, by))
        except Exception as error:
            message = first_line(error)
            log.exception(log_messages.LATE_ANSWER_LOST, late.run_id, late.slot, late.tool, message, late.external_id)
            try:
                await self._patiently(late, partial(note_unrecorded, late, by, message))
                log.error(log_messages.LATE_ANSWER_KEPT_SHORT, late.run_id, late.slot, late.tool, message)
            except Exception:
                log.exception("run %s: not even that a late answer came can be recorded", late.run_id)

    async def _patiently(self, late: LateAnswer, act: Callable[[], object]) -> None:
        """Retry through outages of any length. Other errors are raised."""
        patience, refusals = Patience(), Refusals(f"run {late.run_id}, recording a late answer")
        while True:
            try:
                await self.aside(act)
                return
            except Exception as error:
                if not is_transient(error):
                    raise
                refusals.note(error)
                log.warning(
                    "run %s: a late answer could not be handed in (%s); trying on", late.run_id, first_line(error)
                )
            await asyncio.sleep(patience.seconds())


def _look_around() -> int:
    """Start the periodic jobs that are due. Returns the number of runs that the frequent jobs found."""
    with connection.cursor() as cursor:
        cursor.execute(_IS_THERE.format(duties=duties.question))
        due, is_time_up, are_children, are_starts = cursor.fetchone()
    for name in due:
        duties.begin(name)
    if is_time_up:
        timers.ask_for_time()
    notified = max(timers.tell_parents(), wishes.align()) if are_children else 0
    return max(notified, timers.sweep_starts()) if are_starts else notified


def _tell_of(ended: list[UUID]) -> None:
    ends.tell_many(ended)
    turns.pass_on_from(ended)


def _about(seconds: float) -> float:
    """Return the time extended by jitter.
    The time is never shortened, because the checked items must be due by then."""
    return seconds * random.uniform(1, 1 + JITTER)
