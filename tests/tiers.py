"""Reduces `make test`: no tests marked `long`, and fewer repetitions of the others (`pytest --long` runs all)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

LONG = "DURABLEAGENTS_TEST_LONG"
Value = TypeVar("Value")


def many(in_all: Value, usually: Value) -> Value:
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


def takes_part(item: pytest.Item) -> bool:
    """Return whether `make test` runs this case: of a test marked `every(n)`, the n-th ones, or diagonals of lists."""
    marker = item.get_closest_marker("every")
    return marker is None or not hasattr(item, "callspec") or sum(item.callspec.indices.values()) % marker.args[0] == 0


def sample(cases: Iterable[Any], every: int) -> list[Any]:
    """Return every n-th case, or all under `pytest --long`. Choose n coprime to a table's sizes to reach each line."""
    return list(cases)[:: many(1, every)]
