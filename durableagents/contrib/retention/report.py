"""Reports the effect of the rules: how many runs were removed, how many are next, and how many a hold keeps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count, Sum

from durableagents.contrib.retention import holds, policies
from durableagents.contrib.retention.models import Archive, CheckpointExpiry, Deletion, Pending, Restoration, Round

# Counts ended runs by the day on which they are due; `NULL` days means that they are kept forever or have no policy.
_UPCOMING = """
    SELECT count(*), count(*) FILTER (WHERE due <= now()),
           count(*) FILTER (WHERE due > now() AND due <= now() + interval '7 days'),
           count(*) FILTER (WHERE due > now() + interval '7 days' AND due <= now() + interval '30 days'),
           count(*) FILTER (WHERE due > now() + interval '30 days'), count(*) FILTER (WHERE due IS NULL),
           count(*) FILTER (WHERE is_held)
    FROM (SELECT f.since + make_interval(days => p.days) AS due, retention_hold_of(r.id) IS NOT NULL AS is_held
          FROM (SELECT id FROM runs_run WHERE ended_at IS NOT NULL ORDER BY id LIMIT %s) r
          CROSS JOIN LATERAL retention_facts(r.id) f
          LEFT JOIN LATERAL retention_policy_of(r.id, 'archive') p ON true) x"""
MAX_LOOKED_AT = 100_000
ON_PAGES = 1000


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of runs.

    The rules were evaluated for `looked_at` ended runs: the oldest ones, which have the lowest ids."""

    looked_at: int
    policies: int
    holds: int
    archived: int
    archived_bytes: int
    restored: int
    deleted: int
    expired_checkpoints: int
    pending: int
    due_now: int
    due_in_7_days: int
    due_in_30_days: int
    due_later: int
    kept: int
    held: int
    archived_by_month: dict[str, int]
    last_round: datetime | None
    last_problems: list[Any]


def report(most: int = MAX_LOOKED_AT) -> Report:
    """Return the report. The rules are evaluated for at most `most` runs."""
    with connection.cursor() as cursor:
        cursor.execute(_UPCOMING, [most])
        looked_at, now, week, month, later, kept, held = cursor.fetchone()
    here = Archive.objects.filter(restoration__isnull=True, deletion__isnull=True)
    files = here.values("place", "size").distinct()
    last = Round.objects.order_by("-id").first()
    months = Archive.objects.values("at__year", "at__month").annotate(n=Count("pk")).order_by("at__year", "at__month")
    return Report(
        looked_at=looked_at,
        policies=len(policies.in_force()),
        holds=len(holds.in_force()),
        archived=here.count(),
        archived_bytes=files.aggregate(of=Sum("size"))["of"] or 0,
        restored=Restoration.objects.count(),
        deleted=Deletion.objects.count(),
        expired_checkpoints=CheckpointExpiry.objects.aggregate(of=Sum("number"))["of"] or 0,
        pending=Pending.objects.count(),
        due_now=now,
        due_in_7_days=week,
        due_in_30_days=month,
        due_later=later,
        kept=kept,
        held=held,
        archived_by_month={f"{row['at__year']}-{row['at__month']:02}": row["n"] for row in months},
        last_round=last.at if last else None,
        last_problems=list(last.problems or []) if last else [],
    )
