"""Schedules with their next planned times and last outcomes, in two queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from ledger.web.cursors import Place
from runs.models import Firing, Schedule
from runs.services.schedules import acts, cron

SHOWN = 3  # future planned times
LAST = 5  # past planned times


@dataclass(frozen=True, slots=True)
class Listed:
    """A schedule with its next planned times, and its last outcomes, newest first."""

    schedule: Schedule
    next: list[datetime]
    last: list[Firing]


def newest(*, limit: int, beyond: Place | None = None) -> list[Schedule]:
    """Return schedules that were not deleted, newest first, after a place."""
    rows = Schedule.objects.filter(acts.shown(), deleted_at__isnull=True).order_by("-created_at", "-id")
    if beyond is not None:
        at, id_ = beyond
        rows = rows.filter(created_at__lte=at).exclude(created_at=at, id__gte=id_)
    return list(rows[:limit])


def listed(schedules: Sequence[Schedule]) -> list[Listed]:
    last = _last([schedule.id for schedule in schedules])
    return [Listed(schedule, upcoming(schedule), last[schedule.id]) for schedule in schedules]


def upcoming(schedule: Schedule) -> list[datetime]:
    """Return the due or next planned time and those after it; none for an inactive schedule."""
    if schedule.next_at is None:
        return []
    try:
        following = cron.read(schedule.cron).after(schedule.next_at, cron.zone_of(schedule.zone))
    except (cron.InvalidCron, cron.UnknownZone):  # a damaged row hides no other
        return [schedule.next_at]
    return list(islice(chain([schedule.next_at], following), SHOWN))


def _last(ids: Sequence[UUID]) -> dict[UUID, list[Firing]]:
    place = Window(RowNumber(), partition_by=F("schedule_id"), order_by=F("planned_at").desc())
    found = defaultdict[UUID, list[Firing]](list)
    rows = Firing.objects.filter(schedule_id__in=ids).annotate(place=place).filter(place__lte=LAST)
    for row in rows.order_by("-planned_at"):
        found[row.schedule_id].append(row)
    return found
