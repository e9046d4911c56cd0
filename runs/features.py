"""The features that have a say in tool calls: calls meet their guards in the order of this list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runs.engine.guards import Guard
from runs.engine.steps.arguments import CERTIFICATES, SCREENING
from runs.engine.steps.forks import FORK_FENCE
from runs.engine.steps.permits import PERMITS
from runs.engine.steps.policies import POLICIES
from runs.engine.steps.reads import READ_CACHE


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature, and the guards by which it has a say in tool calls."""

    name: str
    guards: Sequence[Guard] = ()


FEATURES = (
    Feature("certify", guards=(CERTIFICATES,)),
    Feature("screening", guards=(SCREENING,)),
    Feature("forks", guards=(FORK_FENCE,)),
    Feature("policies", guards=(POLICIES,)),
    Feature("read cache", guards=(READ_CACHE,)),
    Feature("limits", guards=(PERMITS,)),
)


def guards() -> tuple[Guard, ...]:
    """Return the guards of every feature, in the order in which calls meet them."""
    return tuple(guard for feature in FEATURES for guard in feature.guards)
