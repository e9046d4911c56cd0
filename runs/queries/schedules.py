"""Schedules with the times that they are to start at, and what became of those before. In two queries."""

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

SHOWN = 3  # planned times to come
LAST = 5  # that are over


@dataclass(frozen=True, slots=True)
class Listed:
    """A schedule with its next planned times, and what became of its last ones, newest first."""

    schedule: Schedule
    next: list[datetime]
    last: list[Firing]


def newest(*, limit: int, beyond: Place | None = None) -> list[Schedule]:
    """Schedules that were not taken away, newest first, that come after a place in that order."""
    rows = Schedule.objects.filter(acts.shown(), deleted_at__isnull=True).order_by("-created_at", "-id")
    if beyond is not None:
        at, id_ = beyond
        rows = rows.filter(created_at__lte=at).exclude(created_at=at, id__gte=id_)
    return list(rows[:limit])


def listed(schedules: Sequence[Schedule]) -> list[Listed]:
    last = _last([schedule.id for schedule in schedules])
    return [Listed(schedule, upcoming(schedule), last[schedule.id]) for schedule in schedules]


def upcoming(schedule: Schedule) -> list[datetime]:
    """The planned time that is to come, or is due, and the ones after it; none where it rests, or can't be read."""
    if schedule.next_at is None:
        return []
    try:
        following = cron.read(schedule.cron).after(schedule.next_at, cron.zone_of(schedule.zone))
    except (cron.InvalidCron, cron.UnknownZone):  # a row that was damaged hides no other
        return [schedule.next_at]
    return list(islice(chain([schedule.next_at], following), SHOWN))


def _last(ids: Sequence[UUID]) -> dict[UUID, list[Firing]]:
    place = Window(RowNumber(), partition_by=F("schedule_id"), order_by=F("planned_at").desc())
    found = defaultdict[UUID, list[Firing]](list)
    rows = Firing.objects.filter(schedule_id__in=ids).annotate(place=place).filter(place__lte=LAST)
    for row in rows.order_by("-planned_at"):
        found[row.schedule_id].append(row)
    return found
