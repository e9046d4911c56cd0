"""`python -m tests.system.bench.scale [--runs N] [--json FILE] [--only pages,live]`: what every page and list costs
on a long
history, and what many open consoles cost. Ends with 1 if a page or the consoles cost more than the aim.

Costs are processor time, the page's and its database backend's together: the machine's other work doesn't change it.
Beside each page stand its own statements, sent bare.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.system.bench.figures import percentile, table
from tests.system.bench.place import place, superuser

RUNS = 1_000_000
MAX_STATEMENTS, MAX_MS = 8, 30.0
TIMES = 20
# A search reads up to a thousand runs before it shows fifty.
COLUMNS = (
    ("page", "path"),
    ("statements", "statements"),
    ("CPU ms", "cpu_ms"),
    ("of it database", "database_ms"),
    ("bare statements", "bare_ms"),
    ("p50 ms", "p50"),
    ("p95 ms", "p95"),
    ("bytes", "bytes"),
    ("", "missed"),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """One page. `cpu_ms` is ours and the database's, `bare_ms` the statements' alone; p50 and p95 are by the clock."""

    path: str
    statements: int
    cpu_ms: float
    database_ms: float
    bare_ms: float
    p50: float
    p95: float
    bytes: int

    @property
    def missed(self) -> str:
        items = [f"{self.statements} statements"] if self.statements > MAX_STATEMENTS else []
        return ", ".join([*items, *([f"{self.cpu_ms:.0f} ms"] if self.cpu_ms > MAX_MS else [])])

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), **({"missed": self.missed} if self.missed else {})}


def fill(runs: int) -> None:
    """By the superuser, past the triggers, in one transaction; then as the autovacuum would leave it."""
    from tests.integration.scale.fill import PARTS, TABLES, VALUES

    with psycopg.connect(superuser()) as link:
        link.execute("SET LOCAL session_replication_role = replica")
        link.execute("SET LOCAL synchronous_commit = off")
        link.execute("SET LOCAL maintenance_work_mem = '256MB'")
        for n, statement in enumerate(PARTS, 1):
            began = time.monotonic()
            link.execute(statement, {"runs": runs, **VALUES})
            print(f"filling, part {n} of {len(PARTS)}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    with psycopg.connect(superuser(), autocommit=True) as link:
        for name in TABLES:
            link.execute(f"VACUUM ANALYZE {name}")


@contextmanager
def backend() -> Iterator[psutil.Process]:
    """The process of the database that serves Django's connection here, which stays open meanwhile."""
    from django.db import connection

    connection.settings_dict["CONN_MAX_AGE"] = None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        yield psutil.Process(cursor.fetchone()[0])


def seconds_of(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def page_costs() -> Iterator[Cost]:
    from runs.journal.warm import load_and_freeze
    from tests.integration.scale.paths import paths
    from tests.system.bench.consoles import person

    client = person("operator")
    client.get("/agents")
    load_and_freeze()  # as the web process does before its first request
    with backend() as served:
        for path in [
            *paths(),
            "/audit",
            "/audit?action=retry",
            "/audit?by=rare",
            "/api/v1/audit",
            "/api/v1/runs?limit=200",
        ]:
            yield _cost(client, served, path)


def _cost(client: Any, served: psutil.Process, path: str) -> Cost:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    for _ in range(3):
        answer = client.get(path)
    if answer.status_code != 200:
        raise RuntimeError(f"{path} answered {answer.status_code}")
    statements = []
    for _ in range(2):  # once a minute a session's note is written, which is not the page's cost
        with CaptureQueriesContext(connection) as found:
            client.get(path)
        items = [query["sql"] for query in found.captured_queries]
        statements = min(statements or items, items, key=len)
    walls, ours, theirs = [], time.process_time(), seconds_of(served)
    for _ in range(TIMES):
        began = time.perf_counter()
        client.get(path)
        walls.append((time.perf_counter() - began) * 1000)
    ours, theirs = time.process_time() - ours, seconds_of(served) - theirs
    bare = seconds_of(served)
    with connection.cursor() as cursor:
        for _ in range(TIMES):
            for statement in statements:
                cursor.execute(statement)
                cursor.fetchall()
    bare = seconds_of(served) - bare
    per_page = [round(seconds * 1000 / TIMES, 1) for seconds in (ours + theirs, theirs, bare)]
    p50, p95 = (round(percentile(walls, share), 1) for share in (0.5, 0.95))
    return Cost(path, len(statements), *per_page, p50, p95, len(answer.content))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="how long the history is: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    parser.add_argument("--only", default="pages,live", help="parts, with commas between: %(default)s")
    given = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    costs: list[Cost] = []
    live: list[dict[str, Any]] = []
    with place() as folder:
        from tests.system.bench import consoles

        fill(given.runs)
        filled = time.monotonic() - began
        if "pages" in given.only:
            for cost in page_costs():
                costs.append(cost)
                print(cost.as_json(), file=sys.stderr, flush=True)
        if "live" in given.only:
            live = consoles.measured(folder)
    rows = [cost.as_json() for cost in costs]
    print(table(rows, COLUMNS))
    print(table(live, consoles.COLUMNS))
    conditions = (
        f"{given.runs:,} runs, filled in {filled:.0f} s; {os.cpu_count()} cores, load average "
        f"{load:.1f} before, Python {platform.python_version()}"
    )
    print(f"\n{conditions}")
    if given.json:
        Path(given.json).write_text(
            json.dumps({"conditions": conditions, "pages": rows, "live": live}, indent=1) + "\n"
        )
    return 1 if any(row.get("missed") for row in [*rows, *live]) else 0


if __name__ == "__main__":
    sys.exit(main())
