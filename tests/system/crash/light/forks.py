"""Forks and restarts of a light schedule's runs, after their end or while they work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from uuid import UUID

from durableagents.contrib.forks import forking, starting_again
from durableagents.contrib.forks.points import visits_of
from ledger.errors import DurableAgentsError
from runs.engine.budget import Budget
from runs.engine.forks import HAPPENED, UNKNOWN
from runs.models import ENDED, Run
from tests.system.crash.forked import START_AGAIN, Asked
from tests.system.crash.light.plan import Beginning, Schedule
from tests.system.crash.light.together import cut_meanwhile
from tests.world import OLGA

WHY = "The schedule says so."


class Forks:
    """`made`: by place in the plan the run, its origin and the request; `odd`: wrong refusals."""

    def __init__(self, schedule: Schedule, versions: tuple[str, str]) -> None:
        self._due, self._versions = dict(enumerate(schedule.forks)), versions
        self._schedule = schedule
        self.made: dict[int, tuple[str, str, Asked]] = {}
        self.odd: list[tuple[str, str]] = []
        self._cut: set[int] = set()
        self._visits: dict[int, int] = {}

    @property
    def is_over(self) -> bool:
        return not self._due

    @property
    def ids(self) -> list[str]:
        """Return the run of each place in the plan; empty where none is made."""
        return [self.made[n][0] if n in self.made else "" for n in range(len(self._schedule.forks))]

    @property
    def origins(self) -> set[str]:
        return {origin for _, origin, _ in self.made.values()}

    def do_due(
        self, ids: list[str], seq: Mapping[str, int], ended: Collection[str], ready: Callable[[Beginning], None]
    ) -> None:
        """Make what is due and possible, calling `ready` just before; `made` stays right if the database fails."""
        for n, what in list(self._due.items()):
            origin = ids[what.run]
            if origin in ended or (what.event and seq.get(origin, 0) >= what.event):
                self._make(n, what, origin, ready)

    def _make(self, n: int, what: Beginning, origin: str, ready: Callable[[Beginning], None]) -> None:
        """Make it once even if the answer is lost: it is looked up among the origin's forks."""
        run = Run.objects.get(pk=origin)
        known = [made for made, *_ in self.made.values()]
        found = Run.objects.filter(forked_from=run.pk).exclude(pk__in=known).first()
        try:
            visits = [point.visit for point in visits_of(run) if not point.problem]
            visit = 0 if what.how == START_AGAIN else min(what.visit, max(visits, default=0))
            if not visit and what.how != START_AGAIN:
                raise forking.refusal("visit", "none has begun", "wait for one")
            if found is None:
                ready(what)
                is_cut = bool(what.cut_seconds) and n not in self._cut
                self._cut.add(n)
                self._visits[n] = visit
                with cut_meanwhile(what.cut_seconds) if is_cut else nullcontext():
                    found = self._ask(what, run, visit)
        except DurableAgentsError as no:
            if run.state in ENDED:
                del self._due[n]
                if run.state == "completed":
                    self.odd.append((origin, f"it could not be begun again: {no}"))
            return
        # A running one may have reached further visits since the request.
        self.made[n] = str(found.pk), origin, Asked(what.how, self._visits[n])
        del self._due[n]

    def _ask(self, what: Beginning, run: Run, visit: int) -> Run:
        budget = Budget.model_validate(self._schedule.budget)
        if what.how == START_AGAIN:
            audit = [
                starting_again.Verdict(
                    each.slot, each.attempt, self._counts(what, has_result=each.has_result), each.run
                )
                for each in starting_again.read_remains(run).effects
            ]
            wanted = starting_again.StartAgainRequest(audit, budget=budget)
            return starting_again.start_again(run.pk, wanted, by=OLGA, justification=WHY)
        version = self._versions[what.is_elsewhere]
        fork_request = forking.ForkRequest(visit, version.partition("@")[2], budget=budget)
        return forking.fork(UUID(str(run.pk)), fork_request, by=OLGA, justification=WHY)

    def _counts(self, what: Beginning, *, has_result: bool) -> str:
        return HAPPENED if has_result and what.audit == HAPPENED else UNKNOWN
