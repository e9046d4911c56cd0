"""Children among a hundred thousand: frequent queries read the running ones only."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.models import Run
from runs.queries import families
from runs.services.families import wishes
from tests.integration.scale.fill import fill
from tests.integration.scale.test_reads import explained, vacuum
from tests.tampering import tamper

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(600)]
SLACK = 1_000
# Of the runs that wait for time the first hundred are parents, one with 40,000 children; 200 are running.
_GROWN = """
    WITH parents AS (SELECT id, row_number() OVER (ORDER BY id) - 1 AS n FROM runs_run
                     WHERE state = 'waiting_event' ORDER BY id LIMIT 100),
         ended AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM runs_run WHERE ended_at IS NOT NULL),
         living AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM runs_run
                    WHERE state IN ('waiting_human', 'waiting_tool') ORDER BY id LIMIT 200),
         children AS (SELECT id, CASE WHEN mod(n, 2) = 0 THEN 0 ELSE mod(n, 100) END AS of FROM ended
                      UNION ALL SELECT id, mod(n, 100) FROM living)
    UPDATE runs_run SET parent = p.id, is_told = true FROM children c JOIN parents p ON p.n = c.of
    WHERE runs_run.id = c.id"""


def grown() -> UUID:
    vacuum()
    fill()
    tamper(_GROWN)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_run")
        cursor.execute("SELECT parent FROM runs_run WHERE parent IS NOT NULL GROUP BY parent ORDER BY count(*) DESC")
        return UUID(str(cursor.fetchone()[0]))


def set_to(run_id: UUID, state: str) -> None:
    tamper("UPDATE runs_run SET state = %s WHERE id = %s", state, run_id)


def bad_plans(act: Any) -> list[str]:
    with CaptureQueriesContext(connection) as found:
        act()
    items = [query["sql"] for query in found.captured_queries if query["sql"].lstrip(" (").startswith("SELECT")]
    assert items
    return [f"{what}: {statement[:300]}" for statement in items for what in explained(statement, SLACK)]


@pytest.mark.long
def test_what_goes_down_to_children_and_the_page_read_those_at_work() -> None:
    parent = grown()
    assert Run.objects.filter(parent=parent).count() > 30_000
    at_work = Run.objects.filter(parent__isnull=False, ended_at__isnull=True).count()
    assert at_work == 200
    found: list[str] = []
    for state in ("waiting_event", "paused", "cancelled"):
        set_to(parent, state)
        for of in (None, parent):
            for which in (wishes._CANCEL, wishes._RESUME):
                found += bad_plans(lambda: wishes._ids(which, of, after=wishes._FIRST, most=50))  # noqa: B023
            found += bad_plans(lambda: wishes._ids(wishes._PAUSED, of))  # noqa: B023
            found += bad_plans(
                lambda: wishes._ids(wishes._PAUSE, of, of=[parent], after=wishes._FIRST, most=50)  # noqa: B023
            )
    found += bad_plans(lambda: families.around(parent, most=20))
    assert not found, "\n".join(found)
    around = families.around(parent, most=20)
    assert around is not None and len(around.children) == 20
    living = sum(child.ended_at is None for child in around.children)
    assert living == Run.objects.filter(parent=parent, ended_at__isnull=True).count() > 0
