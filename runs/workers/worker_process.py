"""A django-q2 worker process with the host that drives runs; messages only wake it.
Unless it is killed, it exits when it has drained after SIGTERM (0), when its host has died (70), when it was declared
dead (71), when a drain takes too long (75), or when it may not serve (78)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import setproctitle
from django.conf import settings
from django.db import OperationalError

from runs import features, log_messages
from runs.background import kept_thread, run_forever
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
# Time after the drain deadline in which the host cuts off what is in flight, before the process exits.
DRAIN_GRACE_SECONDS = 2.0
# Time for a worker that was declared dead to find out about its runs and report their results.
BURIED_SECONDS = 10.0
EXIT_DRAINED, EXIT_HOST_DIED, EXIT_BURIED, EXIT_OVERDUE, EXIT_REFUSED = 0, 70, 71, 75, 78

log = logging.getLogger("runs.worker")


def drive(*run_ids: str) -> None:
    """Wake the host, because these runs became ready.
    The ids are only hints; the run table decides. This is the only function that may be queued."""
    if _worker is not None:
        _worker.ring()


def drain_seconds() -> float:
    """Return how long a drain may take. `manage.py up` stops everything within 20 s."""
    return float(settings.DURABLEAGENTS.drain_seconds)


def drain_limit_seconds() -> float:
    """Return a drain's longest duration.
    Unsafe calls keep their own timeout, because if one is cut off, a person must settle its outcome."""
    unsafe = [tool.timeout for agent in registry.agents() for tool in agent.all_tools() if tool.is_unsafe]
    return drain_seconds() + max(unsafe, default=0.0) + DRAIN_GRACE_SECONDS


class Worker:
    """One worker process.
    The worker's host runs on an event loop in a thread of its own, next to django-q2's loop in the main thread."""

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
        """Start the threads. Call this in the main thread, because of the signal handlers."""
        sign_connections(incarnation_id(self._identity))
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._run, name="host", daemon=True).start()
        threading.Thread(target=kept_thread, args=("the heartbeat", self._beat), name="heartbeat", daemon=True).start()

    def ring(self) -> None:
        if self._host is not None:
            self._host.ring()

    # --- the host's thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException:
            log.exception(log_messages.HOST_DIED, os.getpid())
            _leave(EXIT_HOST_DIED)

    async def _serve(self) -> None:
        from runs.workers.run_loop import Host

        pulse = asyncio.create_task(run_forever("the pulse", self._keep_pulse), name="pulse")
        await self._announce()
        host = Host(slots=self._slots, incarnation=incarnation_id(self._identity), is_fenced=_fence(self._presence))
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
        """Write the worker's row before claiming. Otherwise its death with a run could go unnoticed."""
        patience = Patience()
        while not self._is_draining:
            if await asyncio.to_thread(self._presence.announce) and await asyncio.to_thread(self._is_permitted):
                return
            await asyncio.sleep(patience.seconds())

    def _is_permitted(self) -> bool:
        """Return whether this process may serve; False if the database didn't answer. Exits if it must not."""
        try:
            refusal = pooler.refusal() or features.serving_refusal("worker")
        except OperationalError:
            return False
        if refusal:
            log.critical(log_messages.REFUSED, os.getpid(), refusal)
            _leave(EXIT_REFUSED)
        return True

    def _begins(self) -> None:
        """Record that runs are driven from now on. Every pulse reports that, because a pulse may be lost."""
        self._is_serving = True
        self._pulse(True)

    async def _keep_pulse(self) -> None:
        """Send pulses from the loop that drives the runs.

        So there is no pulse from a stuck loop or a stopped process.
        """
        while True:
            self._pulse(self._is_serving)
            await asyncio.sleep(PULSE_SECONDS)

    # --- the other threads --------------------------------------------------------------------------------------------

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
                os.kill(os.getpid(), signal.SIGTERM)  # the signal handler belongs to the main thread

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
        """After being declared dead, stop claiming and sending, and then end.
        The incarnation can't be used again. Drivers notice by their first refused write, and report the results that
        they have."""
        self._is_buried = True
        log.warning(log_messages.WORKER_BURIED, os.getpid())
        overdue = threading.Timer(BURIED_SECONDS + DRAIN_GRACE_SECONDS, _leave, [EXIT_BURIED])
        overdue.daemon = True
        overdue.start()
        if self._host is not None:
            self._host.drain(BURIED_SECONDS)

    def _on_sigterm(self, *_: Any) -> None:
        """Drain. Further signals have no effect. The supervisor's second one is SIGKILL."""
        if self._is_draining:
            return
        self._is_draining = True
        seconds = drain_seconds()
        log.info(log_messages.WORKER_DRAINING, os.getpid(), seconds)
        threading.Thread(target=self._give_up, name="overdue", daemon=True).start()
        if self._host is not None:
            self._host.drain(seconds)

    def _give_up(self) -> None:
        """Exit when the drain time is over and no unsafe call is in progress, but at the latest at the drain limit."""
        pause, began = threading.Event(), time.monotonic()
        pause.wait(drain_seconds() + DRAIN_GRACE_SECONDS)
        while self._host is not None and self._host.unsafe_calls and time.monotonic() - began < drain_limit_seconds():
            pause.wait(BEAT_SECONDS)
        log.warning(log_messages.WORKER_OVERDUE, os.getpid())
        _leave(EXIT_OVERDUE)


def _fence(presence: Presence) -> Callable[[], bool]:
    """Return a function that tells whether this worker must not claim or send anything at the moment."""
    fences = tuple(features.parts_of_all(lambda each: each.fences))
    if not fences:
        return lambda: not presence.is_held
    return lambda: not presence.is_held or any(fence() for fence in fences)


_worker: Worker | None = None


def start_worker(*, name: str, pulse: Callable[[bool], None]) -> None:
    """Make this process a worker.
    `pulse` is called each second from the event loop; its argument tells whether the worker already serves."""
    global _worker
    _worker = Worker(name=name, pulse=pulse)
    _worker.start()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if that optional package is installed, else None."""
    return None if uvloop is None else uvloop.new_event_loop


def _leave(code: int) -> None:
    """Exit from any thread.

    Exit the process at once: a normal exit would wait for django-q2's loop and for tools' threads.
    """
    logging.shutdown()
    os._exit(code)
