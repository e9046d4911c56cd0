"""Verifies runs that a schedule started: the result of the planned time must name the run."""

from __future__ import annotations

from collections.abc import Iterator

from durableagents.contrib.schedules.models import Firing
from ledger import events as e
from ledger.verification.runs import EventLine, ReadJournal


class ScheduledStarts:
    """Compares the planned time in a run's journal with the results of its schedule."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self._plan = e.StartPlanned()

    def see(self, line: EventLine) -> None:
        """Remember the planned time, which is in one of the first events of a run."""
        if isinstance(line.event, e.StartPlanned) and line.seq <= 3:
            self._plan = line.event

    def problems(self) -> Iterator[str]:
        """Yield a problem if no result of the schedule names this run."""
        plan = self._plan
        if not plan.schedule:
            return
        planned = {"schedule_id": plan.schedule, "planned_at": plan.planned_at, "outcome": Firing.Outcome.STARTED}
        if not Firing.objects.filter(run_id=self.journal.run_id, **planned).exists():
            yield f"schedule {plan.schedule}: the result of {plan.planned_at} does not name this run"
