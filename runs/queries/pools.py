"""Pools as people see them: where each stands in its period, when it is filled again, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Q

from ledger.clock import database_now
from runs.models import Pool, PoolCharge, PoolMeter, PoolNotice, PoolPeriod, Run, Wait
from runs.services.pools.acts import limit_of

SHOWN = 10  # of those who wait for a pool
LAST = 3  # periods that are over
COUNTED_TO = 1000
_TURNED = "SELECT starts_at, ends_at FROM runs_pool_period(%s, %s, %s)"
_WAITING = """
    SELECT count(*) FROM (
        SELECT 1 FROM runs_wait WHERE kind = 'pool' AND resolved_at IS NULL AND detail ->> 'pool' = %s LIMIT %s) w"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A pool in the period that is under way now. `waiting` is how many calls wait for it, up to `COUNTED_TO`; `first`
    those that come first; `too_large` how many of these want more than a whole period gives."""

    pool: Pool
    of: str
    most: int
    used: int
    reserved: int
    starts_at: datetime
    refills_at: datetime
    warned_at: datetime | None
    waiting: int
    first: list[Wait]
    last: list[PoolPeriod]
    notices: list[PoolNotice]

    @property
    def left(self) -> int:
        return max(0, self.most - self.used - self.reserved)

    @property
    def percent(self) -> int:
        """How much of it is used or set aside."""
        return 100 if not self.most else min(100, (self.used + self.reserved) * 100 // self.most)

    @property
    def too_large(self) -> int:
        return sum(_wanted(wait) > self.most for wait in self.first)

    @property
    def resource(self) -> str:
        """As budgets call it."""
        return "usd" if self.pool.resource == Pool.Resource.USD else str(self.pool.resource)

    def said(self, amount: int) -> str | int:
        """An amount as the API has it."""
        return limit_of(self.pool.resource, amount)

    @property
    def needs_somebody(self) -> bool:
        """Whether calls wait for it."""
        return self.waiting > 0


def _wanted(wait: Wait) -> int:
    wanted = wait.detail.get("wanted") if isinstance(wait.detail, dict) else None
    return wanted if isinstance(wanted, int) else 0


def newest(*, limit: int, beyond: int | None = None) -> list[Pool]:
    """Pools, those that are on first, newest first; that come after a place in that order."""
    rows = Pool.objects.select_related("meter").filter(off_at__isnull=True).order_by("-id")
    return list((rows if beyond is None else rows.filter(pk__lt=beyond))[:limit])


def listed(pools: Sequence[Pool]) -> list[Listed]:
    """The same with where they stand."""
    now = database_now()
    names = dict(
        get_user_model()
        .objects.filter(pk__in=[int(p.of) for p in pools if p.scope == Pool.Scope.PERSON and p.of.isdigit()])
        .values_list("pk", "username")
    )
    return [_one(pool, names, now) for pool in pools]


def _one(pool: Pool, names: dict[int, str], now: datetime) -> Listed:
    meter = PoolMeter.objects.get(pool=pool)
    is_over = meter.ends_at <= now and meter.is_on
    starts_at, ends_at = meter.starts_at, meter.ends_at
    first: list[Wait] = []
    with connection.cursor() as cursor:
        if is_over:  # nobody has begun anything since
            cursor.execute(_TURNED, [meter.period, meter.zone, now])
            starts_at, ends_at = cursor.fetchone() or (starts_at, ends_at)
        cursor.execute(_WAITING, [str(pool.pk), COUNTED_TO])
        (waiting,) = cursor.fetchone() or (0,)
    if waiting:
        waits = Wait.objects.select_related("run").filter(
            kind=Wait.Kind.POOL, resolved_at__isnull=True, detail__pool=pool.pk
        )
        first = list(waits.order_by("opened_at", "id")[:SHOWN])
    of = names.get(int(pool.of), pool.of) if pool.scope == Pool.Scope.PERSON and pool.of.isdigit() else pool.of
    return Listed(
        pool, of, meter.most, 0 if is_over else meter.used, 0 if is_over else meter.reserved, starts_at, ends_at,
        None if is_over else meter.warned_at, waiting, first,
        list(PoolPeriod.objects.filter(pool=pool).order_by("-starts_at")[:LAST]),
        list(PoolNotice.objects.filter(pool=pool, starts_at=starts_at).order_by("id")),
    )  # fmt: skip


def gated() -> list[Listed]:
    """Pools that calls wait for: one entry each, however many they are."""
    waits = Wait.objects.filter(kind=Wait.Kind.POOL, resolved_at__isnull=True)
    if not waits.exists():
        return []
    pools = Pool.objects.filter(Q(meter__gate_at__isnull=False) | Q(pk__in=_waited_for())).order_by("id")
    return [one for one in listed(list(pools)) if one.needs_somebody]


def _waited_for() -> list[int]:
    """The pools that somebody waits for, by walking the index from one to the next."""
    sql = """
        WITH RECURSIVE each(pool) AS (
            (SELECT detail ->> 'pool' FROM runs_wait WHERE kind = 'pool' AND resolved_at IS NULL ORDER BY 1 LIMIT 1)
            UNION ALL
            SELECT (SELECT w.detail ->> 'pool' FROM runs_wait w WHERE w.kind = 'pool' AND w.resolved_at IS NULL
                    AND w.detail ->> 'pool' > each.pool ORDER BY 1 LIMIT 1)
            FROM each WHERE each.pool IS NOT NULL)
        SELECT pool FROM each WHERE pool IS NOT NULL"""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [int(row[0]) for row in cursor.fetchall() if row[0].isdigit()]


def of_run(run: Run) -> list[Listed]:
    """The pools that a run belongs to, or drew on: of providers those whose models it asked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_pools_of(%s, NULL)", [run.pk])
        (found,) = cursor.fetchone() or ([],)
    charged = PoolCharge.objects.filter(run_id=run.pk).values_list("pool_id", flat=True).distinct()
    return listed(list(Pool.objects.filter(pk__in={*found, *charged}).order_by("id")))
