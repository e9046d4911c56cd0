"""Approval stages of a gated call. Plans that need a single approval keep the bytes they had before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.engine.errors import DefinitionError

MOST_STAGES = 8
MOST_PEOPLE = 20  # per stage


@dataclass(frozen=True, slots=True)
class Stage:
    """One approval stage: `quorum` (1) different people of `queue`, none of whom took part in an earlier stage. Raises
    DefinitionError."""

    queue: str
    quorum: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.queue, str) or not self.queue.strip():
            raise DefinitionError(f"Stage(queue={self.queue!r}): give a text that isn't empty")
        if isinstance(self.quorum, bool) or not isinstance(self.quorum, int) or not 1 <= self.quorum <= MOST_PEOPLE:
            raise DefinitionError(f"Stage(quorum={self.quorum!r}) of queue {self.queue!r}: from 1 to {MOST_PEOPLE}")

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the plan."""
        return {"queue": self.queue, "quorum": self.quorum}


@dataclass(frozen=True, slots=True)
class Requirement:
    """All stages, in order. Raises DefinitionError."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MOST_STAGES or not all(isinstance(each, Stage) for each in self.stages):
            raise DefinitionError(f"a gate has from 1 to {MOST_STAGES} stages, each a Stage: {self.stages!r}")

    @classmethod
    def of(cls, queue: str, quorum: int = 1, then: Sequence[Stage] = ()) -> Requirement:
        """Build a requirement from the first stage's queue and quorum, and the further stages."""
        if isinstance(then, (str, bytes, Stage)) or not isinstance(then, Sequence):
            raise DefinitionError(f"then={then!r}: give a list of Stage(queue, quorum)")
        return cls((Stage(queue, quorum), *then))

    @property
    def is_plain(self) -> bool:
        return len(self.stages) == 1 and self.stages[0].quorum == 1

    @property
    def pairs(self) -> tuple[tuple[str, int], ...]:
        """Return queue and quorum of each stage; empty if one approval is enough."""
        return () if self.is_plain else tuple((stage.queue, stage.quorum) for stage in self.stages)

    @property
    def queues(self) -> list[str]:
        """Return the queues asked, in order, each once."""
        return list(dict.fromkeys(stage.queue for stage in self.stages))

    def in_plan(self) -> dict[str, Any]:
        return {} if self.is_plain else {"stages": [each.as_json() for each in self.stages], "stage": 1}


def required_by(plan: Any, queue: str) -> Requirement:
    """Return what a plan requires; without stages one approval of `queue`. Raises DefinitionError if unreadable."""
    if not isinstance(plan, Mapping) or "stages" not in plan:
        return Requirement((Stage(queue),))
    try:
        return Requirement(tuple(Stage(each["queue"], each["quorum"]) for each in plan["stages"]))
    except (KeyError, TypeError) as error:
        raise DefinitionError(f"the stages of a plan can't be read: {type(error).__name__}") from error


def stage_of(plan: Any) -> int:
    """Return the stage of a plan's question, from 1. Raises DefinitionError if there is no such stage."""
    if not isinstance(plan, Mapping) or "stages" not in plan:
        return 1
    stage, most = plan.get("stage"), len(required_by(plan, "").stages)
    if isinstance(stage, bool) or not isinstance(stage, int) or not 1 <= stage <= most:
        raise DefinitionError(f"the plan is of stage {stage!r} of {most}")
    return stage


def is_staged(plan: Any) -> bool:
    """Return whether votes are counted, so that one approval alone doesn't decide."""
    return isinstance(plan, Mapping) and "stages" in plan


def in_words(requirement: Requirement) -> str:
    """Return the stages as text: `claims, then 2 of board`."""
    return ", then ".join(f"{x.quorum} of {x.queue}" if x.quorum > 1 else x.queue for x in requirement.stages)
