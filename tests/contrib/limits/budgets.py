"""Shared pools for tests, and their invariants."""

from __future__ import annotations

from typing import Any

from django.db import connection

from durableagents.contrib.limits import shared_budgets as acts
from durableagents.contrib.limits.models import BudgetMeter, SharedBudget
from durableagents.contrib.limits.shared_budgets import SharedBudgetBody, SharedBudgetChangeBody
from ledger.verification.registers import verify_registers
from runs.models import Run, Wait
from runs.workers import timers
from tests.integration.runs.stage import problems, waiting
from tests.world import OLGA

WHY = "what the month may cost"
_serial = iter(range(10**9))


def pool(resource: str = "tool_calls", limit: Any = 2, scope: str = "all", of: str = "", **more: Any) -> SharedBudget:
    given: dict[str, Any] = {"name": f"pool {next(_serial)}", "period": "month", "justification": WHY} | more
    return acts.create(SharedBudgetBody(resource=resource, limit=limit, scope=scope, whose=of, **given), by=OLGA)


def raised(shared: SharedBudget, limit: Any) -> SharedBudget:
    return acts.change(shared.pk, SharedBudgetChangeBody(limit=limit, justification=WHY), by=OLGA)


def meter(shared: SharedBudget) -> BudgetMeter:
    return BudgetMeter.objects.get(budget=shared)


def counted(shared: SharedBudget) -> tuple[int, int]:
    found = meter(shared)
    return found.used, found.reserved


def in_line(run: Run) -> list[Wait]:
    return [wait for wait in waiting(run) if wait.kind == "pool"]


def begun_again(shared: SharedBudget) -> None:
    """End the current period and move its charges into the past."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_poolmeter SET ends_at = clock_timestamp() WHERE pool_id = %s", [shared.pk])


def forgotten(shared: SharedBudget) -> None:
    BudgetMeter.objects.filter(budget=shared).update(promised=0, promised_at=None)


def let_in() -> None:
    timers.sweep_promptly()


def is_sound(*runs: Run) -> None:
    found = [problem for each in verify_registers() for problem in each.problems]
    assert not found
    for run in runs:
        assert not problems(run)
