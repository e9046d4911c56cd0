"""What `make test` leaves to `make test-all` (`pytest --long`): tests marked `long`, most repetitions of the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

LONG = "DURABLEAGENTS_TEST_LONG"


def many(in_all: int, usually: int) -> int:
    """Of two numbers the first in `make test-all`, the second in `make test`."""
    return in_all if LONG in os.environ else usually


def mostly_long(cases: Iterable[Sequence[Any]], usual: Iterable[Sequence[Any]]) -> list[Any]:
    """Parameter sets of which `make test` takes the usual ones only."""
    kept = set(map(tuple, usual))
    return [case if tuple(case) in kept else pytest.param(*case, marks=pytest.mark.long) for case in cases]
