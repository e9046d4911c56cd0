"""Heavy schedules on a whole installation, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.system.crash.checker import Finding
from tests.system.crash.people import People
from tests.system.crash.schedule import Performance, describe, draw, everybody_is_back
from tests.system.crash.stack import Stack
from tests.system.crash.tally import Tally


def perform(folder: Path, seeds: Sequence[str], workers: int, report: Callable[[str, Tally], None]) -> None:
    """Perform all schedules on one installation; keep its logs if one failed."""
    stack = Stack(folder, workers=workers, agents="tests.system.crash.agents,tests.system.crash.twin")
    stack.settling_seconds = 1.5
    people = None
    has_failed = False
    try:
        stack.start()
        people = People(stack)
        people.start()
        for seed in seeds:
            tally = _perform(stack, people, seed)
            has_failed |= bool(tally.failed_seeds)
            report(seed, tally)
    finally:
        try:
            if people is not None:
                people.leave()
        finally:  # also after an error of the people: their installation must not outlive them
            stack.stop() if has_failed else stack.end()


def _perform(stack: Stack, people: People, seed: str) -> Tally:
    schedule = draw(seed)
    try:
        everybody_is_back(stack)
        tally = Performance(stack, people, schedule).perform()
    except AssertionError as trouble:
        # The installation did not come back or answer: as bad as a stuck run.
        tally = Tally(1, findings=[Finding("stuck", "-", str(trouble))], failed_seeds=[seed])
    if tally.failed_seeds:
        print(describe(schedule), file=sys.stderr, flush=True)  # noqa: T201
    return tally
