"""One django-q2 cluster with one worker process: main → sentinel → worker, pusher, monitor.

django-q2 survives few deaths: orphans go on, and a worker killed while idle holds the queue's lock. So every process
dies with its parent, and the supervisor replaces the whole tree. Each process reports `<role> <pid> <start time>
<incarnation>` through the report pipe. All but the worker ignore SIGTERM, so that a signal to the group drains.
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
from django_q.cluster import Sentinel
from django_q.signals import post_spawn
from django_q.worker import worker

from runs import log_messages
from runs.fleet.procfs import identify, incarnation_id, tie_to_parent
from runs.workers import worker_process

PULSE, SERVING = b"pulse\n", b"serving\n"
log = logging.getLogger("runs.workers.q2_cluster")


class Kinship:
    """Ties each forked process to its parent, and reports it, before it does anything else."""

    def __init__(self, report: int, name: str) -> None:
        self._report, self.name = report, name
        self._forker = os.getpid()
        self._next_role = ""
        self._is_active = True
        os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def introduce(self, role: str) -> None:
        """Report this process to the supervisor."""
        identity = identify(os.getpid())
        assert identity is not None
        line = f"{role} {identity.pid} {identity.born_ticks} {incarnation_id(identity)}\n"
        os.write(self._report, line.encode())  # shorter than PIPE_BUF, so it isn't interleaved

    def expect(self, role: str) -> None:
        self._next_role = role

    def pulse(self, is_serving: bool) -> None:
        """Write a pulse; if the pipe is full, the supervisor is busy and can do without one."""
        try:
            os.write(self._report, SERVING if is_serving else PULSE)
        except BlockingIOError:
            pass

    def _before(self) -> None:
        self._forker = os.getpid()

    def _in_child(self) -> None:
        if not self._is_active:
            return
        tie_to_parent(self._forker)
        self.introduce(self._next_role)
        # Only main and sentinel fork for django-q2; a tool may fork in the worker as it likes.
        self._is_active = self._next_role == "sentinel"


class TiedSentinel(Sentinel):
    """A sentinel with tied children that never repairs a damaged cluster."""

    kinship: Kinship

    def start(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        setproctitle.setproctitle(f"{self.kinship.name} sentinel")
        super().start()

    def spawn_process(self, target: Any, *args: Any) -> multiprocessing.Process:
        """Spawn with a role, and a name that is readable in `ps`."""
        role = target.__name__
        self.kinship.expect(role)
        is_worker = target is worker
        # A daemonic process can't have children, which a tool may need.
        process = multiprocessing.Process(target=target, args=args, name=self.kinship.name, daemon=not is_worker)
        if is_worker:
            process.timer = args[2]  # type: ignore[attr-defined]
            self.pool.append(process)
        process.start()
        return process

    def reincarnate(self, process: multiprocessing.Process) -> NoReturn:
        """Exit instead: the dead process may hold locks of the shared queues, so a new one could wait forever."""
        log.warning(log_messages.CHILD_LOST, process.pid)
        logging.shutdown()
        os._exit(1)


def become(number: int, report: int) -> NoReturn:
    """Become the main process of cluster `number` until it ends. `report` is the pipe to the supervisor."""
    name = f"durableagents-{number}"
    os.set_blocking(report, False)
    # The code below requires fork; newer Pythons and other platforms have another default.
    multiprocessing.set_start_method("fork", force=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setproctitle.setproctitle(f"{name} main")
    connections.close_all()
    if threading.active_count() > 1:
        log.warning(
            log_messages.THREADS_BEFORE_FORK, ", ".join(sorted(each.name for each in threading.enumerate()[1:]))
        )
    gc.freeze()

    kinship = Kinship(report, name)
    kinship.introduce("main")
    TiedSentinel.kinship = kinship
    # Signals hold receivers weakly: a bound method of a local would be collected at once.
    post_spawn.connect(_become_worker, dispatch_uid="runs.workers.q2_cluster.become_worker")
    kinship.expect("sentinel")
    started, stopped = multiprocessing.Event(), multiprocessing.Event()
    sentinel = multiprocessing.Process(target=TiedSentinel, args=(stopped, started, uuid.uuid4()), name=name)
    sentinel.start()
    sentinel.join()
    os._exit(sentinel.exitcode or 0)


def _become_worker(**_: Any) -> None:
    """Handle django-q2's signal, sent once in the worker process before its first message."""
    kinship = TiedSentinel.kinship
    worker_process.start_worker(name=kinship.name, pulse=kinship.pulse)


def load() -> None:
    """Import all that a cluster needs, without threads or connections: forked processes inherit it."""
    __import__("runs.workers.failover")
    __import__("runs.workers.run_loop")


def warm_up() -> None:
    """Prepare to become a cluster, or to fork some."""
    setproctitle.setproctitle("durableagents nursery")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()


def wait_for_number() -> int:
    """Block until the supervisor sends the cluster's number; exit if it hangs up."""
    line = sys.stdin.readline()
    if not line.strip():
        os._exit(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, sys.stdin.fileno())
    os.close(empty)
    return int(line)
