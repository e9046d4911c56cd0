"""`manage.py worker`: keeps N clusters running.

If any process of a cluster dies, the whole cluster is killed and replaced. The worker is reported with proof that it is
gone, and only then may its runs continue elsewhere. On SIGUSR1, workers are replaced one by one with the code on disk.
Nothing is forked while there are threads or connections: the first nursery is forked before there are any, later ones
start by exec, and the database has its own thread.
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
import socket
import threading
from time import monotonic
from types import FrameType

from runs import log_messages
from runs.backoff import pause_seconds
from runs.fleet import members
from runs.fleet.members import Sign, identify
from runs.fleet.procfs import adopt_orphans, reap_orphans
from runs.workers import q2_cluster
from runs.workers.death_reports import Clerk
from runs.workers.forkserver import CAN_BEAR, Nursery, by_fork
from runs.workers.helpers import helpers
from runs.workers.process_group import Tree, new_nursery
from runs.workers.worker_process import drain_limit_seconds, drain_seconds

TICK_SECONDS = 0.25
# The loop checks more often than this only while a killed tree is ending.
FALLING_TICK_SECONDS = 0.01
# A cluster that ended before this age died early. Five in a row are replaced at once, further ones after growing
# delays.
YOUNG_SECONDS = 3.0
YOUNG_DEATHS_FREE = 5
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 4.0
NURSERY_PAUSE_SECONDS = 1.0
GOODBYE_SECONDS, HELPER_SECONDS = 2.0, 1.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("runs.workers.supervisor")


class Supervisor:
    def __init__(self, *, processes: int, slots: int, report_fd: int | None = None) -> None:
        identity = identify(os.getpid())
        assert identity is not None
        self._me = Sign("supervisor", identity)
        self._count, self._slots = processes, slots
        self._trees: dict[int, Tree] = {}
        self._falling: list[Tree] = []
        self._nursery: Nursery | None = None
        self._nursery_at = 0.0
        self._start_at = dict.fromkeys(range(1, processes + 1), 0.0)
        self._young_deaths: dict[int, int] = {}
        self._to_renew: list[int] = []
        self._is_renewing = False
        self._coming: Tree | None = None
        self._leaving: dict[Tree, float] = {}
        self._drain_until: float | None = None
        self._is_cut = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._signs = [self._me]
        self._clerk = Clerk(lambda: self._signs)
        self._report = members.Report(report_fd)
        self._helpers = helpers()

    def run(self) -> int:
        """Run until stopped. Returns the exit code: 0, or 1 if a second signal cut the drain short."""
        adopt_orphans()
        self._fork_nursery()
        self._hear_signals()
        log.info(log_messages.SUPERVISOR_STARTED, os.getpid(), self._count, self._slots)
        self._clerk.start()
        self._check()
        while self._is_wanted():
            for key, _ in self._selector.select(FALLING_TICK_SECONDS if self._falling else TICK_SECONDS):
                if key.fileobj is self._wake:
                    self._on_signals()
            self._check()
        self._end_helpers()
        if not self._is_cut:
            self._clerk.close(GOODBYE_SECONDS)
        self._reap()
        log.info(log_messages.STOPPED)
        return 1 if self._is_cut else 0

    def _is_wanted(self) -> bool:
        return self._drain_until is None or bool(self._trees or self._leaving or self._falling)

    def _check(self) -> None:
        """Do one turn: read reports, replace broken trees, handle dead ones."""
        for tree in list(self._trees.values()):
            self._hear(tree)
            if self._drain_until is None:
                if reason := tree.trouble():
                    self._replace(tree, reason)
            elif self._is_drained(tree, self._drain_until):
                self._fell(tree)
        for tree, until in list(self._leaving.items()):
            self._hear(tree)
            if self._is_drained(tree, until):
                self._fell(tree)
        self._reap()
        for tree in list(self._falling):
            self._watch_fall(tree)
        if self._drain_until is None:
            self._keep_nursery()
            self._start_missing()
            self._renew()
            for helper in self._helpers:
                helper.keep()
        signs = [self._me, *(sign for tree in self._everyone() for sign in tree.signs())]
        if signs != self._signs:
            self._signs = signs
            self._clerk.beat_now()

    def _everyone(self) -> list[Tree]:
        coming = [] if self._coming is None else [self._coming]
        return [*self._trees.values(), *coming, *self._leaving]

    # --- starting clusters --------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        for number, at in list(self._start_at.items()):
            if monotonic() < at or not self._can_start():
                continue
            try:
                tree = self._new_tree(number)
            except OSError as error:
                self._start_at[number] = monotonic() + NURSERY_PAUSE_SECONDS
                log.error(log_messages.CLUSTER_NOT_STARTED, number, error, NURSERY_PAUSE_SECONDS)
                continue
            del self._start_at[number]
            self._trees[number] = tree
            log.info(log_messages.CLUSTER_STARTED, number, tree.sentinel_pid)

    def _fork_nursery(self) -> None:
        """Fork the first nursery, which shares memory, while this process may still be forked."""
        if not CAN_BEAR or threading.active_count() > 1:
            return
        q2_cluster.load()
        gc.collect()
        gc.freeze()
        try:
            self._nursery = Nursery(by_fork(q2_cluster.warm_up, q2_cluster.become, self._forget))
        except OSError as error:
            log.error(log_messages.CLUSTER_NOT_STARTED, 0, error, NURSERY_PAUSE_SECONDS)
            return
        self._selector.register(self._nursery, selectors.EVENT_READ)

    def _forget(self) -> None:
        self._selector.close()
        self._wake.close()
        self._waker.close()

    def _keep_nursery(self) -> None:
        """Keep a nursery running that has the code of the latest renewal."""
        if not CAN_BEAR:
            return
        if self._nursery is not None:
            self._nursery.listen()
            if reason := self._nursery.trouble():
                log.warning(log_messages.NURSERY_LOST, self._nursery.pid, reason)
                self._end_nursery()
                if self._to_renew and self._coming is None:
                    self._give_renewal_up(self._to_renew[0], f"the process from which it would be forked {reason}")
        elif monotonic() >= self._nursery_at:
            self._nursery_at = monotonic() + NURSERY_PAUSE_SECONDS
            try:
                self._nursery = new_nursery()
            except OSError as error:
                log.error(log_messages.CLUSTER_NOT_STARTED, 0, error, NURSERY_PAUSE_SECONDS)
                return
            self._selector.register(self._nursery, selectors.EVENT_READ)

    def _end_nursery(self) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            self._selector.unregister(nursery)
            nursery.end()

    def _can_start(self) -> bool:
        return not CAN_BEAR or (self._nursery is not None and self._nursery.is_warm)

    def _new_tree(self, number: int) -> Tree:
        try:
            tree = Tree(number, self._nursery)
        except OSError:
            self._end_nursery()
            raise
        self._selector.register(tree.report, selectors.EVENT_READ)
        return tree

    def _hear(self, tree: Tree) -> None:
        was_ready = tree.is_ready
        for member in tree.listen():
            if member.handle is not None:
                self._selector.register(member.handle, selectors.EVENT_READ)
        if tree.is_ready and not was_ready and tree.worker is not None:
            log.info(log_messages.CLUSTER_READY, tree.number, tree.age_seconds, tree.worker.identity.pid)

    # --- ending clusters ----------------------------------------------------------------------------------------------

    def _replace(self, tree: Tree, reason: str) -> None:
        is_young = tree.age_seconds < YOUNG_SECONDS
        deaths = self._young_deaths[tree.number] = self._young_deaths.get(tree.number, 0) + 1 if is_young else 0
        pause = pause_seconds(deaths - YOUNG_DEATHS_FREE, first=FIRST_BACKOFF_SECONDS, longest=MAX_BACKOFF_SECONDS)
        log.warning(
            log_messages.CLUSTER_DIED,
            tree.number,
            reason,
            f" in {pause:g} s: it keeps dying soon after its start" if pause else "",
        )
        self._start_at[tree.number] = monotonic() + pause
        self._fell(tree)

    def _fell(self, tree: Tree) -> None:
        if self._trees.get(tree.number) is tree:
            del self._trees[tree.number]
        if self._coming is tree:
            self._coming = None
        self._leaving.pop(tree, None)
        for handle in tree.handles():
            self._selector.unregister(handle)
        tree.kill()
        self._falling.append(tree)
        self._watch_fall(tree)

    def _watch_fall(self, tree: Tree) -> None:
        """Report the worker once it is really dead: having sent a signal proves nothing.
        Forget the tree when all its processes are dead."""
        tree.listen()
        worker = tree.worker
        if worker is not None and worker.is_dead and not tree.is_reported:
            tree.is_reported = True
            self._clerk.report(
                worker.incarnation,
                f"process {worker.identity.pid} with start time {worker.identity.born_ticks} has ended; "
                f"supervisor {os.getpid()} saw it",
            )
        if tree.is_over():
            tree.close()
            self._falling.remove(tree)

    def _reap(self) -> None:
        """Reap orphans in every turn, because adopted processes may end long after their tree."""
        known = {tree.sentinel_pid for tree in (*self._everyone(), *self._falling)}
        reap_orphans(known if self._nursery is None else known | {self._nursery.pid})

    # --- renewing ---

    def _begin_renewal(self) -> None:
        """Start a renewal, or restart a running one, because the code may have changed since."""
        self._to_renew, self._is_renewing = list(range(1, self._count + 1)), True
        log.info(log_messages.RENEWING, self._count)
        self._end_nursery()  # the nursery has loaded the old code
        for helper in self._helpers:
            helper.terminate()  # these also have old code, and are started again
        self._nursery_at = 0.0

    def _renew(self) -> None:
        """Do one step of a renewal, which replaces one worker at a time and runs at most one extra worker."""
        if self._coming is not None:
            self._hear(self._coming)
            if self._coming.trouble():
                self._give_renewal_up(self._coming.number, self._coming.trouble(), self._coming)
            elif self._coming.is_serving:
                self._change_over(self._coming)
        elif self._to_renew and not self._leaving and not self._start_at and self._can_start():
            number = self._to_renew.pop(0)
            try:
                self._coming = self._new_tree(number)
            except OSError as error:
                self._to_renew.insert(0, number)
                log.error(log_messages.CLUSTER_NOT_STARTED, number, error, TICK_SECONDS)
                return
        elif self._is_renewing and not self._to_renew and not self._leaving:
            self._is_renewing = False
            log.info(log_messages.RENEWAL_DONE)
            self._report.write(members.DONE)

    def _change_over(self, new: Tree) -> None:
        old, self._coming = self._trees.get(new.number), None
        self._trees[new.number] = new
        self._start_at.pop(new.number, None)
        log.info(log_messages.RENEWED, new.number, "" if new.worker is None else new.worker.identity.pid)
        if old is not None:
            self._leaving[old] = monotonic() + drain_limit_seconds()
            if not old.drain():
                self._fell(old)

    def _give_renewal_up(self, number: int, reason: str | None, tree: Tree | None = None) -> None:
        log.error(log_messages.RENEWAL_GIVEN_UP, number, reason)
        self._report.write(f"{members.GIVEN_UP}{reason}")
        self._to_renew, self._is_renewing = [], False
        if tree is not None:
            self._fell(tree)

    # --- stopping -----------------------------------------------------------------------------------------------------

    def _hear_signals(self) -> None:
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for each in (*_STOP_SIGNALS, members.SIGNAL):
            signal.signal(each, _woken)
        self._selector.register(self._wake, selectors.EVENT_READ)

    def _on_signals(self) -> None:
        for signum in self._wake.recv(64):
            if signum == members.SIGNAL and self._drain_until is None:
                self._begin_renewal()
            if signum not in _STOP_SIGNALS:
                continue
            if self._drain_until is None:
                self._drain()
            else:
                self._cut()

    def _drain(self) -> None:
        self._drain_until = monotonic() + drain_limit_seconds()
        log.info(log_messages.DRAINING, len(self._trees), drain_seconds())
        self._end_nursery()
        if self._coming is not None:
            self._fell(self._coming)
        for tree in list(self._trees.values()):
            self._hear(tree)
            if not tree.is_ready or not tree.drain():
                self._fell(tree)

    def _is_drained(self, tree: Tree, until: float) -> bool:
        """Return whether there is nothing left to wait for."""
        if tree.worker is None or tree.worker.is_dead:
            return True
        if monotonic() < until:
            return False
        log.warning(log_messages.DRAIN_CUT, tree.number)
        return True

    def _cut(self) -> None:
        if not self._is_cut:
            self._is_cut = True
            log.warning(log_messages.STOPPING_NOW)
            for tree in self._everyone():
                self._fell(tree)

    def _end_helpers(self) -> None:
        """End the helper processes after the workers, because helpers may process the workers' last steps."""
        for helper in self._helpers:
            helper.terminate()
        until = monotonic() + (0.0 if self._is_cut else HELPER_SECONDS)
        for helper in self._helpers:
            helper.end(until - monotonic())


def _woken(signum: int, frame: FrameType | None) -> None:
    """Do nothing. A handler replaces the signal's default action; the wakeup descriptor notifies the loop."""
