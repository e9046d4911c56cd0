"""One django-q2 cluster of two processes: the sentinel, which has pusher and monitor threads, and one worker.

django-q2 doesn't recover from most process deaths: orphans keep running, and a worker that is killed while idle never
releases the queue's lock. So the worker dies with its sentinel, and the supervisor replaces both. Each process reports
`<role> <pid> <start time> <incarnation>` through the report pipe. The sentinel ignores SIGTERM, so that a signal to the
group only drains the worker.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import uuid
from typing import Any, NoReturn

import setproctitle
from django.db import connections
from django_q import monitor, pusher
from django_q.cluster import Sentinel
from django_q.signals import post_spawn
from django_q.worker import worker

from runs import log_messages
from runs.fleet.procfs import identify, incarnation_id, tie_to_parent
from runs.workers import worker_process

PULSE, SERVING = b"pulse\n", b"serving\n"
log = logging.getLogger("runs.workers.q2_cluster")


class Kinship:
    """Ties the worker to the sentinel that forks it, and reports both to the supervisor."""

    def __init__(self, report: int, name: str) -> None:
        self._report, self.name = report, name
        self._sentinel = os.getpid()
        self._is_active = True
        os.register_at_fork(after_in_child=self._in_child)

    def introduce(self, role: str) -> None:
        """Report this process to the supervisor."""
        identity = identify(os.getpid())
        assert identity is not None
        line = f"{role} {identity.pid} {identity.born_ticks} {incarnation_id(identity)}\n"
        os.write(
            self._report, line.encode()
        )  # The report is shorter than PIPE_BUF, so it isn't interleaved with others.

    def pulse(self, is_serving: bool) -> None:
        """Write a pulse. If the pipe is full, the supervisor is busy, and the pulse is dropped."""
        try:
            os.write(self._report, SERVING if is_serving else PULSE)
        except BlockingIOError:
            pass

    def _in_child(self) -> None:
        if self._is_active:
            tie_to_parent(self._sentinel)
            self.introduce("worker")
            self._is_active = False  # tools may fork in the worker


class HelperThread(threading.Thread):
    """A thread that replaces one of django-q2's processes. The thread belongs to the sentinel's process."""

    pid = property(lambda self: os.getpid())


class TiedSentinel(Sentinel):
    """A sentinel with one process. This sentinel never repairs a damaged cluster."""

    kinship: Kinship

    def start(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # undone by django-q2
        super().start()

    def spawn_process(self, target: Any, *args: Any) -> multiprocessing.Process | HelperThread:
        """Start the worker as a process, and then pusher and monitor as threads, because those only wait."""
        if target is not worker:
            thread = HelperThread(target=target, args=args, name=target.__name__, daemon=True)
            thread.start()
            return thread
        # A daemonic process can't have children, which tools may need.
        process = multiprocessing.Process(target=target, args=args, name=self.kinship.name, daemon=False)
        process.timer = args[2]  # type: ignore[attr-defined]
        self.pool.append(process)
        process.start()
        return process

    def reincarnate(self, process: multiprocessing.Process | HelperThread) -> NoReturn:
        """Exit instead of replacing a process.
        The dead process may hold locks of the shared queues, for which a new one could wait forever."""
        log.warning(log_messages.CHILD_LOST, process.name)
        logging.shutdown()
        os._exit(1)


def become(number: int, report: int) -> NoReturn:
    """Become the sentinel of cluster `number` until it ends. `report` is the pipe to the supervisor."""
    name = f"durableagents-{number}"
    os.set_blocking(report, False)
    # The code below requires fork, which isn't the default of newer Pythons and other platforms.
    multiprocessing.set_start_method("fork", force=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setproctitle.setproctitle(f"{name} sentinel")
    # These functions would change the title of this process.
    pusher.setproctitle = monitor.setproctitle = None
    connections.close_all()
    if threading.active_count() > 1:
        log.warning(
            log_messages.THREADS_BEFORE_FORK, ", ".join(sorted(each.name for each in threading.enumerate()[1:]))
        )
    gc.freeze()

    kinship = Kinship(report, name)
    kinship.introduce("sentinel")
    TiedSentinel.kinship = kinship
    # Signals hold receivers weakly, so a bound method of a local object would be collected at once.
    post_spawn.connect(_become_worker, dispatch_uid="runs.workers.q2_cluster.become_worker")
    multiprocessing.current_process().name = name
    TiedSentinel(multiprocessing.Event(), multiprocessing.Event(), uuid.uuid4())
    os._exit(0)


def _become_worker(**_: Any) -> None:
    """Handle django-q2's signal, which is sent once in the worker process before its first message."""
    kinship = TiedSentinel.kinship
    worker_process.start_worker(name=kinship.name, pulse=kinship.pulse)


def load() -> None:
    """Import all modules that a cluster needs, so that forked processes inherit them.

    This starts no threads or connections.
    """
    __import__("runs.workers.failover")
    __import__("runs.workers.run_loop")


def warm_up() -> None:
    """Prepare to become a cluster, or to fork clusters."""
    setproctitle.setproctitle("durableagents nursery")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()


def wait_for_number() -> int:
    """Block until the supervisor sends the cluster's number. Exit if the supervisor closes the link."""
    line = sys.stdin.readline()
    if not line.strip():
        os._exit(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, sys.stdin.fileno())
    os.close(empty)
    return int(line)
