"""Declares living workers dead by ids from stdin, as a wrong proof would; the database must then refuse them."""

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
