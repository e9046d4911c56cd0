"""Distributes test files to processes: an installation starts once, and the longest files begin first."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling

# These files share an installation, which takes longer to start than most of them run. A file belongs to the first
# group that has its prefix; the browser's tests are two groups, so that two processes share them.
TOGETHER = {
    "crash": [
        "tests/system/crash/test_failpoints.py",
        "tests/system/crash/test_fencing.py",
        "tests/system/crash/test_kill_anything.py",
    ],
    "browser, b to l, and policies": [f"tests/system/browser/test_{name}" for name in (*"bcdefghil", "policies")],
    "browser, the others": ["tests/system/browser/"],
}
# Begun first: a long file begun last leaves the other processes idle.
LONG_FILES = [
    *TOGETHER["crash"],
    "tests/system/browser/",
    "tests/system/infra/test_up.py",
    "tests/system/fleet/",
    "tests/system/bench/",
    "tests/system/infra/test_restart.py",
    "tests/system/api/",
    "tests/system/",
    "tests/integration/console/test_roles.py",
    "tests/integration/api/test_roles.py",
    "tests/integration/approvals/test_payloads.py",
    "tests/integration/runs/test_steering.py",
    "tests/integration/runs/test_races.py",
    "tests/integration/scale/",
    "tests/integration/runs/",
    "tests/integration/console/",
    "tests/integration/",
]


class ByInstallation(LoadFileScheduling):  # type: ignore[misc]
    """Give a file, or the files of one installation, to one process."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return next((name for name, paths in TOGETHER.items() if path.startswith(tuple(paths))), path)


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Sort tests so that the files that take longest are begun first."""

    def rank(item: pytest.Item) -> int:
        return next((i for i, path in enumerate(LONG_FILES) if item.nodeid.startswith(path)), len(LONG_FILES))

    return sorted(items, key=rank)
