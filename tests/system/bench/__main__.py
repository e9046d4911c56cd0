"""`python -m tests.system.bench [--json FILE] [--scale X] [--only W1,W4]`: one table, with the floor next to it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from tests.system.bench.figures import Figure, table
from tests.system.bench.place import place

PARTS = (
    "W1",
    "observed",
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
        if self.parts & {"W1", "observed", "W7", "slots", "storage", "talk"}:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._here())
        if self.parts & {"W3", "W4", "W5", "models", "socket", "families", "beside", "fairness"}:
            self._across()
        if "page" in self.parts:
            from tests.system.bench.page import pages

            self.told(*pages(self.size(10_000, 50), self.size(20, 2)))

    async def _here(self) -> None:
        from tests.system.bench import floor, observed, work

        async with work.pool() as connections:
            if self.parts & {"W1", "observed"}:
                await asyncio.to_thread(floor.make)
                await work.warm_up(connections)
            if "W1" in self.parts:
                for runs, steps in ((1, 1000), (8, 300), (32, 150)):
                    self.told(*await work.throughput(connections, runs, self.size(steps, 2), self.size(5)))
            if "observed" in self.parts:
                with observed.exporter() as traces:
                    for agent, runs, steps in ((work.PURE, 1, 3000), (work.KEYED, 1, 1500), (work.PURE, 32, 300)):
                        how = (agent, runs, self.size(steps, 2), self.size(6))
                        self.told(await observed.cost(connections, traces, *how))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each workload")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between: %(default)s")
    given = parser.parse_args()
    wanted = set(given.only.split(","))
    if unknown := wanted - set(PARTS):
        parser.error(f"--only: no such part: {', '.join(sorted(unknown))}")
    began, load = time.monotonic(), os.getloadavg()[0]
    with place() as folder:
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
