"""The cost of metrics and traces per step: W1 with and without them, in turn."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from ledger import observers
from tests.system.bench import work
from tests.system.bench.figures import Figure, middle
from tests.system.bench.place import CHECKOUT

CATCH_UP_SECONDS = 300.0
# The exporter looks for events twice a second, which takes some milliseconds.
IDLE_SECONDS, IDLE_SHARE = 2.0, 0.02
GOAL = "≥ 0.97 × without them"


@contextmanager
def exporter() -> Iterator[psutil.Process]:
    """Run `manage.py export_traces`, as `manage.py worker` does, and a collector beside it."""
    command = [sys.executable, "-m", "tests.system.bench.collector"]
    collector = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert collector.stdout is not None
    address = {"DURABLEAGENTS_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.stdout.readline().strip()}"}
    traces = subprocess.Popen(
        [sys.executable, "manage.py", "export_traces"], cwd=CHECKOUT, env={**os.environ, **address}
    )
    try:
        yield psutil.Process(traces.pid)
    finally:
        for process in (traces, collector):
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()


async def cost(connections: Any, traces: psutil.Process, graph_id: str, runs: int, steps: int, rounds: int) -> Figure:
    """Measure rounds in turn. Each begins when the spans of the previous one have been exported."""
    known = dict(observers.installed)
    found: dict[bool, list[work.Measured]] = {True: [], False: []}
    await _exported(traces)
    used = _cpu_seconds(traces)
    for n in range(2 * rounds):
        # Neither is always the first: a round also pays for what the one before left to do.
        is_observed = n % 4 in (0, 3)
        if not is_observed:
            traces.suspend()
            observers.installed.clear()
        found[is_observed].append(await work.driven(connections, graph_id, runs, steps))
        traces.resume()
        observers.installed.update(known)
        await _exported(traces)  # the spans of both kinds of rounds, outside the measured time
    exporting = _cpu_seconds(traces) - used
    observed = found[True]
    shares = sorted(one.per_second / other.per_second for one, other in zip(observed, found[False], strict=True))
    done = runs * steps * rounds
    return Figure(
        f"W1 with metrics and traces, {graph_id.split('@')[0].removeprefix('bench-')}, {runs} run(s)",
        per_second=round(middle(m.per_second for m in observed), 0),
        cpu_us=round(middle(m.cpu_seconds / m.steps * 1e6 for m in observed), 0),
        server_cpu_us=round(sum(m.server_cpu_seconds for m in observed) / done * 1e6, 0),
        count=rounds,
        note=f"{middle(shares):.2f} × without them ({shares[0]:.2f} to {shares[-1]:.2f}); "
        f"the exporter used {exporting / (2 * done) * 1e6:.0f} µs of CPU a step",
        goal=GOAL,
    )


async def _exported(traces: psutil.Process) -> None:
    """Wait until the exporter only looks for new events. Raises TimeoutError."""
    used, until = _cpu_seconds(traces), time.monotonic() + CATCH_UP_SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(IDLE_SECONDS)
        now = _cpu_seconds(traces)
        if now - used < IDLE_SECONDS * IDLE_SHARE:
            return
        used = now
    raise TimeoutError(f"the exporter is more than {CATCH_UP_SECONDS:.0f} s behind")


def _cpu_seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system
