"""A page reads what it shows, however much else exists: the executed plans on 100,000 runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableagents.identity import own_tags
from tests.apps import offered
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.integration.scale.fill import fill
from tests.integration.scale.paths import paths
from tests.tampering import tamper

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(600)]
TIMES, SLACK = 10, 60
HALTS = 1  # halts, which every page shows
MAX_STATEMENTS = 8 + HALTS


def wasted(plan: dict[str, Any], slack: int, shown: float | None = None) -> Iterator[str]:
    """Yield a plan's nodes that read over ten times the rows that the limit above, or the query, returns."""
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


def vacuum() -> None:
    """Vacuum: rows deleted by earlier tests are still in the indexes, and a bitmap scan counts them."""
    with psycopg.connect(os.environ["DURABLEAGENTS_TEST_DATABASE_URL"], autocommit=True) as link:
        name = connection.settings_dict["NAME"]
        with psycopg.connect(link.info.dsn, password=link.info.password, dbname=name, autocommit=True) as own:
            own.execute("VACUUM")


@pytest.mark.long
def test_no_list_reads_more_than_ten_times_what_it_returns(reader: Callable[..., Reader]) -> None:
    """An integrator has 200 own runs and 500 of an own tag among 100,000: a list reads none of the others'."""
    vacuum()
    fill()
    trouble = {role: troubles(reader(role)) for role in ("operator", "approver_finance")}
    person = reader("integrator")
    assert person.user is not None
    own(person.user)
    # Finding out which runs are theirs may read all of those.
    trouble["integrator"] = troubles(person, slack=MINE)
    assert not any(trouble.values()), "\n".join(
        f"{role} {path}: {line}" for role in trouble for path, lines in trouble[role].items() for line in lines
    )


MINE = 2000


def own(user: User) -> None:
    own_tags.give(user, "tenant:7", justification="Theirs.")
    tamper("UPDATE runs_run SET creator = %s WHERE creator = 1000007", user.pk)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_run")


def troubles(person: Reader, slack: int = SLACK) -> dict[str, list[str]]:
    person.client.get("/agents")  # the session's first request of a minute also records presence
    trouble: dict[str, list[str]] = {}
    for path in paths():
        with CaptureQueriesContext(connection) as found:
            status = person.client.get(path).status_code
        # A search reads a bounded number of runs, more of them if few match the other filters.
        room = slack + sum(limit(path) for limit in offered("addresses", "max_found"))
        items = [
            query["sql"]
            for query in found.captured_queries
            if query["sql"].lstrip(" (").upper().startswith(("SELECT", "WITH"))
        ]
        bad = [f"{what}: {statement[:300]}" for statement in items for what in explained(statement, room)]
        if status not in (200, 403):
            bad.append(f"answered {status}")
        if len(found) > MAX_STATEMENTS:
            bad.append(f"{len(found)} statements")
        if bad:
            trouble[path] = bad
    return trouble
