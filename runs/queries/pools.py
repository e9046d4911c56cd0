"""Pools and their status: use in the current period, refill, and waiting runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import F, Q, Window
from django.db.models.expressions import RawSQL
from django.db.models.functions import RowNumber

from ledger.errors import NotFound
from ledger.web.seeing.viewers import viewer
from runs import seen
from runs.models import Pool, PoolNotice, PoolPeriod, Run, Wait
from runs.services.pools.acts import limit_of

SHOWN = 10  # waiting runs shown
LAST = 3  # past periods shown
COUNTED_TO = 1000
# Status of pools: a meter whose period is over and unused since counts as turned.
_STANDING = """
    WITH meters AS (
        SELECT m.*, m.ends_at <= statement_timestamp() AND m.is_on AS is_over
        FROM runs_poolmeter m WHERE m.pool_id = ANY(%s)
    )
    SELECT m.pool_id, m.most, CASE WHEN m.is_over THEN 0 ELSE m.used END,
           CASE WHEN m.is_over THEN 0 ELSE m.reserved END,
           coalesce(t.starts_at, m.starts_at), coalesce(t.ends_at, m.ends_at),
           CASE WHEN NOT m.is_over THEN m.warned_at END, w.waiting, u.username
    FROM meters m JOIN runs_pool p ON p.id = m.pool_id
    LEFT JOIN LATERAL runs_pool_period(m.period, m.zone, statement_timestamp()) t ON m.is_over
    LEFT JOIN auth_user u ON p.scope = 'person' AND u.id::text = p."of"
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting FROM (
            SELECT 1 FROM runs_wait
            WHERE kind = 'pool' AND resolved_at IS NULL AND detail ->> 'pool' = m.pool_id::text LIMIT %s
        ) few
    ) w"""
_FIRST = """
    SELECT w.id FROM unnest(%s::bigint[]) AS p (id) CROSS JOIN LATERAL (
        SELECT id FROM runs_wait WHERE kind = 'pool' AND resolved_at IS NULL AND detail ->> 'pool' = p.id::text
        ORDER BY opened_at, id LIMIT %s
    ) w"""
_OF_RUN = "SELECT unnest(runs_pools_of(%s, NULL)) UNION SELECT pool_id FROM runs_poolcharge WHERE run_id = %s"


@dataclass(frozen=True, slots=True)
class Listed:
    """A pool in its current period.
    `waiting` calls are counted to `COUNTED_TO`; `first` come first; `too_large` of these want more than a whole period
    gives."""

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
        return 100 if not self.most else min(100, (self.used + self.reserved) * 100 // self.most)

    @property
    def too_large(self) -> int:
        return sum(_wanted(wait) > self.most for wait in self.first)

    @property
    def resource(self) -> str:
        return "usd" if self.pool.resource == Pool.Resource.USD else str(self.pool.resource)

    def said(self, amount: int) -> str | int:
        return limit_of(self.pool.resource, amount)

    @property
    def needs_somebody(self) -> bool:
        return self.waiting > 0


def _wanted(wait: Wait) -> int:
    wanted = wait.detail.get("wanted") if isinstance(wait.detail, dict) else None
    return wanted if isinstance(wanted, int) else 0


def newest(*, limit: int, beyond: int | None = None) -> list[Pool]:
    """Return active pools, newest first, after a place."""
    rows = Pool.objects.select_related("meter").filter(_shown(), off_at__isnull=True).order_by("-id")
    return list((rows if beyond is None else rows.filter(pk__lt=beyond))[:limit])


def _shown() -> Q:
    """Return the condition for pools the viewer may see: others' pools would reveal others' spending."""
    who = viewer()
    if who.sees_all:
        return Q()
    return Q(scope=Pool.Scope.PERSON, of=str(who.person)) | Q(scope=Pool.Scope.TAG, of__in=sorted(who.tags))


def find(pool_id: int) -> Pool:
    """Return a pool the viewer may see. Raises NotFound."""
    found = Pool.objects.filter(_shown(), pk=pool_id).first()
    if found is None:
        raise NotFound("pool", pool_id)
    return found


def listed(pools: Sequence[Pool], *, has_past: bool = True) -> list[Listed]:
    """Return the pools' status in four queries, or two without past periods and notices."""
    if not pools:
        return []
    ids = [pool.pk for pool in pools]
    with connection.cursor() as cursor:
        cursor.execute(_STANDING, [ids, COUNTED_TO])
        standing = {row[0]: row[1:] for row in cursor.fetchall()}
    first = _first([pool_id for pool_id, row in standing.items() if row[6]])
    last, notices = _past(ids, {pool_id: row[3] for pool_id, row in standing.items()}) if has_past else ({}, {})
    found = []
    for pool in pools:
        most, used, reserved, starts_at, ends_at, warned_at, waiting, person = standing[pool.pk]
        found.append(
            Listed(
                pool,
                person or pool.of,
                most,
                used,
                reserved,
                starts_at,
                ends_at,
                warned_at,
                waiting,
                first[pool.pk],
                last.get(pool.pk, []),
                notices.get(pool.pk, []),
            )
        )
    return found


def _past(
    ids: Sequence[int], began: Mapping[int, datetime]
) -> tuple[dict[int, list[PoolPeriod]], dict[int, list[PoolNotice]]]:
    last, notices = defaultdict[int, list[PoolPeriod]](list), defaultdict[int, list[PoolNotice]](list)
    place = Window(RowNumber(), partition_by=F("pool_id"), order_by=F("starts_at").desc())
    periods = PoolPeriod.objects.filter(pool__in=ids).annotate(place=place).filter(place__lte=LAST)
    for period in periods.order_by("-starts_at"):
        last[period.pool_id].append(period)
    for notice in PoolNotice.objects.filter(pool__in=ids, starts_at__in=set(began.values())).order_by("id"):
        if notice.starts_at == began[notice.pool_id]:
            notices[notice.pool_id].append(notice)
    return last, notices


def _first(ids: Sequence[int]) -> defaultdict[int, list[Wait]]:
    found = defaultdict[int, list[Wait]](list)
    if not ids:
        return found
    waits = Wait.objects.select_related("run").filter(seen.fits(viewer()), pk__in=RawSQL(_FIRST, [list(ids), SHOWN]))
    for wait in waits.order_by("opened_at", "id"):
        found[int(wait.detail["pool"])].append(wait)
    return found


def gated() -> list[Listed]:
    """Return pools with waiting calls, one entry each."""
    waits = Wait.objects.filter(kind=Wait.Kind.POOL, resolved_at__isnull=True)
    if not waits.exists():
        return []
    pools = (
        Pool.objects.filter(_shown()).filter(Q(meter__gate_at__isnull=False) | Q(pk__in=_waited_for())).order_by("id")
    )
    return [one for one in listed(list(pools)) if one.needs_somebody]


def _waited_for() -> list[int]:
    """Return the pools with waiting calls, by skipping through the index."""
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


def of_run(run: Run, *, has_past: bool = True) -> list[Listed]:
    """Return the pools a run belongs to or drew on; for providers, of the models it used."""
    pools = Pool.objects.filter(_shown(), pk__in=RawSQL(_OF_RUN, [run.pk, run.pk])).order_by("id")
    return listed(list(pools), has_past=has_past)
