"""`python -m tests.crash --schedules N --seed S`: randomised crash schedules, judged by a checker that knows nothing of the app.

Light schedules, by default: a few runs each, on worker processes forked from warm lanes, several a second. With `--heavy` instead: a
dozen runs each on a whole installation (web, supervisor, queue), some seconds a schedule. Prints one line of figures, and the seeds of
schedules that failed; exit code 1 if any did. `--schedule SEED` performs one again.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.crash.tally import Tally

EVERY_SECONDS = 10.0


def main() -> int:
    given = _arguments()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _interrupt)  # also where the shell had it ignored
    seeds = given.schedule or [f"{given.seed}:{n}" for n in range(given.first, given.first + given.schedules)]
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    total, report = _reporter()
    try:
        if given.heavy:
            from tests.crash.heavy import perform

            perform(folder, seeds, given.workers, report)
        else:
            _perform_light(folder, seeds, given.lanes, report)
    except KeyboardInterrupt:
        _say("interrupted: these are the figures so far")
    if total.failed_seeds:
        _say(f"logs are kept in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(total)  # noqa: T201
    for seed in total.failed_seeds:
        print(f"failed: --schedule {seed}{' --heavy' if given.heavy else ''}")  # noqa: T201
    return 1 if total.failed_seeds else 0


def _perform_light(folder: Path, seeds: list[str], lanes: int, report: Callable[[str, Tally], None]) -> None:
    from tests.crash.light.ground import Ground
    from tests.crash.light.plan import draw

    def tell(seed: str, tally: Tally) -> None:
        if tally.failed_seeds:
            _say(str(draw(seed)))
        report(seed, tally)

    ground = Ground(folder)
    try:
        ground.prepare()
        ground.perform(seeds, lanes, tell)
    finally:
        ground.close()


def _reporter() -> tuple[Tally, Callable[[str, Tally], None]]:
    """A total, and what adds to it: aloud where something was found, and now and then."""
    total, began = Tally(), time.monotonic()
    said_at = began

    def report(seed: str, tally: Tally) -> None:
        nonlocal said_at
        total.add(tally)
        for finding in tally.findings:
            _say(str(finding))
        if time.monotonic() - said_at > EVERY_SECONDS:
            said_at = time.monotonic()
            _say(f"{total} after {said_at - began:.0f} s")

    return total, report


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--schedules", type=int, default=500, metavar="N", help="how many (default 500)")
    parser.add_argument("--seed", default="1", metavar="S", help="what they are drawn from (default 1)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with the K-th")
    parser.add_argument("--schedule", action="append", metavar="SEED", help="perform exactly this one, e.g. 1:17")
    parser.add_argument("--lanes", type=int, default=6, metavar="L", help="light schedules at once (default 6)")
    parser.add_argument("--heavy", action="store_true", help="on a whole installation")
    parser.add_argument("--workers", type=int, default=3, metavar="W", help="its worker processes (default 3)")
    return parser.parse_args()


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
