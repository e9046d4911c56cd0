"""Declares workers dead that are not, as a wrong proof of death would. Run with the environment of an installation.

One incarnation id a line on stdin; answers each with the number of runs that were freed. This is the one lie in these
tests, and the point of it: whatever made somebody believe that a worker is gone, the database must refuse what it
writes when it comes back.
"""

from __future__ import annotations

import sys
from uuid import UUID

import django


def main() -> None:
    django.setup()
    from runs.workers.failover import worker_died

    for line in sys.stdin:
        print(worker_died(UUID(line.strip()), "a test says so"), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
