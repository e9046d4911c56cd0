"""Shared pools for tests, and their invariants."""

from __future__ import annotations

from typing import Any

from django.db import connection

from ledger.verification.registers import verify_registers
from runs.models import Pool, PoolMeter, Run, Wait
from runs.services.bodies import PoolBody, PoolChangeBody
from runs.services.pools import acts
from runs.workers import timers
from tests.integration.runs.stage import problems, waiting
from tests.world import OLGA

WHY = "what the month may cost"
_serial = iter(range(10**9))


def pool(resource: str = "tool_calls", limit: Any = 2, scope: str = "all", of: str = "", **more: Any) -> Pool:
    given: dict[str, Any] = {"name": f"pool {next(_serial)}", "period": "month", "justification": WHY} | more
    return acts.create(PoolBody(resource=resource, limit=limit, scope=scope, whose=of, **given), by=OLGA)


def raised(shared: Pool, limit: Any) -> Pool:
    return acts.change(shared.pk, PoolChangeBody(limit=limit, justification=WHY), by=OLGA)


def meter(shared: Pool) -> PoolMeter:
    return PoolMeter.objects.get(pool=shared)


def counted(shared: Pool) -> tuple[int, int]:
    found = meter(shared)
    return found.used, found.reserved


def in_line(run: Run) -> list[Wait]:
    return [wait for wait in waiting(run) if wait.kind == "pool"]


def begun_anew(shared: Pool) -> None:
    """End the current period and move its charges into the past."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_poolmeter SET ends_at = clock_timestamp() WHERE pool_id = %s", [shared.pk])


def forgotten(shared: Pool) -> None:
    PoolMeter.objects.filter(pool=shared).update(promised=0, promised_at=None)


def let_in() -> None:
    timers.open_gates()


def is_sound(*runs: Run) -> None:
    found = [problem for each in verify_registers() for problem in each.problems]
    assert not found
    for run in runs:
        assert not problems(run)
