"""What runs inside a django-q2 worker process: the host that drives runs, its sign of life, and the task that rings it.

The host doesn't live inside a task: it starts with the process and looks at the run table by itself, so runs are driven
even if no message ever arrives. A message only rings it, which takes microseconds and leaves the process free for the
next one.

A worker process ends in one of four ways, all of them final: drained after a SIGTERM (exit 0), its host died (exit 70),
it was declared dead while it lived (exit 71), or killed. The supervisor starts another in every case.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import setproctitle
from django.conf import settings
from django.db import OperationalError, connection

from runs import log_messages
from runs.background import kept, kept_thread
from runs.backoff import Patience
from runs.connections import sign_connections
from runs.engine.agents import registry
from runs.fleet import members
from runs.fleet.procfs import Identity, identify, incarnation_id
from runs.journal import pooler
from runs.workers.session_lock import Presence

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from runs.workers.run_loop import Host

BEAT_SECONDS = 1.0
PULSE_SECONDS = 1.0
# What a host gets beyond its drain deadline to cut what is still in flight, before the process ends as it is.
DRAIN_GRACE_SECONDS = 2.0
# How long a worker that was declared dead may take to find out what became of its runs.
BURIED_SECONDS = 10.0
EXIT_DRAINED, EXIT_HOST_DIED, EXIT_BURIED, EXIT_OVERDUE, EXIT_REFUSED = 0, 70, 71, 75, 78

log = logging.getLogger("runs.worker")


def drive(*run_ids: str) -> None:
    """What a run's message calls, one of two functions that may be queued: somebody made these runs ready. The ids are
    a hint, the run table decides."""
    if _worker is not None:
        _worker.ring()


def fire(*schedule_ids: str) -> None:
    """The other one: the planned time of these schedules may have come. Their rows decide."""
    from runs.workers import starts

    try:
        starts.fire([UUID(schedule_id) for schedule_id in schedule_ids])
    finally:
        connection.close()


def drain_seconds() -> float:
    """How long a drain may take; `manage.py up` stops everything within 20 s."""
    return float(settings.DURABLEAGENTS.drain_seconds)


def drain_limit_seconds() -> float:
    """The longest that a drain may take: an unsafe call that was sent just before the deadline has its own timeout
    first, for if it were cut, a person would have to find out what became of it."""
    unsafe = [tool.timeout for agent in registry.agents() for tool in agent.all_tools() if tool.is_unsafe]
    return drain_seconds() + max(unsafe, default=0.0) + DRAIN_GRACE_SECONDS


class Worker:
    """One worker process: its host on an event loop in a thread of its own, beside django-q2's task loop in the main
    thread."""

    def __init__(self, *, name: str, pulse: Callable[[bool], None]) -> None:
        identity = identify(os.getpid())
        assert identity is not None
        self._identity: Identity = identity
        self._name, self._pulse = name, pulse
        self._slots = settings.DURABLEAGENTS.slots
        self._host: Host | None = None
        self._is_draining = self._is_serving = self._is_buried = self._is_fenced = False
        self._presence = Presence(self._sign)

    def start(self) -> None:
        """From the main thread, which alone may set signal handlers."""
        sign_connections(incarnation_id(self._identity))
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._run, name="host", daemon=True).start()
        threading.Thread(target=kept_thread, args=("the heartbeat", self._beat), name="heartbeat", daemon=True).start()

    def ring(self) -> None:
        if self._host is not None:
            self._host.ring()

    # --- the host's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException:
            log.exception(log_messages.HOST_DIED, os.getpid())
            _leave(EXIT_HOST_DIED)

    async def _serve(self) -> None:
        from runs.workers.run_loop import Host

        pulse = asyncio.create_task(kept("the pulse", self._keep_pulse), name="pulse")
        await self._announce()
        host = Host(
            slots=self._slots, incarnation=incarnation_id(self._identity), is_fenced=lambda: not self._presence.is_held
        )
        self._host = host
        log.info(log_messages.WORKER_STARTED, os.getpid(), self._slots)
        asyncio.get_running_loop().call_soon(self._begins)
        if self._is_draining:
            host.drain(drain_seconds())
        await host.serve()
        pulse.cancel()
        if self._is_buried:
            _leave(EXIT_BURIED)
        if not self._is_draining:
            log.error(log_messages.HOST_LEFT, os.getpid())
            _leave(EXIT_HOST_DIED)
        await asyncio.to_thread(self._presence.announce)
        log.info(log_messages.WORKER_DRAINED, os.getpid())
        _leave(EXIT_DRAINED)

    async def _announce(self) -> None:
        """A worker that owns a run without being known to the fleet could die unnoticed: so first the row, then the
        work."""
        patience = Patience()
        while not self._is_draining:
            if await asyncio.to_thread(self._presence.announce) and await asyncio.to_thread(self._is_permitted):
                return
            await asyncio.sleep(patience.seconds())

    def _is_permitted(self) -> bool:
        """Asked once the database answers. Ends the process where its role could rewrite the record; False: ask
        again."""
        try:
            refusal = pooler.refusal()
        except OperationalError:
            return False
        if refusal:
            log.critical(log_messages.REFUSED, os.getpid(), refusal)
            _leave(EXIT_REFUSED)
        return True

    def _begins(self) -> None:
        """From now on the first look at the run table is under way: every pulse says so, for one may be lost."""
        self._is_serving = True
        self._pulse(True)

    async def _keep_pulse(self) -> None:
        """Beaten by the loop that drives the runs: a loop that is stuck or a process that is stopped has none."""
        while True:
            self._pulse(self._is_serving)
            await asyncio.sleep(PULSE_SECONDS)

    # --- the other threads ------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while True:
            self._presence.rest(BEAT_SECONDS)
            sign = self._sign()
            setproctitle.setproctitle(f"{self._name} worker: {sign.slots_used} of {sign.slots_total} slots")
            self._presence.announce()
            self._say_whether_fenced()
            if self._presence.is_buried:
                self._on_buried()
                return
            if self._presence.is_drain_asked and not self._is_draining:
                os.kill(os.getpid(), signal.SIGTERM)  # its handler is the main thread's

    def _say_whether_fenced(self) -> None:
        is_fenced = not self._presence.is_held and not self._presence.is_buried
        if is_fenced != self._is_fenced:
            self._is_fenced = is_fenced
            log.log(
                logging.WARNING if is_fenced else logging.INFO,
                log_messages.WORKER_FENCED if is_fenced else log_messages.WORKER_BACK,
                os.getpid(),
            )

    def _sign(self) -> members.Sign:
        host = self._host
        if host is None:
            return members.Sign("worker", self._identity, 0, self._slots)
        return members.Sign("worker", self._identity, host.slots_used, self._slots, host.busy_tools)

    def _on_buried(self) -> None:
        """Others believe that this worker is dead and have taken its runs. It claims and sends nothing more, lets its
        drives find out by their first refused write (answers that they hold are handed in), and ends: its incarnation
        is used up."""
        self._is_buried = True
        log.warning(log_messages.WORKER_BURIED, os.getpid())
        overdue = threading.Timer(BURIED_SECONDS + DRAIN_GRACE_SECONDS, _leave, [EXIT_BURIED])
        overdue.daemon = True
        overdue.start()
        if self._host is not None:
            self._host.drain(BURIED_SECONDS)

    def _on_sigterm(self, *_: Any) -> None:
        """Drain. A further signal changes nothing: the supervisor's second one is SIGKILL."""
        if self._is_draining:
            return
        self._is_draining = True
        seconds = drain_seconds()
        log.info(log_messages.WORKER_DRAINING, os.getpid(), seconds)
        threading.Thread(target=self._give_up, name="overdue", daemon=True).start()
        if self._host is not None:
            self._host.drain(seconds)

    def _give_up(self) -> None:
        """End the process as it is when its time is over; while an unsafe call is in flight, when that one's is."""
        pause, began = threading.Event(), time.monotonic()
        pause.wait(drain_seconds() + DRAIN_GRACE_SECONDS)
        while self._host is not None and self._host.unsafe_calls and time.monotonic() - began < drain_limit_seconds():
            pause.wait(BEAT_SECONDS)
        log.warning(log_messages.WORKER_OVERDUE, os.getpid())
        _leave(EXIT_OVERDUE)


_worker: Worker | None = None


def start_worker(*, name: str, pulse: Callable[[bool], None]) -> None:
    """Make this process a worker. `pulse` is called once a second from inside the event loop, with whether runs are
    driven yet."""
    global _worker
    _worker = Worker(name=name, pulse=pulse)
    _worker.start()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: it is optional, and not for every platform."""
    return None if uvloop is None else uvloop.new_event_loop


def _leave(code: int) -> None:
    """End the process from whichever thread: a normal exit would wait for django-q2's loop and for tools' threads."""
    logging.shutdown()
    os._exit(code)
