"""`python -m tests.system.bench [--json FILE] [--scale X] [--only W1,W4]`: one table, with the floor next to it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import uvloop

from tests.system.bench.figures import Figure, table
from tests.system.bench.place import CHECKOUT, place

PARTS = (
    "W1",
    "W3",
    "W4",
    "W5",
    "W7",
    "slots",
    "storage",
    "talk",
    "models",
    "socket",
    "families",
    "beside",
    "fairness",
    "page",
)


class Bench:
    """The parts in order, each at a scale; a line is told as soon as it is known."""

    def __init__(self, folder: Path, scale: float, parts: set[str]) -> None:
        self.folder, self.scale, self.parts = folder, scale, parts
        self.rows: list[Figure] = []

    def told(self, *figures: Figure) -> None:
        self.rows += figures
        for figure in figures:
            print(
                " · ".join(f"{name} {value}" for name, value in figure.as_json().items()), file=sys.stderr, flush=True
            )

    def size(self, full: int, least: int = 1) -> int:
        return max(least, round(full * self.scale))

    def run(self) -> None:
        if self.parts & {"W1", "W7", "slots", "storage", "talk"}:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._here())
        if self.parts & {"W3", "W4", "W5", "models", "socket", "families", "beside", "fairness"}:
            self._across()
        if "page" in self.parts:
            from tests.system.bench.page import pages

            self.told(*pages(self.size(10_000, 50), self.size(20, 2)))

    async def _here(self) -> None:
        from tests.system.bench import floor, work

        async with work.pool() as connections:
            if "W1" in self.parts:
                await asyncio.to_thread(floor.make)
                await work.warm_up(connections)
                for runs, steps in ((1, 1000), (8, 300), (32, 150)):
                    self.told(*await work.throughput(connections, runs, self.size(steps, 2), self.size(5)))
            if "W7" in self.parts:
                for per_visit in (work.SHORT_VISIT, work.LONG_VISIT):
                    for behind in (10, 100, 1000, 5000):
                        self.told(await work.resume(connections, self.size(behind, 10), per_visit, self.size(11)))
            if "slots" in self.parts:
                self.told(await work.slots(connections, self.size(200, 3)))
            if "storage" in self.parts:
                for kind in ("random bytes", "prose"):
                    self.told(await work.storage(connections, kind, self.size(200, 8)))
            if "talk" in self.parts:
                turns = self.size(300, 20)
                self.told(*await work.long_talk(connections, turns, max(5, turns // 6)))

    def _across(self) -> None:
        from tests.system.bench import across, beside, fairness, families
        from tests.system.bench.crew import Ears, crew, web

        subscriptions = Ears(self.folder)
        with crew(self.folder, subscriptions, workers=2, slots=512) as found:
            parts: dict[str, Callable[[], Any]] = {
                "W3": lambda: [across.starts(subscriptions, self.size(200, 3))],
                "W4": lambda: [across.decisions(subscriptions, self.size(200, 3))],
                "models": lambda: [across.model_calls(found, self.size(1000, 10))],
                "families": lambda: families.families(self.size(100, 3), self.size(1000, 6)),
                "beside": lambda: beside.parts(subscriptions, found, self.size),
                "W5": lambda: across.kills(subscriptions, found, self.size(30, 1)),
            }
            for part, measure in parts.items():
                if part in self.parts:
                    self.told(*measure())
            if "socket" in self.parts:
                with web(self.folder) as port:
                    self.told(across.sockets(port, self.size(20, 2), self.size(40, 3)))
        if "beside" in self.parts:
            self.told(beside.after_restart(self.folder, subscriptions, self.size(5), self.size(40, 2)))
        if "fairness" in self.parts:
            self.told(fairness.fairness(self.folder, subscriptions, self.size(10_000, 20), self.size(20, 2)))


@contextmanager
def observing(is_on: bool) -> Iterator[None]:
    """Run the processes of apps, such as the export of traces if a collector is named, as `manage.py worker` does."""
    from ledger import observers
    from runs import features

    if not is_on:
        observers.installed.clear()
    commands = list(features.parts_of_all(lambda each: each.helpers)) if is_on else []
    found = [subprocess.Popen([sys.executable, "manage.py", command], cwd=CHECKOUT) for command in commands]
    try:
        yield
    finally:
        for process in found:
            used = psutil.Process(process.pid).cpu_times()
            print(f"{process.args[-1]}: {used.user + used.system:.1f} s of CPU", file=sys.stderr)  # type: ignore[index]
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each workload")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between: %(default)s")
    parser.add_argument("--unobserved", action="store_true", help="W1 without metrics and tracing")
    given = parser.parse_args()
    wanted = set(given.only.split(","))
    if unknown := wanted - set(PARTS):
        parser.error(f"--only: no such part: {', '.join(sorted(unknown))}")
    began, load = time.monotonic(), os.getloadavg()[0]
    with place() as folder, observing(not given.unobserved):
        bench = Bench(folder, given.scale, wanted)
        bench.run()
    rows = [figure.as_json() for figure in bench.rows]
    conditions = (
        f"{os.cpu_count()} cores, load average {load:.1f} before the start, Python "
        f"{platform.python_version()}, scale {given.scale:g}"
    )
    print(table(rows))
    print(f"\n{time.monotonic() - began:.0f} s; {conditions}")
    if given.json:
        fields = {"conditions": conditions, "figures": rows}
        Path(given.json).write_text(json.dumps(fields, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
