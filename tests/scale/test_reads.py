"""What a page reads is what it shows, however much there is beside it. Asked of the database: the plans it really runs, on 100,000 runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.keyset import closed
from runs import search
from runs.models import Run, Wait
from tests.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.scale.fill import fill

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(600)]
TIMES, SLACK = 10, 60
MOST_STATEMENTS = 8


def paths() -> Iterator[str]:
    """Every list, with its filters, at its beginning and deep inside."""
    middle = Run.objects.order_by("created_at")[Run.objects.count() // 2]
    deep = closed(middle.created_at, middle.id)
    last = Wait.objects.filter(kind="reconcile").order_by("-opened_at")[100]
    late = Wait.objects.filter(kind="approval", resolved_at__isnull=True).order_by("-deadline")[100]
    yield from ("/", "/runs", "/runs?state=waiting_human", "/runs?state=running", "/runs?state=paused", "/runs?agent=buyer", f"/runs?before={deep}")
    yield from ("/runs?agent=rare", "/runs?agent=rare&state=failed", "/runs?agent=buyer%401.0.0", "/runs?agent=buyer%409.9.9", "/runs?agent=nobody&state=waiting")
    yield from (f"/runs?state=running&before={deep}", f"/runs?agent=buyer&before={deep}", f"/runs?agent=rare&state=completed&before={deep}")
    yield from ("/runs?q=INV-50000", "/runs?q=vendor77", "/runs?q=PO-50000", "/runs?q=nothing-of-the-kind", f"/runs?q={middle.id}", f"/runs?q={str(middle.id)[-6:]}")
    yield from ("/inbox", "/inbox?show=decided", f"/inbox?beyond={closed(late.deadline, late.id)}", f"/inbox?show=decided&beyond={deep}", "/inbox?q=vendor77", "/inbox?show=decided&q=vendor77", "/runs?q=shop%20vendor77%20nordlicht")
    yield from ("/reconcile", f"/reconcile?beyond={closed(last.opened_at, last.id)}", "/agents", "/fleet", "/fleet/recoveries", "/fleet/recoveries?host=rare")
    yield from ("/api/v1/runs", "/api/v1/runs?state=failed", "/api/v1/runs?agent=rare&state=failed", "/api/v1/runs?agent=buyer", "/api/v1/runs?q=vendor77")
    yield from ("/api/v1/approvals", "/api/v1/approvals?state=open", "/api/v1/approvals?state=expired", "/api/v1/approvals?queue=legal")
    yield from ("/api/v1/approvals?queue=legal&state=approved", "/api/v1/incidents?host=rare", "/api/v1/incidents?cause=operator")


def wasted(plan: dict[str, Any], slack: int, shown: float | None = None) -> Iterator[str]:
    """The places of a plan that read more than ten times what they are for: the rows that the limit above them, or the query, lets out."""
    node = plan["Node Type"]
    if shown is None or node == "Limit":
        shown = float(plan["Actual Rows"]) * plan["Actual Loops"]
    if "Scan" in node and "Subquery" not in node and "Function" not in node and "CTE" not in node:
        dropped = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        read = (float(plan["Actual Rows"]) + dropped) * plan["Actual Loops"]
        if read > TIMES * shown + slack:
            yield f"{node} on {plan.get('Relation Name', plan.get('Index Name'))} reads {read:.0f} rows for {shown:.0f}"
    for below in plan.get("Plans", []):
        yield from wasted(below, slack, shown)


def explained(statement: str, slack: int) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + statement.replace("%", "%%"))
        found = cursor.fetchone()[0]
    return list(wasted((json.loads(found) if isinstance(found, str) else found)[0]["Plan"], slack))


@pytest.mark.parametrize("role", ["operator", "approver_finance", "approver_legal"])
def test_no_list_reads_more_than_ten_times_what_it_returns(role: str, reader: Callable[..., Reader]) -> None:  # noqa: F811
    fill()
    person = reader(role)
    person.client.get("/agents")  # the session's first request of a minute also notes that somebody is there
    trouble: dict[str, list[str]] = {}
    for path in paths():
        with CaptureQueriesContext(connection) as found:
            status = person.client.get(path).status_code
        slack = search.MOST if "q=" in path else SLACK  # a search looks at a bounded number of runs, and then at the other filters
        asked = [query["sql"] for query in found.captured_queries if query["sql"].lstrip(" (").upper().startswith(("SELECT", "WITH"))]
        bad = [f"{what}: {statement[:300]}" for statement in asked for what in explained(statement, slack)]
        if status not in (200, 403):
            bad.append(f"answered {status}")
        if len(found) > MOST_STATEMENTS:
            bad.append(f"{len(found)} statements")
        if bad:
            trouble[path] = bad
    assert trouble == {}, "\n".join(f"{path}: {line}" for path, lines in trouble.items() for line in lines)
