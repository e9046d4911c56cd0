"""One run that starts a thousand others at once and waits for all of them."""

from __future__ import annotations

import time

from django.db import connection

from ledger.models import Event
from runs.models import Run
from tests.system.bench.figures import Figure
from tests.system.bench.work import start
from tests.waiting import eventually


def families(*sizes: int) -> list[Figure]:
    """Measure one of each size, smallest first: a child's cost must not grow with their number."""
    goals = {max(sizes): "≥ 100 a second, no fewer than with 100"}
    return [_family(size, goals.get(size, "")) for size in sizes]


def _family(children: int, goal: str) -> Figure:
    began = time.monotonic()
    (run_id,) = start("bench-family", 1, children=children)
    eventually(lambda: Run.objects.filter(pk=run_id, ended_at__isnull=False).exists(), "the parent's end")
    seconds = time.monotonic() - began
    claims = Event.objects.filter(run_id=run_id, kind="RunClaimed").count()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM max(created_at) - min(created_at)), count(*) FILTER (WHERE state = 'completed'),"
            " extract(epoch FROM max(ended_at) - min(created_at)) FROM runs_run WHERE parent = %s",
            [run_id],
        )
        making, completed, working = cursor.fetchone()
    assert completed == children, f"{completed} of {children} children completed"
    return Figure(
        f"{children} children of one parent",
        per_second=round(children / seconds),
        count=children,
        note=f"{seconds:.1f} s from the start to the parent's end; started within {making:.1f} s, the last one done "
        f"after {working:.1f} s; the parent driven {claims} times",
        goal=goal,
    )
