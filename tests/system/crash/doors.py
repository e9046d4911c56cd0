"""A crowd at the door of a real web process: what those who have business there notice of it, and what is left of it
afterwards.

`python -m tests.system.crash --doors` has 200 slow, 200 greedy and 60 guessing clients at once; a test of the suite
has fewer.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import psutil

from tests.conftest import CHECKOUT

# What is promised on a quiet machine, and what a quiet machine takes when nobody else is there (99 of 100).
HEALTH_SECONDS, QUIET_HEALTH_SECONDS = 0.1, 0.010
API_SECONDS, QUIET_API_SECONDS = 0.5, 0.050
RSS_FACTOR = 1.2
_MEASURED_SECONDS = 5.0
_SETTLING_SECONDS = 40.0


@dataclass
class Report:
    """What was measured. `told` is what the crowd was answered: kind and status, how often."""

    health_before: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    api_before: list[float] = field(default_factory=list)
    api: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    # How many times longer a piece of work took by the clock than it took of the processor: others work here too.
    waits: list[float] = field(default_factory=list)
    rss_before: int = 0
    rss_after: int = 0

    def findings(self) -> list[str]:
        """What is not as promised, on a machine as fast as this one was just before, and as this one was for anybody
        meanwhile."""
        found = []
        for what, before, times, promised, quiet in (
            ("/healthz", self.health_before, self.health, HEALTH_SECONDS, QUIET_HEALTH_SECONDS),
            ("the API", self.api_before, self.api, API_SECONDS, QUIET_API_SECONDS),
        ):
            bound = promised * max(1.0, p99(before) / quiet, p99(self.waits) if self.waits else 1.0)
            if len(times) < 10 or p99(times) > bound:
                found.append(f"{what}: p99 {p99(times):.3f} s of {len(times)}, at most {bound:.3f} s")
        found += [
            f"a caller with a key was told {status} {count} times"
            for status, count in self.statuses.items()
            if status not in ("200", "503 busy")
        ]
        broken = {
            told: count
            for told, count in self.told.items()
            if " 5" in told and not told.endswith("503 busy") and told != "probing 503"
        }
        if broken:
            found.append(f"5xx that is not *busy*: {broken}")
        if self.rss_after > self.rss_before * RSS_FACTOR:
            found.append(f"memory: {self.rss_before >> 20} MB before, {self.rss_after >> 20} MB after")
        return found

    def __str__(self) -> str:
        return (
            f"doors: healthz p50/p99 {1000 * p(self.health, 50):.0f}/{1000 * p99(self.health):.0f} ms"
            f" (before {1000 * p(self.health_before, 50):.0f}/{1000 * p99(self.health_before):.0f}),"
            f" API {1000 * p(self.api, 50):.0f}/{1000 * p99(self.api):.0f} ms"
            f" (before {1000 * p(self.api_before, 50):.0f}/{1000 * p99(self.api_before):.0f}),"
            f" work waits {p(self.waits, 50):.1f}/{p99(self.waits):.1f} times its own length, "
            f"{self.statuses}, RSS {self.rss_before >> 20} → {self.rss_after >> 20} MB, the crowd: "
            f"{dict(sorted(self.told.items()))}"
        )


def besiege(port: int, pid: int, key: str, *, slow: int, greedy: int, guessing: int, seconds: float) -> Report:
    """Measure, let the crowd come, measure the same, let it go, and look what it left."""
    report = Report()
    web = psutil.Process(pid)
    _measure(port, key, report.health_before, report.api_before, report, seconds=_MEASURED_SECONDS)
    report.rss_before = web.memory_info().rss
    command = [
        sys.executable,
        "-m",
        "tests.system.crash.crowd",
        *(str(each) for each in (port, slow, greedy, guessing, seconds)),
    ]
    crowd = subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}
    )
    try:
        _measure(port, key, report.health, report.api, report, seconds=seconds)
        said, _ = crowd.communicate(timeout=seconds + 60)
    finally:
        crowd.kill()
        crowd.wait()
    report.told = json.loads(said)
    deadline = time.monotonic() + _SETTLING_SECONDS
    while (rss := web.memory_info().rss) > report.rss_before * RSS_FACTOR and time.monotonic() < deadline:
        time.sleep(0.5)
    report.rss_after = rss
    return report


def _measure(port: int, key: str, health: list[float], api: list[float], report: Report, *, seconds: float) -> None:
    """One caller who asks, waits for the answer, and asks again on a new connection."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for times, path, headers in (
            (health, "/healthz", {}),
            (api, "/api/v1/runs?limit=10", {"Authorization": f"Bearer {key}"}),
        ):
            began = time.monotonic()
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as link:
                link.request("GET", path, headers=headers)
                answer = link.getresponse()
                body = answer.read()
            times.append(time.monotonic() - began)
            told = (
                f"{answer.status}{' busy' if answer.status == 503 and json.loads(body).get('code') == 'busy' else ''}"
            )
            report.statuses[told] = report.statuses.get(told, 0) + 1
        report.waits.append(_stretch())
        time.sleep(0.02)


def _stretch() -> float:
    """A few milliseconds of work, by the clock and by the processor."""
    began, used = time.monotonic(), time.process_time()
    hashlib.sha256(bytes(4_000_000)).digest()
    return max(1.0, (time.monotonic() - began) / max(time.process_time() - used, 1e-6))


def p(times: list[float], percent: int) -> float:
    """The smallest of the times that so many of hundred are not above."""
    return sorted(times)[max(0, ceil(len(times) * percent / 100) - 1)] if times else float("inf")


def p99(times: list[float]) -> float:
    return p(times, 99)


def perform(folder: Path) -> Report:
    """The whole crowd, on a whole installation."""
    with _installation(folder) as (port, pid, key):
        return besiege(port, pid, key, slow=200, greedy=200, guessing=60, seconds=30.0)


@contextmanager
def _installation(folder: Path) -> Iterator[tuple[int, int, str]]:
    from tests.system.crash.stack import Stack

    stack = Stack(folder, workers=1)
    try:
        stack.start()
        yield stack.port, stack.pids("web")[0], stack.demo()["api_keys"]["operator"]
    finally:
        stack.end()
