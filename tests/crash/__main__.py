"""`python -m tests.crash --schedules N --seed S`: randomised crash schedules on an installation of their own.

Prints one line of figures, and the seeds of schedules that failed; exit code 1 if any did. `--schedule SEED` performs one again.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.checker import Finding
from tests.crash.people import People
from tests.crash.schedule import Performance, Tally, describe, draw, everybody_is_back
from tests.crash.stack import Stack


def main() -> int:
    given = _arguments()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _interrupt)  # also where the shell had it ignored
    seeds = given.schedule or [f"{given.seed}:{n}" for n in range(given.first, given.first + given.schedules)]
    total, began = Tally(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    stack = Stack(folder, workers=given.workers)
    stack.settling_seconds = 1.5
    people = None
    try:
        stack.start()
        people = People(stack)
        people.start()
        for seed in seeds:
            total.add(_perform(stack, people, seed))
            if total.schedules % 10 == 0:
                _say(f"{total} after {time.monotonic() - began:.0f} s")
    except KeyboardInterrupt:
        _say("interrupted: these are the figures so far")
    finally:
        if people is not None:
            people.leave()
        if total.failed_seeds:
            _say(f"logs are kept in {stack.data}/logs")
            stack.stop()
        else:
            stack.end()
            shutil.rmtree(folder, ignore_errors=True)
    print(total)  # noqa: T201
    for seed in total.failed_seeds:
        print(f"failed: --schedule {seed}")  # noqa: T201
    return 1 if total.failed_seeds else 0


def _perform(stack: Stack, people: People, seed: str) -> Tally:
    schedule = draw(seed)
    try:
        everybody_is_back(stack)
        tally = Performance(stack, people, schedule).perform()
    except AssertionError as trouble:
        # The installation itself did not come back, or did not answer: as bad as a run that is stuck.
        tally = Tally(1, findings=[Finding("stuck", "-", str(trouble))], failed_seeds=[seed])
    if tally.failed_seeds:
        _say("\n".join([describe(schedule), *(str(finding) for finding in tally.findings)]))
    return tally


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--schedules", type=int, default=50, metavar="N", help="how many (default 50)")
    parser.add_argument("--seed", default="1", metavar="S", help="what they are drawn from (default 1)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with the K-th")
    parser.add_argument("--schedule", action="append", metavar="SEED", help="perform exactly this one, e.g. 1:17")
    parser.add_argument("--workers", type=int, default=3, metavar="W", help="worker processes (default 3)")
    return parser.parse_args()


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
