"""What an agent's page shows of its versions and its ramp, in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from runs.engine.agents import registry
from runs.models import Ramp
from runs.queries.releases.standing import COUNTED_TO, Ramped, Standing, ramped, ramps, versions_of
from runs.queries.run_list import GROUPS
from runs.services.releases import acts

_WORDS = {"on": "on", "halted": "halted", "rolled_back": "taken back", "done": "finished"}
_TONES = {"on": "run", "halted": "bad", "rolled_back": "hold", "done": "ok"}


@dataclass(frozen=True, slots=True)
class VersionShown:
    """A version in words."""

    on: Standing
    is_here: bool
    in_ramp: bool

    @property
    def counts(self) -> list[tuple[str, str]]:
        """How many runs are in each group that has any."""
        told = [(word, self.on.total(*map(str, states))) for word, states in GROUPS.values()]
        return [(word, f"{COUNTED_TO:,}+" if number > COUNTED_TO else f"{number:,}") for word, number in told if number]

    @property
    def service(self) -> str:
        if not self.on.is_served:
            return "no running worker has it"
        only = ", which only drain it" if self.on.is_only_drained else ""
        return f"{self.on.workers} worker{'' if self.on.workers == 1 else 's'}{only}"

    @property
    def until(self) -> tuple[datetime | None, datetime | None]:
        """Between when and when the last one may end."""
        return self.on.forecast.earliest, self.on.forecast.latest


@dataclass(frozen=True, slots=True)
class RampShown:
    """A ramp in words."""

    on: Ramped

    @property
    def ramp(self) -> Ramp:
        return self.on.ramp

    @property
    def share(self) -> str:
        return acts.percent(self.ramp.share)

    @property
    def word(self) -> str:
        return _WORDS.get(str(self.ramp.state), str(self.ramp.state))

    @property
    def tone(self) -> str:
        return _TONES.get(str(self.ramp.state), "")

    @property
    def bounds(self) -> list[tuple[str, int, int | None]]:
        """Each figure with its bound, null where there is none."""
        return [(name, getattr(self.on.figures, name), self.ramp.bounds.get(name)) for name in acts.BOUNDS]


@dataclass(frozen=True, slots=True)
class Panel:
    """The versions of an agent, and its ramp: the one under way, or the last."""

    versions: list[VersionShown]
    ramp: RampShown | None

    @classmethod
    def of(cls, agent: str) -> Panel:
        """As they are now."""
        here = [one.version for one in registry.versions(agent)]
        last = next(iter(ramps(agent, limit=1)), None)
        is_on = last is not None and last.ended_at is None
        sides = {last.from_version, last.to_version} if last is not None and is_on else set()
        found = versions_of(agent, here)
        shown = [VersionShown(one, one.version in here, one.version in sides) for one in found]
        return cls(shown, None if last is None else RampShown(ramped(last)))

    @property
    def page(self) -> str:
        """The newest version that has a page here; empty: none has."""
        return next((one.on.graph_id for one in self.versions if one.is_here), "")

    @property
    def is_ramping(self) -> bool:
        return self.ramp is not None and self.ramp.ramp.ended_at is None

    @property
    def open_here(self) -> list[str]:
        """Versions that a ramp may lead from."""
        return [one.on.version for one in self.versions if one.is_here and not one.on.is_closed]

    @property
    def here(self) -> list[str]:
        return [one.on.version for one in self.versions if one.is_here]
