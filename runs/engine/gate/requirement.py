"""Who has to say yes before a gated call may leave: one stage after the other, at each so many different people. Pure.

A plan tells of it only where one yes of one person is not enough: the plans of all other gates are, to the byte, what
they were before there were stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.engine.errors import DefinitionError

MOST_STAGES = 8
MOST_PEOPLE = 20  # of one stage


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a decision: `quorum` (1) different people of `queue` have to say yes, none of whom had a part in a
    stage before. Raises DefinitionError."""

    queue: str
    quorum: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.queue, str) or not self.queue.strip():
            raise DefinitionError(f"Stage(queue={self.queue!r}): give a text that isn't empty")
        if isinstance(self.quorum, bool) or not isinstance(self.quorum, int) or not 1 <= self.quorum <= MOST_PEOPLE:
            raise DefinitionError(f"Stage(quorum={self.quorum!r}) of queue {self.queue!r}: from 1 to {MOST_PEOPLE}")

    def as_json(self) -> dict[str, Any]:
        """Plain data, as it enters the plan."""
        return {"queue": self.queue, "quorum": self.quorum}


@dataclass(frozen=True, slots=True)
class Requirement:
    """All that has to be said yes to, in this order. Raises DefinitionError."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MOST_STAGES or not all(isinstance(each, Stage) for each in self.stages):
            raise DefinitionError(f"a gate has from 1 to {MOST_STAGES} stages, each a Stage: {self.stages!r}")

    @classmethod
    def of(cls, queue: str, quorum: int = 1, then: Sequence[Stage] = ()) -> Requirement:
        """The first stage by its queue and quorum, then the others."""
        if isinstance(then, (str, bytes, Stage)) or not isinstance(then, Sequence):
            raise DefinitionError(f"then={then!r}: give a list of Stage(queue, quorum)")
        return cls((Stage(queue, quorum), *then))

    @property
    def is_plain(self) -> bool:
        return len(self.stages) == 1 and self.stages[0].quorum == 1

    @property
    def pairs(self) -> tuple[tuple[str, int], ...]:
        """Queue and quorum of each stage; nothing where one yes is enough."""
        return () if self.is_plain else tuple((stage.queue, stage.quorum) for stage in self.stages)

    @property
    def queues(self) -> list[str]:
        """Whoever is asked, in order, each once."""
        return list(dict.fromkeys(stage.queue for stage in self.stages))

    def in_plan(self) -> dict[str, Any]:
        return {} if self.is_plain else {"stages": [each.as_json() for each in self.stages], "stage": 1}


def required_by(plan: Any, queue: str) -> Requirement:
    """What a plan demands; one yes of this queue where it has no stages. Raises DefinitionError for what can't be
    read."""
    if not isinstance(plan, Mapping) or "stages" not in plan:
        return Requirement((Stage(queue),))
    try:
        return Requirement(tuple(Stage(each["queue"], each["quorum"]) for each in plan["stages"]))
    except (KeyError, TypeError) as error:
        raise DefinitionError(f"the stages of a plan can't be read: {type(error).__name__}") from error


def stage_of(plan: Any) -> int:
    """Which stage a plan's question is of, from 1 on. Raises DefinitionError for one that there is not."""
    if not isinstance(plan, Mapping) or "stages" not in plan:
        return 1
    stage, most = plan.get("stage"), len(required_by(plan, "").stages)
    if isinstance(stage, bool) or not isinstance(stage, int) or not 1 <= stage <= most:
        raise DefinitionError(f"the plan is of stage {stage!r} of {most}")
    return stage


def is_staged(plan: Any) -> bool:
    """Whether votes are counted: one yes alone decides nothing here."""
    return isinstance(plan, Mapping) and "stages" in plan


def in_words(requirement: Requirement) -> str:
    """Who is asked, in order: a queue's name where one yes of it is enough, else `claims, then 2 of board`."""
    return ", then ".join(f"{x.quorum} of {x.queue}" if x.quorum > 1 else x.queue for x in requirement.stages)
