"""`python -m tests.system.crash --schedules N --seed S`: randomised crash schedules, judged by a checker that knows
nothing of
the app.

Light ones: up to three runs each, on worker processes forked from warm lanes, several a second. Then a few heavy ones:
a dozen runs each on a whole installation (web, supervisor, queue), some seconds a schedule. Prints one line of figures,
and the seeds of schedules that failed; exit code 1 if any did. `--schedule SEED` performs one again, exactly; the
machine's timing aside.
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

from tests.system.crash.tally import Tally

EVERY_SECONDS = 10.0
HEAVY = "heavy:"


def main() -> int:
    given = _arguments()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _interrupt)  # even if the shell ignored it
    seeds = given.schedule or _seeds(given)
    heavy = [seed for seed in seeds if seed.startswith(HEAVY)]
    light = [seed for seed in seeds if not seed.startswith(HEAVY)]
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    total, report = _reporter(is_impatient=given.until_failure)
    try:
        if light:
            _perform_light(folder / "light", light, given, report)
        if heavy:
            from tests.system.crash import heavy as heavies

            heavies.perform(folder / "heavy", heavy, given.workers, report)
    except KeyboardInterrupt:
        _say("these are the figures so far")
    if total.failed_seeds:
        _say(f"logs are kept in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(total)  # noqa: T201
    for seed in total.failed_seeds:
        print(f"failed: --schedule {seed}")  # noqa: T201
    return 1 if total.failed_seeds else 0


def _seeds(given: argparse.Namespace) -> list[str]:
    """Numbered, so that any of them can be named again."""
    heavy = given.schedules // 100 if given.heavy is None else given.heavy
    numbers = range(given.first, given.first + given.schedules)
    return [*(f"{given.seed}:{n}" for n in numbers), *(f"{HEAVY}{given.seed}:{n}" for n in range(heavy))]


def _perform_light(
    folder: Path, seeds: list[str], given: argparse.Namespace, report: Callable[[str, Tally], None]
) -> None:
    from tests.system.crash.light.ground import Ground
    from tests.system.crash.light.plan import draw

    def tell(seed: str, tally: Tally) -> None:
        if tally.failed_seeds:
            _say(str(draw(seed)))
        report(seed, tally)

    ground = Ground(folder, given.patience)
    try:
        ground.prepare()
        ground.perform(seeds, given.lanes, tell)
    finally:
        ground.close()


def _reporter(*, is_impatient: bool) -> tuple[Tally, Callable[[str, Tally], None]]:
    """A total, and what adds to it: aloud where something was found, and now and then."""
    total, began = Tally(), time.monotonic()
    said_at = began

    def report(seed: str, tally: Tally) -> None:
        nonlocal said_at
        total.add(tally)
        for finding in tally.findings:
            _say(str(finding))
        if is_impatient and total.failed_seeds:
            raise KeyboardInterrupt
        if time.monotonic() - said_at > EVERY_SECONDS:
            said_at = time.monotonic()
            _say(f"{total} after {said_at - began:.0f} s")

    return total, report


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.system.crash", description=__doc__)
    parser.add_argument("--schedules", type=int, default=500, metavar="N", help="how many light ones (default 500)")
    parser.add_argument("--seed", default="1", metavar="S", help="what they are drawn from (default 1)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with the K-th")
    parser.add_argument("--schedule", action="append", metavar="SEED", help="perform exactly this one, e.g. 1:17")
    parser.add_argument("--lanes", type=int, default=6, metavar="L", help="how many of them at once (default 6)")
    parser.add_argument(
        "--heavy", type=int, metavar="N", help="how many heavy ones after them (default one for every hundred)"
    )
    parser.add_argument(
        "--workers", type=int, default=3, metavar="W", help="worker processes of their installation (default 3)"
    )
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="S", help="a light one is stuck after so long (default 60)"
    )
    parser.add_argument("--until-failure", action="store_true", help="stop at the first that fails")
    return parser.parse_args()


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
