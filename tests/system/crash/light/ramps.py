"""Starts by an agent's name while people set, raise, finish or revoke a ramp; some lose their connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from django.db import InterfaceError, OperationalError, connection, transaction

from durableagents.contrib.releases import services
from durableagents.contrib.releases.models import Ramp
from durableagents.contrib.releases.services import RaiseBody, RampActBody, RampBody
from runs.models import Run
from runs.services.starts import keys
from tests.system.crash.light.plan import Schedule
from tests.system.crash.light.together import at_once, cut
from tests.system.crash.released import Released
from tests.world import OLGA, SHOP

WHY = "The schedule says so."
# Between two bursts: long enough for a worker to be at work on the last one's starts.
PAUSE_SECONDS = 0.06
NO_BOUNDS = {"failed": None, "rejected": None, "stopped": None}
_RAMPS = """
SELECT r.id, r.from_version, r.to_version, r.made_at, r.ended_at, r.share,
       ARRAY(SELECT (a.after ->> 'share')::int FROM ledger_actrecord a WHERE a.subject = 'ramp ' || r.id)
FROM runs_ramp r WHERE r.agent = %s"""
_STARTS = """
SELECT id::text, version, graph_id, tags ->> 2, created_at FROM runs_run
WHERE agent = %s AND tags @> %s::jsonb AND parent IS NULL"""
_ROWS = "SELECT run_id::text, ramp_id, is_new, why, place FROM runs_rampstart WHERE run_id = ANY(%s::uuid[])"


class Ramps:
    """A schedule's starts by name, and people's acts on the ramp."""

    def __init__(self, schedule: Schedule, name: str, versions: tuple[str, str], tag: str) -> None:
        self._bursts, self._name, self._versions, self._tag = list(schedule.ramp), name, versions, f"{tag}.ramp"
        self._due_at = 0.0
        self._begun = 0
        self._pids: list[int] = []
        self._lock = threading.Lock()
        self.ids: list[str] = []

    @property
    def is_over(self) -> bool:
        return not self._bursts

    def do_due(self) -> list[str]:
        """Perform the next burst at once if it is time; return the started runs."""
        if self.is_over or time.monotonic() < self._due_at:
            return []
        known, self._pids = len(self.ids), []
        at_once([self._act(*what.split(":")) for what in self._bursts.pop(0)])
        self._due_at = time.monotonic() + PAUSE_SECONDS
        return self.ids[known:]

    def _act(self, what: str, given: str = "") -> Callable[[], Any]:
        match what:
            case "start":
                self._begun += 1
                return partial(self._start, given, f"{self._tag}.{self._begun}")
            case "begin":
                body = {
                    "agent": self._name,
                    "from_version": self._versions[0],
                    "to_version": self._versions[1],
                    "share": given,
                    "at_least": 1000,
                    "justification": WHY,
                }
                return partial(services.create_ramp, RampBody.model_validate(body | NO_BOUNDS), by=OLGA)
            case "cut":
                return partial(cut, self._pids, float(given))
            case _:
                return partial(self._steer, what, given)

    def _start(self, key: str, tag: str) -> None:
        """Start one until it exists: after a lost answer it is found by its tag."""
        while True:
            try:
                found = Run.objects.filter(agent=self._name, tags__contains=[tag]).first()
                if found is None:
                    with self._lock:
                        self._pids.append(connection.connection.info.backend_pid)
                    wanted = keys.Wanted(self._name, {"n": 1}, tags=[tag, self._tag, key], request_key=key)
                    with transaction.atomic():
                        found = keys.start(wanted, by=SHOP).run
                with self._lock:
                    self.ids.append(str(found.id))
                return
            except (OperationalError, InterfaceError, psycopg.OperationalError):
                with suppress(Exception):
                    connection.close()
                time.sleep(0.01)

    def _steer(self, what: str, given: str) -> None:
        ramp = services.active_ramp(self._name)
        if ramp is None:
            return
        if what == "raise":
            services.raise_ramp(ramp.pk, RaiseBody.model_validate({"share": given, "justification": WHY}), by=OLGA)
        else:
            act = services.roll_back_ramp if what == "rollback" else services.finish_ramp
            act(ramp.pk, RampActBody(justification=WHY), by=OLGA)

    def put_away(self) -> None:
        """End the ramp, so that the next schedule begins without one."""
        ramp: Ramp | None = services.active_ramp(self._name)
        if ramp is not None:
            services.roll_back_ramp(ramp.pk, RampActBody(justification=WHY), by=OLGA)

    def told(self, link: psycopg.Connection[Any]) -> Released:
        with link.transaction():
            link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            ramps = link.execute(_RAMPS, [self._name]).fetchall()
            starts = link.execute(_STARTS, [self._name, f'["{self._tag}"]']).fetchall()
            rows = link.execute(_ROWS, [[start[0] for start in starts]]).fetchall()
        names = ("id", "from_version", "to_version", "made_at", "ended_at", "share", "shares")
        return Released(
            [dict(zip(names, row, strict=True)) for row in ramps],
            [
                dict(zip(("run", "version", "graph_id", "key", "created_at"), row, strict=True))
                | {"created_at": row[-1].isoformat()}
                for row in starts
            ],
            [dict(zip(("run", "ramp", "is_new", "why", "place"), row, strict=True)) for row in rows],
        )
