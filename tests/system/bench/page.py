"""CPU time of a long run's page and its live refresh, next to a bare read of their rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from tests.system.bench.figures import Figure, latency

TABS = ("timeline", "journal")


def pages(events: int, looks: int) -> list[Figure]:
    """Open the page of a long run for the first time, open it again, and refresh it after one more event."""
    from django.contrib.auth.models import Group, User
    from django.test import Client

    from ledger import events as e
    from ledger.append import append
    from runs.journal.warm import load_and_freeze
    from runs.services import lifecycle
    from runs.story import folded
    from tests.integration.scale.journals import HANDS, lived

    user = User.objects.create_user("bench-page")
    user.groups.add(Group.objects.get_or_create(name="operator")[0])
    client = Client(headers={"host": "127.0.0.1"})
    client.force_login(user)
    run = lifecycle.start("bench-pure", {"steps": 1}, by=HANDS)
    lived(run.id, events - 1)
    rows: list[Figure] = []
    load_and_freeze()  # as the web process does before its first request

    def look(tab: str, **more: str) -> None:
        assert client.get(f"/runs/{run.id}", {"tab": tab, **more}).status_code == 200

    def one_more(n: int) -> None:
        append(run.id, e.ValueRead(slot=f"more/{n}", what="now", payload="x"), by=HANDS)

    for tab in TABS:
        look(tab)
        cold = [_cpu(lambda: look(tab), folded.forget_all) for _ in range(looks)]  # noqa: B023
        warm = [_cpu(lambda: look(tab, fragment="live"), lambda: one_more(len(rows) * looks + n)) for n in range(looks)]  # noqa: B023
        rows.append(
            latency(f"run page, {tab}, {events:,} events, first look in a process", cold, goal="p50 ≤ 60 of CPU")
        )
        rows.append(latency(f"run page, {tab}, {events:,} events, live refresh", warm, goal="p50 ≤ 50 of CPU"))
    rows.append(latency("the latest 100 of its rows, read bare", [_cpu(lambda: _bare(run.id)) for _ in range(looks)]))
    return rows


def _cpu(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    before()
    began = time.process_time()
    work()
    return time.process_time() - began


def _bare(run_id: UUID) -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM ledger_event WHERE run_id = %s ORDER BY seq DESC LIMIT 100", [run_id])
        return len(cursor.fetchall())
