"""One django-q2 cluster with one worker process: main → sentinel → worker, pusher, monitor.

Left alone, django-q2 survives few deaths: a dead main leaves orphans that go on working, a dead sentinel too, and a
worker killed while idle stops the cluster silently, because it dies with the queue's lock in its hands. So here every
process is tied to its parent's death, nothing is reincarnated inside a cluster, and the supervisor replaces the whole
tree when any of it dies.

Every process tells the supervisor who it is through the report pipe: `<role> <pid> <start time> <incarnation>`. The
worker's event loop beats its pulse through the same pipe. All but the worker ignore SIGTERM, so a signal to the whole
group (a service manager does that) drains rather than tears.
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
    """Ties each process forked here to its parent, and reports it, before it does anything else."""

    def __init__(self, report: int, name: str) -> None:
        self._report, self.name = report, name
        self._forker = os.getpid()
        self._next_role = ""
        self._is_active = True
        os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def introduce(self, role: str) -> None:
        """Tell the supervisor who this process is."""
        identity = identify(os.getpid())
        assert identity is not None
        line = f"{role} {identity.pid} {identity.born_ticks} {incarnation_id(identity)}\n"
        os.write(self._report, line.encode())  # shorter than PIPE_BUF: never mixed with another's

    def expect(self, role: str) -> None:
        self._next_role = role

    def pulse(self, is_serving: bool) -> None:
        """A full pipe means that the supervisor is busy, and then one sign of life more or less says nothing."""
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
        # Only main and sentinel fork for django-q2; what a tool forks in the worker is its own business.
        self._is_active = self._next_role == "sentinel"


class TiedSentinel(Sentinel):
    """A sentinel whose children are tied to it, and that never patches a cluster with a hole in it."""

    kinship: Kinship

    def start(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        setproctitle.setproctitle(f"{self.kinship.name} sentinel")
        super().start()

    def spawn_process(self, target: Any, *args: Any) -> multiprocessing.Process:
        """As the original, with a role, and with a name that a person can read in `ps`."""
        role = target.__name__
        self.kinship.expect(role)
        is_worker = target is worker
        # A daemonic process may have no children, and a tool may want some.
        process = multiprocessing.Process(target=target, args=args, name=self.kinship.name, daemon=not is_worker)
        if is_worker:
            process.timer = args[2]  # type: ignore[attr-defined]
            self.pool.append(process)
        process.start()
        return process

    def reincarnate(self, process: multiprocessing.Process) -> NoReturn:
        """The dead may hold locks of the shared queues, so a new process among the old ones may wait for ever."""
        log.warning(log_messages.CHILD_LOST, process.pid)
        logging.shutdown()
        os._exit(1)


def become(number: int, report: int) -> NoReturn:
    """Become the main process of cluster `number` and end with it. `report` is the pipe to the supervisor."""
    name = f"durableagents-{number}"
    os.set_blocking(report, False)
    # Everything below is written for fork; newer Pythons and other platforms have another default.
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
    # A bound method of a local would be collected at once: signals hold their receivers weakly.
    post_spawn.connect(_become_worker, dispatch_uid="runs.workers.q2_cluster.become_worker")
    kinship.expect("sentinel")
    started, stopped = multiprocessing.Event(), multiprocessing.Event()
    sentinel = multiprocessing.Process(target=TiedSentinel, args=(stopped, started, uuid.uuid4()), name=name)
    sentinel.start()
    sentinel.join()
    os._exit(sentinel.exitcode or 0)


def _become_worker(**_: Any) -> None:
    """django-q2 sends this signal in the worker process only, once, before it takes the first message."""
    kinship = TiedSentinel.kinship
    worker_process.start_worker(name=kinship.name, pulse=kinship.pulse)


def load() -> None:
    """Load all that a cluster needs, with no thread and no connection: what is forked from here inherits it."""
    __import__("runs.workers.failover")
    __import__("runs.workers.run_loop")


def warm_up() -> None:
    """Be ready to become a cluster, or to fork some."""
    setproctitle.setproctitle("durableagents nursery")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()


def wait_for_number() -> int:
    """Block until the supervisor says which cluster this is to be. Ends the process if the supervisor hangs up."""
    line = sys.stdin.readline()
    if not line.strip():
        os._exit(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, sys.stdin.fileno())
    os.close(empty)
    return int(line)
