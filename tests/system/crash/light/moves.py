"""Migrates a light schedule's runs to another version of the same code while they are under way."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from durableagents.contrib.releases.migrating import migrate_one
from runs.engine.agents import registry
from runs.engine.migrating import Moving
from runs.models import Run
from tests.system.crash.light.plan import Act, Schedule
from tests.world import OLGA

WHY = "The schedule says so."
# It may go later; or it took another way, and never will.
_LATER = ("driven", "moving", "in_doubt", "stopped", "message_lost", "budget")
_NEVER = ("ended", "cancelled", "undoing")


class Moves:
    """The migrations of one schedule, between two versions. `odd`: wrong refusals, by run."""

    def __init__(self, schedule: Schedule, versions: tuple[str, str]) -> None:
        self._due, self._versions = list(schedule.moves), versions
        self.done = 0
        self.odd: list[tuple[str, str]] = []

    def do_due(self, ids: list[str], seq: Mapping[str, int]) -> bool:
        """Migrate what is due and possible. Return True if something was."""
        done = self.done
        for act in list(self._due):
            if seq.get(ids[act.run], 0) >= act.event:
                self._move(act, ids[act.run])
        return self.done > done

    def _move(self, act: Act, run_id: str) -> None:
        of = Run.objects.values_list("graph_id", flat=True).get(pk=run_id)
        to = registry.find(next(version for version in self._versions if version != of))
        moving = Moving(of, to, {name: name for name in to.nodes})
        outcome = migrate_one(UUID(run_id), moving, by=OLGA, justification=WHY)
        if outcome.is_moved:
            self.done += 1
        if outcome.is_moved or outcome.code in _NEVER:
            self._due.remove(act)
        elif outcome.code not in _LATER:
            self._due.remove(act)
            self.odd.append((run_id, f"it could not be moved: {outcome.code}: {outcome.why}"))
