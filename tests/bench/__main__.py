"""`python -m tests.bench [--json]`: one table, ours beside the floor, measured in the same run."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
from typing import Any

from tests.bench.figures import milliseconds, percentile
from tests.bench.place import place


async def measure(scale: float) -> list[dict[str, Any]]:
    from tests.bench import work

    rows: list[dict[str, Any]] = []

    def told(name: str, measured: work.Measured, against: work.Measured | None = None) -> None:
        rows.append(
            {
                "what": name, "steps_per_second": round(measured.per_second), "of_floor": round(measured.per_second / against.per_second, 2) if against else 1.0,
                "p50_p95_p99_ms": milliseconds(measured.latencies) if measured.latencies else "", "cpu_us_per_step": round(measured.cpu_per_step_us),
            }
        )  # fmt: skip
        print(rows[-1], flush=True)

    await asyncio.to_thread(work.make_floor)
    await work.ours("bench-pure@1.0.0", 1, 50)  # warm
    for runs, steps in ((1, int(1500 * scale)), (8, int(300 * scale)), (32, int(100 * scale))):
        floor = await work.floor(runs, steps)
        told(f"W1 floor, {runs} run(s)", floor)
        told(f"W1 pure (one commit), {runs} run(s)", await work.ours("bench-pure@1.0.0", runs, steps), floor)
        told(f"W1 keyed (two commits), {runs} run(s)", await work.ours("bench-keyed@1.0.0", runs, steps), floor)
    for behind in (10, 100, 1000, 5000):
        found = await work.resume(int(behind * min(1.0, scale)) or 10)
        rows.append(
            {
                "what": f"W7 resume and finish with {behind} steps behind",
                "p50_ms": round(percentile(found, 0.5) * 1000, 1),
            }
        )
        print(rows[-1], flush=True)
    many = await work.model_calls(1000)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    rows.append(
        {
            "what": "1,000 runs x one model call of 2 s, one process",
            "seconds": round(many.seconds, 2),
            "peak_mib": memory,
        }
    )
    print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each workload")
    given = parser.parse_args()
    with place():
        from tests.bench import agents  # noqa: F401 - enters them into the registry

        rows = asyncio.run(measure(given.scale))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
