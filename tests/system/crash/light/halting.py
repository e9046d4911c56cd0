"""Sets, stages and lifts the halts of a light schedule while its runs are under way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from durableagents.contrib.halts import services as halts
from durableagents.contrib.halts.models import HaltNow
from durableagents.contrib.halts.queries import find_halts
from durableagents.contrib.halts.releasing import release_runs
from durableagents.contrib.halts.services import HaltBody, LiftBody, StageBody
from ledger.clock import database_now
from tests.system.crash.halted import Stretch
from tests.system.crash.light.crew import Crew
from tests.system.crash.light.plan import Halting, Schedule
from tests.world import OLGA

WHY = "The schedule says so"
# The longest wait for workers to confirm: a suspended one is silent.
CONFIRM_SECONDS = 3.0


@dataclass
class _Open:
    """A halt in force: full from `since`; `until` is the first request for less."""

    halt: UUID
    of: Halting
    key: str
    left: list[int]
    next_at: float
    since: datetime | None
    until: datetime | None = None
    confirmed_at: datetime | None = None


class Halts:
    """The halts of one schedule: its own runs, or briefly what other lanes call too, which then wait."""

    def __init__(self, schedule: Schedule, graph_id: str, tag: str) -> None:
        self._left, self._keys = list(schedule.halts), {"tag": tag, "version": graph_id}
        self._why = f"{WHY}: {tag}."
        self._open: list[_Open] = []
        self.stretches: list[Stretch] = []
        self.done = 0

    def do_due(self, seq: int, crew: Crew) -> bool:
        """Set what is due, and lift what lasted long enough. Return True if something was done."""
        is_done = False
        for of in [of for of in self._left if of.event <= seq]:
            if self._set(of):
                self._left.remove(of)
                is_done = True
        for one in list(self._open):
            if one.confirmed_at is None and one.since is not None and self._is_confirmed(one, crew):
                one.confirmed_at = database_now()
            is_waiting = one.of.is_waited_for and one.confirmed_at is None and one.since is not None
            if time.monotonic() >= one.next_at + CONFIRM_SECONDS * is_waiting:
                is_done |= self._go_on(one)
        return is_done

    def let_go(self, crew: Crew) -> None:
        if release_runs():
            crew.ring()

    def put_away(self) -> None:
        """Lift all halts at the schedule's end, also after an error."""
        self._left = []
        for now in HaltNow.objects.filter(why=self._why):
            halts.lift(now.halt, LiftBody(justification=self._why), by=OLGA)
        release_runs()

    def _set(self, of: Halting) -> bool:
        """Set it once even if the answer is lost: its reason identifies it. Other lanes' halts are left to them."""
        key = self._keys.get(of.scope, of.key)
        now = HaltNow.objects.filter(kind="halt", scope=of.scope, key=key).first()
        if now is None:
            body = HaltBody(scope=of.scope, key=key, justification=self._why)  # type: ignore[arg-type]
            try:
                halt = halts.begin(body, by=OLGA).halt
            except halts.AlreadyHalted:
                return True
            except halts.IntentsUnderWay:
                return False
        elif now.why == self._why and all(one.halt != now.halt for one in self._open):
            halt = now.halt
        else:
            return True
        held = time.monotonic() + of.seconds
        self._open.append(_Open(halt, of, key, list(of.shares), held, database_now()))
        self.done += 1
        return True

    def _go_on(self, one: _Open) -> bool:
        one.until = one.until or database_now()
        if not (last := halts.find(one.halt)).lock:
            self._over(one)
            self._open.remove(one)
            return True
        share = one.left[0] if one.left else None
        try:
            if share is None:
                halts.lift(one.halt, LiftBody(justification=self._why), by=OLGA)
            elif last.share != share * 100:
                body = StageBody.model_validate({"share": str(share), "justification": self._why})
                halts.stage(one.halt, body, by=OLGA)
        except halts.IntentsUnderWay:
            return False
        self._over(one)
        if share is None:
            self._open.remove(one)
            return True
        one.left.pop(0)
        one.since, one.until, one.confirmed_at = (database_now() if share == 0 else None), None, None
        one.next_at = time.monotonic() + one.of.seconds
        return True

    def _over(self, one: _Open) -> None:
        if one.since is not None and one.until is not None:
            self.stretches.append(Stretch(one.of.scope, one.key, one.since, one.until, one.confirmed_at))
            one.since = None

    def _is_confirmed(self, one: _Open, crew: Crew) -> bool:
        ours = {member.id for member in crew.members if not member.is_stopped and not member.is_leaving}
        (halt,) = find_halts([one.halt])
        return bool(ours) and ours.isdisjoint(worker.worker for worker in halt.unconfirmed)
