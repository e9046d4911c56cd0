"""The supervisor's thread for the database: heartbeats and death reports.
The supervisor itself never waits for the database."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from uuid import UUID

from django.db import DatabaseError, close_old_connections, connections

from runs import log_messages
from runs.backoff import Patience
from runs.fleet import members, procfs
from runs.workers.failover import worker_died

BEAT_SECONDS = 5.0
# The supervisor and the watcher of the fleet's rows may both report a death, almost at the same time. At most this many
# other deaths are reported in between.
REMEMBERED = 256
log = logging.getLogger("runs.workers.supervisor")


class Clerk:
    """Reports every death until the database has accepted it, and keeps this host's rows up to date."""

    def __init__(self, signs: Callable[[], list[members.Sign]]) -> None:
        self._signs = signs
        self._deaths: dict[UUID, str] = {}
        self._delayed: set[UUID] = set()
        self._taken: deque[UUID] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._is_closing = False
        self._patience = Patience()
        self._thread = threading.Thread(target=self._run, name="clerk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def report(self, incarnation: UUID, proof: str) -> None:
        """Report a worker as dead, so that its runs continue elsewhere. Returns at once; repeated reports are
        ignored."""
        with self._lock:
            if incarnation not in self._taken:
                self._deaths.setdefault(incarnation, proof)
        self._woken.set()

    def beat_now(self) -> None:
        self._woken.set()

    def close(self, patience_seconds: float) -> None:
        """Report the remaining deaths and the supervisor's own end, within a time limit.
        The next supervisor finds the deaths that could not be reported by then."""
        self._is_closing = True
        self._woken.set()
        self._thread.join(patience_seconds)

    def _run(self) -> None:
        beat_at = 0.0
        while True:
            try:
                is_done = self._report_all()
                if self._woken.is_set() or monotonic() >= beat_at:
                    self._woken.clear()
                    self._keep_rows()
                    beat_at = monotonic() + BEAT_SECONDS
            except Exception:
                # Whatever the error was, the next death must still be reported.
                log.exception("an error in the supervisor's database thread; it continues")
                is_done = False
            if self._is_closing and is_done and not self._deaths:
                self._say_goodbye()
                return
            self._woken.wait(BEAT_SECONDS if is_done else self._patience.seconds())

    def _report_all(self) -> bool:
        with self._lock:
            waiting = list(self._deaths.items())
        outcomes = [self._report_one(incarnation, proof) for incarnation, proof in waiting]
        return all(outcomes)

    def _report_one(self, incarnation: UUID, proof: str) -> bool:
        try:
            close_old_connections()
            worker_died(incarnation, proof)
        except Exception as error:
            if incarnation not in self._delayed:
                self._delayed.add(incarnation)
                trace = None if isinstance(error, DatabaseError) else error
                log.warning(log_messages.DEATH_NOT_REPORTED, incarnation, type(error).__name__, exc_info=trace)
            return False
        # Removed only now: if this supervisor dies before the report, the next one still finds the process recorded as
        # alive.
        members.bury(incarnation)
        self._patience.reset()
        with self._lock:
            self._taken.append(incarnation)
            self._deaths.pop(incarnation, None)
        # Recovery logs the consequences for the runs, so the report itself is only logged if it was late.
        log.log(
            logging.INFO if incarnation in self._delayed else logging.DEBUG,
            log_messages.DEATH_REPORTED,
            incarnation,
            proof,
        )
        self._delayed.discard(incarnation)
        return True

    def _keep_rows(self) -> None:
        members.beat_all(self._signs())
        for gone in members.gone_here():
            if gone.kind == "worker":
                self.report(gone.id, f"no process {gone.pid} with start time {gone.born_ticks} on {procfs.host()}")
            else:
                members.bury(gone)

    def _say_goodbye(self) -> None:
        self._keep_rows()
        for sign in self._signs():
            members.bury(members.incarnation_id(sign.identity))
        members.hang_up()
        connections.close_all()
