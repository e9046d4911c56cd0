"""The time to the first step of a single run while another agent has ten thousand ready runs."""

from __future__ import annotations

import time
from pathlib import Path

from runs.models import Run
from tests.system.bench.crew import Ears, crew
from tests.system.bench.figures import Figure, latency
from tests.system.bench.work import start
from tests.waiting import eventually

BUSY, SINGLE = "bench-effects", "bench-mark"


def fairness(folder: Path, ears: Ears, ready: int, times: int) -> Figure:
    """Measure starts while another agent's ready runs take every slot; drop the rest of them."""
    start(BUSY, ready, steps=10)
    found: list[float] = []
    with crew(folder, ears, workers=2, slots=50):
        eventually(lambda: Run.objects.filter(agent=BUSY, owner__isnull=False).count() >= min(ready, 80), "full slots")
        for _ in range(times):
            began = time.monotonic()
            (run_id,) = start(SINGLE, 1, steps=1)
            found.append(ears.wait(lambda told, run=str(run_id): told.run_id == run).at - began)  # type: ignore[misc]
        left = Run.objects.filter(agent=BUSY, ready_at__isnull=False).count()
    Run.objects.filter(agent=BUSY, ended_at__isnull=True).update(ready_at=None, owner=None)
    note = f"{left:,} were still ready at the end"
    name = f"start → first step, beside {ready:,} ready runs of another agent"
    return latency(name, found, goal="p99 ≤ 300", note=note)
