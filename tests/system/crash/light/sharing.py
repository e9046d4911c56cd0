"""Budgets shared by a light schedule's runs, and what people do when one is used up."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection

from durableagents.contrib.limits import shared_budgets as acts
from durableagents.contrib.limits.models import BudgetMeter, SharedBudget
from durableagents.contrib.limits.shared_budgets import SharedBudgetBody, SharedBudgetChangeBody
from ledger.errors import DurableAgentsError
from runs.models import Wait
from runs.workers import timers
from tests.system.crash.light.plan import Schedule
from tests.system.crash.shared import Shared
from tests.world import OLGA

WHY = "The schedule says so."
# Budgets that return by themselves admit waiting runs; for this long nobody helps.
PATIENCE_SECONDS = 0.05
_POOLS = "SELECT id, resource FROM runs_pool WHERE name LIKE %s"
_PERIODS = """
SELECT pool_id, starts_at, most, used, reserved FROM runs_poolmeter WHERE pool_id = ANY(%s)
UNION ALL SELECT pool_id, starts_at, most, used, reserved FROM runs_poolperiod WHERE pool_id = ANY(%s)"""
_CHARGES = """
SELECT run_id::text, slot, attempt, n, pool_id, starts_at, reserved, used FROM runs_poolcharge
WHERE pool_id = ANY(%s)"""


class Sharing:
    def __init__(self, schedule: Schedule, tag: str) -> None:
        self._schedule, self.tag = schedule, tag
        self._asked_at: dict[UUID, float] = {}

    def make(self) -> None:
        """Create each pool once even if the answer is lost."""
        for resource, limit in self._schedule.pools:
            name = f"{self.tag} {resource}"
            if not SharedBudget.objects.filter(name=name).exists():
                given: Any = {"resource": resource, "limit": limit, "period": "month", "justification": WHY}
                acts.create(SharedBudgetBody(name=name, scope="tag", whose=self.tag, **given), by=OLGA)

    def give(self, wait_id: UUID) -> bool:
        """Admit waiting runs that fit, and raise the limit after a moment. Return True if something was done."""
        timers.sweep_promptly()
        wait = Wait.objects.get(pk=wait_id)
        since = self._asked_at.setdefault(wait_id, time.monotonic())
        if wait.resolved_at is not None:
            return True
        if time.monotonic() - since < PATIENCE_SECONDS:
            return False
        pool, wanted = wait.detail["pool"], wait.detail["wanted"]
        try:
            self._make_room(pool, wanted)
        except DurableAgentsError:
            return False
        BudgetMeter.objects.filter(pk=pool).update(promised=0, promised_at=None)
        timers.sweep_promptly()
        return True

    def _make_room(self, pool: int, wanted: int) -> None:
        meter = BudgetMeter.objects.get(pk=pool)
        match self._schedule.sharing:
            case "off":
                acts.switch_off(pool, by=OLGA, justification=WHY)
            case "refill" if wanted <= meter.most:
                with connection.cursor() as cursor:
                    cursor.execute("UPDATE runs_poolmeter SET ends_at = clock_timestamp() WHERE pool_id = %s", [pool])
            case _:
                limit = acts.amount_for_people(meter.resource, max(meter.most, meter.used + meter.reserved) + wanted)
                acts.change(
                    pool, SharedBudgetChangeBody.model_validate({"limit": limit, "justification": WHY}), by=OLGA
                )

    def put_away(self) -> None:
        """Switch the pools off: an installation has a maximum of them."""
        for pool in SharedBudget.objects.filter(name__startswith=f"{self.tag} ", off_at__isnull=True):
            acts.switch_off(pool.pk, by=OLGA, justification=WHY)

    def told(self, link: psycopg.Connection[Any]) -> Shared:
        with link.transaction():
            link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            pools = link.execute(_POOLS, [f"{self.tag} %"]).fetchall()
            ids = [id for id, _ in pools]
            periods = link.execute(_PERIODS, [ids, ids]).fetchall()
            charges = link.execute(_CHARGES, [ids]).fetchall()
        names = ("run", "slot", "attempt", "n", "pool", "starts_at", "reserved", "used")
        return Shared(
            [{"id": id, "resource": resource} for id, resource in pools],
            [dict(zip(("pool", "starts_at", "most", "used", "reserved"), row, strict=True)) for row in periods],
            [dict(zip(names, row, strict=True)) for row in charges],
            is_off=self._schedule.sharing == "off",
        )
