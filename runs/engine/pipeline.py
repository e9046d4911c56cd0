"""The guards of calls, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterable

from runs.engine.guards import Guard
from runs.engine.steps.arguments import CERTIFICATES, SCREENING
from runs.engine.steps.forks import FORK_FENCE
from runs.engine.steps.permits import PERMITS
from runs.engine.steps.policies import POLICIES
from runs.engine.steps.reads import READ_CACHE


def in_order(others: Iterable[Guard] = ()) -> tuple[Guard, ...]:
    """Return all guards in order: the core's, with those of features between the read cache and the permits."""
    return (CERTIFICATES, SCREENING, FORK_FENCE, POLICIES, READ_CACHE, *others, PERMITS)


GUARDS = in_order()
