"""One worker incarnation, forked from a warm lane because starting Python is slow: the real host on the real journal.
Only its surroundings are fake: the clock, lossy connections, and the wake-up, which goes to the lane.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import types
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, NoReturn, Self
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool

from durableagents.contrib.limits.permits import WorkerLimits
from runs.connections import sign_connections
from runs.engine import screening
from runs.engine.limits import Permit, PermitRequest, Refused, TryResult
from runs.engine.runtime import RetryPolicy
from runs.fleet import procfs
from runs.fleet.members import Sign
from runs.workers import run_loop as hosts
from runs.workers.session_lock import Presence
from runs.workers.worker_process import BEAT_SECONDS
from tests.system.crash.light.plan import Loss, Schedule

RING, DRAIN = b"r", b"d"
DRAIN_SECONDS = 5.0
SLOTS = 8
# Timers instead of waits in place, and short ones.
IMPATIENT = RetryPolicy(first=0.02, longest=0.05, in_place=0.0, timer_first=0.05, timer_longest=0.2)
PATIENT = RetryPolicy(first=0.02, longest=0.2, timer_first=0.2, timer_longest=0.5)


@dataclass(frozen=True)
class Ends:
    """The child's ends of the two pipes to its lane."""

    hears: int
    says: int

    def say(self, *words: object) -> None:
        # One write per short line: it can't be torn, and a kill leaves whole lines.
        with suppress(BrokenPipeError):
            os.write(self.says, (" ".join(map(str, words)) + "\n").encode())


def live(schedule: Schedule, ends: Ends, incarnation: UUID, parent: int) -> NoReturn:
    """Be a worker until killed or drained. Never returns: the lane's state in this process must not unwind."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        procfs.tie_to_parent(parent)
        sign_connections(incarnation)
        # The lane previews migrations, and so runs hooks; no thread survives a fork.
        screening._threads = ThreadPoolExecutor(8)
        if schedule.skew_days:
            skew(timedelta(days=schedule.skew_days))
        _exchange(schedule, ends)
        _report_refusals(ends)
        asyncio.run(_serve(schedule, ends, incarnation))
        code = 0
    except BaseException:
        logging.getLogger("crash.child").exception("the host died")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _exchange(schedule: Schedule, ends: Ends) -> None:
    """Replace the surroundings that a schedule makes unreliable."""
    wire = partial(LossyConnection.planned, list(schedule.losses), ends)
    hosts.AsyncConnectionPool = partial(AsyncConnectionPool, connection_class=wire())  # type: ignore[misc,assignment]
    hosts.AsyncBell = partial(PipeBell, ends)  # type: ignore[misc,assignment]
    hosts.rehearse = _as_it_comes  # the losses are counted by round trips of steps
    plain = hosts.runtime
    retry = IMPATIENT if schedule.is_impatient else PATIENT
    hosts.runtime = lambda threads=None, pool=None: replace(plain(threads, pool), retry=retry)


async def _as_it_comes(link: psycopg.AsyncConnection[Any]) -> None: ...


async def _serve(schedule: Schedule, ends: Ends, incarnation: UUID) -> None:
    presence = _take_place() if schedule.keeps_house else None
    host = LightHost(schedule, ends, incarnation, is_fenced=lambda: presence is not None and not presence.is_held)

    def hear() -> None:
        heard = os.read(ends.hears, 4096)
        if not heard:
            os._exit(0)  # the lane has closed its end: the schedule is over
        if DRAIN in heard:
            host.drain(DRAIN_SECONDS)
        host.ring()

    asyncio.get_running_loop().add_reader(ends.hears, hear)
    await host.serve()


def _take_place() -> Presence:
    """Hold a session lock as a worker process does, renewed by a thread; without it nothing is sent."""
    identity = procfs.identify(os.getpid())
    assert identity is not None
    presence = Presence(lambda: Sign("worker", identity, 0, SLOTS))

    def beat() -> None:
        while not presence.is_buried:
            presence.announce()
            presence.rest(BEAT_SECONDS)

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
    return presence


class LightHost(hosts.Host):
    """A host that tells its lane of each released run. Mostly the lane does the housekeeping."""

    def __init__(self, schedule: Schedule, ends: Ends, incarnation: UUID, *, is_fenced: Callable[[], bool]) -> None:
        super().__init__(slots=SLOTS, incarnation=incarnation, is_fenced=is_fenced)
        self._ends, self._keeps_house = ends, schedule.keeps_house
        if schedule.limits:
            self._limits = Apart(incarnation, schedule.seed)

    async def _drive(self, *given: Any, **more: Any) -> None:
        try:
            await super()._drive(*given, **more)
        finally:
            self._ends.say("left")

    async def _housekeeping(self) -> None:
        if self._keeps_house:
            await super()._housekeeping()
        else:
            await asyncio.Event().wait()


class Apart(WorkerLimits):
    """WorkerLimits under the schedule's own keys, because others have the same tools."""

    def __init__(self, worker: UUID, seed: str) -> None:
        super().__init__(worker)
        self._seed = seed

    def is_known(self, key: str) -> bool:
        return super().is_known(*own_keys(self._seed, (key,)))

    def needs_permit(self, keys: tuple[str, ...]) -> bool:
        return super().needs_permit(own_keys(self._seed, keys))

    async def take(self, keys: tuple[str, ...], asked: PermitRequest) -> Permit | Refused:
        return await super().take(own_keys(self._seed, keys), asked)

    def report(self, keys: tuple[str, ...], permit: Permit | None, told: TryResult) -> None:
        super().report(own_keys(self._seed, keys), permit, told)


