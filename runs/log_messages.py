"""The fleet's log messages for operators, one line for each event that may need action."""

from __future__ import annotations

import logging

from ledger.errors import first_line

SUPERVISOR_STARTED = "supervisor %d watches %d worker process(es) with %d slots each"
CLUSTER_STARTED = "cluster %d started: sentinel %d"
CLUSTER_READY = "cluster %d is ready after %.1f s: worker %d"
CLUSTER_DIED = "cluster %d: %s; ending all of it and starting it again%s"
CLUSTER_NOT_STARTED = "cluster %d could not be started (%s); next attempt in %.1f s"
HELPER_DIED = "helper %s ended with code %s; starting it again in %.1f s"
HELPER_NOT_STARTED = "helper %s could not be started (%s); next attempt in %.1f s"
NURSERY_LOST = "process %d, which clusters are forked from, %s; starting another"
DEATH_REPORTED = "worker %s reported dead: %s"
DEATH_NOT_REPORTED = "the death of worker %s can't be reported yet (%s); trying on"
LARGE_JOURNAL = "run %s: its journal has %d events by now; an agent that never ends should renew its run"
LARGE_STATE = "run %s: its state has %d bytes, and each step writes all of it: keep large parts elsewhere"
RENEWING = "renewing %d worker process(es), one after the other"
RENEWED = "cluster %d is renewed: worker %s serves, the one before drains"
RENEWAL_DONE = "all worker processes are renewed"
RENEWAL_GIVEN_UP = "the renewal is given up at cluster %d: %s; the workers of before go on"
DRAINING = "draining %d worker process(es), %g s at most"
DRAIN_CUT = "cluster %d was not drained in time and is ended; its runs continue on other workers"
STOPPING_NOW = "second signal: stopping at once"
STOPPED = "supervisor stopped"

WORKER_STARTED = "worker %d drives up to %d runs"
WORKER_DRAINING = "worker %d drains: finishing steps, %g s at most"
WORKER_DRAINED = "worker %d drained"
WORKER_OVERDUE = "worker %d did not drain in time and ends now"
WORKER_BURIED = "worker %d was declared dead while it was alive: it stops at once, and another worker is started"
WORKER_FENCED = "worker %d has lost its registration: it claims and sends nothing until it re-registers"
WORKER_BACK = "worker %d is registered again"
REFUSED = "worker %d does not serve: %s"
HOST_DIED = "the run host of worker %d died; the process ends and is started again"
HOST_LEFT = "the run host of worker %d stopped unexpectedly; the process ends and is started again"
THREADS_BEFORE_FORK = "importing the agents started threads (%s), which the worker, being forked, will not have"
CHILD_LOST = "sentinel: %s died; leaving the cluster to the supervisor"
VERSION_CHANGED = "changed under its version: %s (%s)"
VERSION_ADOPTED = (
    "%s: its fingerprint on record was of an older scheme and of this very code; "
    "it was replaced by one that sees the helpers of the agent's package"
)
VERSIONS_NOT_COMPARED = "what code of agents' versions is on record can't be read: %s"
VERSION_UNSERVED = "runs of %s are ready and no running worker has that version: they wait until one does"
VERSION_SERVED = "runs of %s don't lack a worker any more"
RUN_STOPPED = "run %s: stopped for an operator: %s"
RUN_STOPPED_OFF_RECORD = "run %s: its journal takes no event (%s), so it stands still for an operator without one: %s"
RUN_BEYOND_HELP = "run %s: can't be stopped for an operator either (%s); it is left alone for %g s: %s"
PART_DIED = "%s died; it starts again"
PART_LEFT = "%s ended without being asked; it starts again"
LATE_ANSWER_KEPT_SHORT = "run %s: the late answer %s of %s can't be recorded as it is (%s); that it came is on record"
LATE_ANSWER_LOST = (
    "run %s: the late answer %s of %s can't be recorded (%s): look it up at the other side by external id %s"
)
MAKES_ROOM = "a run must be executed alone: this worker hands over its runs and claims it"
NOT_REHEARSED = "a new connection could not be warmed up, its first steps are slower: %s"
FOREIGN_MESSAGE = "message %d in the queue is not a run id and is dropped"


class Outage:
    """Logs a database outage once when it begins and once when it ends."""

    def __init__(self, log: logging.Logger, who: str) -> None:
        self._log, self._who = log, who
        self._is_on = False

    def began(self, error: BaseException) -> None:
        if not self._is_on:
            self._is_on = True
            self._log.warning("%s: the database is away (%s); trying on", self._who, first_line(error))

    def over(self) -> None:
        if self._is_on:
            self._is_on = False
            self._log.info("%s: the database is back", self._who)
