"""Forks and migrates runs of a heavy schedule through the API, once each, also where an answer is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.system.crash.api import ENDED, Api
from tests.system.crash.forked import FORK, Asked

VERSIONS = ("1.0.0", "0.9.0")
# It took another way, and can never be migrated.
_NEVER = ("ended", "cancelled", "undoing")
_LATER = ("driven", "moving", "in_doubt", "stopped", "message_lost", "budget")


class Again:
    """Forks and migrations to do. `made`: each fork's origin; `odd`: wrong refusals."""

    def __init__(self, api: Api, agent: str) -> None:
        self._api, self._agent = api, agent
        self._forks: dict[str, int] = {}
        self._moves: list[str] = []
        self.made: dict[str, tuple[str, Asked]] = {}
        self.odd: list[tuple[str, str]] = []
        self.moved = 0

    @property
    def is_over(self) -> bool:
        return not self._forks and not self._moves

    def plan(self, run_id: str, *, visit: int, is_moved: bool) -> None:
        """Fork it there, or at its last visit if it has fewer; 0: no fork."""
        if visit:
            self._forks[run_id] = visit
        if is_moved:
            self._moves.append(run_id)

    def do_due(self) -> Iterator[str]:
        for run_id in list(self._moves):
            self._move(run_id)
        for run_id, visit in list(self._forks.items()):
            run = self._api.run(run_id)
            if run and run["state"] in ENDED and (fork := self._fork(run, visit)):
                yield fork

    def _fork(self, run: Mapping[str, str], most: int) -> str | None:
        run_id = run["id"]
        visits = self._api.visits(run_id)
        del self._forks[run_id]
        if not visits:
            return None  # cancelled before its first visit
        visit = min(most, max(visits))
        answer = self._api.fork(run_id, visit)
        if answer.status_code != 201:
            if run["state"] == "completed":
                self.odd.append((run_id, f"it could not be forked: {answer.text}"))
            return None
        fork = str(answer.json()["id"])
        self.made[fork] = run_id, Asked(FORK, visit)
        return fork

    def _move(self, run_id: str) -> None:
        version = self._api.run(run_id)["version"]
        to = next(each for each in VERSIONS if each != version)
        outcome = self._api.migrate(self._agent, run_id, version, to)
        self.moved += outcome["is_moved"]
        if outcome["is_moved"] or outcome["code"] not in _LATER:
            self._moves.remove(run_id)
            if not outcome["is_moved"] and outcome["code"] not in _NEVER:
                self.odd.append((run_id, f"it could not be moved: {outcome['code']}: {outcome['why']}"))