def own_keys(seed: str, keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{key}@{seed}" for key in keys)


class PipeBell:
    """Tells the lane a run's progress after each commit, in the place of the host's wake-up."""

    def __init__(self, ends: Ends) -> None:
        self._ends, self.rings = ends, 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def ring(self, run_id: UUID | str, seq: int) -> None:
        self.rings += 1
        self._ends.say("at", run_id, seq)


class _Refusals(logging.Handler):
    """Counts database refusals in the host's log."""

    def __init__(self, ends: Ends) -> None:
        super().__init__()
        self._ends = ends

    def emit(self, record: logging.LogRecord) -> None:
        if "refused: stale lease" in record.getMessage():
            self._ends.say("refused")


def _report_refusals(ends: Ends) -> None:
    logging.getLogger("runs.workers.run_loop").addHandler(_Refusals(ends))


# --- connections ----------------------------------------------------------------------------------


class LossyConnection(psycopg.AsyncConnection[Any]):
    """Loses the planned questions or answers, counted in round trips over all connections of the process."""

    plan: list[tuple[int, Loss]]
    trips: list[int]
    ends: Ends

    @classmethod
    def planned(cls, plan: list[tuple[int, Loss]], ends: Ends) -> type[LossyConnection]:
        return type("PlannedConnection", (cls,), {"plan": plan, "trips": [0], "ends": ends})

    @classmethod
    async def connect(cls, *given: Any, **more: Any) -> Self:  # type: ignore[override]
        made = await super().connect(*given, **more)
        cls.ends.say("backend", made.info.backend_pid)
        return made

    async def wait(self, gen: AsyncGenerator[Any, Any], *given: Any, **more: Any) -> Any:  # type: ignore[override]
        self.trips[0] += 1
        if not self.plan or self.trips[0] < self.plan[0][0]:
            return await super().wait(gen, *given, **more)
        _, what = self.plan.pop(0)
        if what == "answer":
            await super().wait(gen, *given, **more)
        self.pgconn.finish()
        raise psycopg.OperationalError(f"the wire was cut around round trip {self.trips[0]}: its {what} is lost")


# --- clocks ---------------------------------------------------------------------------------------


def skew(by: timedelta) -> None:
    """Shift every clock of this process except the monotonic one."""
    plain = time.time
    time.time = lambda: plain() + by.total_seconds()

    class Wrong(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class WrongClock(datetime, metaclass=Wrong):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + by

        @classmethod
        def utcnow(cls) -> datetime:  # type: ignore[override]
            return datetime.now() + by

    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        is_ours = name.partition(".")[0] in ("runs", "ledger", "approvals", "durableagents")
        if is_ours and isinstance(module, types.ModuleType) and vars(module).get("datetime") is datetime:
            module.datetime = WrongClock  # type: ignore[attr-defined]
