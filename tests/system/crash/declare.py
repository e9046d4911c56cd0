"""Declares living workers dead, as a wrong proof of death would. Run with an installation's environment.

Reads incarnation ids from stdin, one a line, and answers with the number of freed runs. Whatever the reason for the
mistake, the database must refuse what such a worker writes when it returns.
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
