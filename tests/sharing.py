"""How test processes share the files: an installation is started once, and what takes long is begun first."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling

# Tests of these files break one installation, which takes longer to start than most of them take.
TOGETHER = {
    "crash": ["tests/crash/test_failpoints.py", "tests/crash/test_fencing.py", "tests/crash/test_kill_anything.py"],
    "browser": ["tests/browser/"],
}
# The longest first: a long file that one process begins last, the other one waits for.
LONGEST = [
    *TOGETHER["crash"],
    *TOGETHER["browser"],
    "tests/infra/test_up.py",
    "tests/fleet/",
    "tests/upgrade/",
    "tests/bench/",
    "tests/infra/test_restart.py",
    "tests/api/test_web_process.py",
    "tests/infra/test_start.py",
    "tests/api/test_doors.py",
    "tests/runs/test_steering.py",
    "tests/runs/test_races.py",
    "tests/docs/test_examples.py",
    "tests/crash/",
    "tests/pooler/",
    "tests/api/",
    "tests/runs/",
    "tests/infra/",
    "tests/console/",
]


class ByInstallation(LoadFileScheduling):  # type: ignore[misc]
    """A file, or the files of one installation, to one process."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return next((name for name, paths in TOGETHER.items() if path.startswith(tuple(paths))), path)


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    def rank(item: pytest.Item) -> int:
        return next((i for i, path in enumerate(LONGEST) if item.nodeid.startswith(path)), len(LONGEST))

    return sorted(items, key=rank)
