"""Reduces `make test`: no tests marked `long`, and fewer repetitions of the others (`pytest --long` runs all)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

LONG = "DURABLEAGENTS_TEST_LONG"


def many(in_all: int, usually: int) -> int:
    return in_all if LONG in os.environ else usually


def of_a_machine(in_all: int, usually: int, *, steps: int) -> settings:
    """Return settings for a machine that writes to the database; shrinking is slow and needs `pytest --long`, as does
    a search from another random start each time."""
    phases = list(Phase) if LONG in os.environ else [Phase.explicit, Phase.generate]
    return settings(
        max_examples=many(in_all, usually),
        derandomize=LONG not in os.environ,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
    )


def mostly_long(cases: Iterable[Sequence[Any]], usual: Iterable[Sequence[Any]]) -> list[Any]:
    """Return parameter sets of which `make test` takes only the usual ones."""
    kept = set(map(tuple, usual))
    return [pytest.param(*case, marks=() if tuple(case) in kept else pytest.mark.long) for case in cases]


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Return parameter sets of which `make test` takes only every n-th."""
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return mostly_long(listed, listed[::every])


def sample(cases: Iterable[Any], every: int) -> list[Any]:
    """Return every n-th case, or all under `pytest --long`. Choose n coprime to a table's sizes to reach each line."""
    return list(cases)[:: many(1, every)]
