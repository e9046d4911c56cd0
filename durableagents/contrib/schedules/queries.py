"""Schedules that the viewer may see, with their next planned times and latest results, in two queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any
from uuid import UUID

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber
from pydantic import Field

from durableagents.contrib.schedules import cron
from durableagents.contrib.schedules.models import Firing, Schedule
from ledger.api.present import masked
from ledger.errors import NotFound
from ledger.web.cursors import Place
from ledger.web.fields import Rows, RunTags, Zone
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Page, Shape

NEXT_SHOWN, LAST_SHOWN = 3, 5


class FiringRow(Shape):
    """One planned time of a schedule and its result."""

    planned_at: datetime = Field(description="Planned time.")
    at: datetime = Field(description="Time when the planned time was handled.")
    outcome: Firing.Outcome = Field(description="Result at the planned time.")
    run_id: UUID | None = Field(description="Run that it started; if skipped, the run that was still active.")
    why: str = Field(description="Reason if no run was started; empty if one was started.")
    n: int = Field(description="If missed: how many planned times up to this one were missed.")


class ScheduleRow(Shape):
    """A schedule."""

    id: UUID = Field(description="Id of the schedule.")
    name: str = Field(description="Name of the schedule.")
    agent: str = Field(description="Agent that it starts, with or without @version.")
    input: Any = Field(description="Input of its runs; null if the caller may not read it.")
    hidden: bool = Field(description="True if the caller may not read the input.")
    cron: str = Field(description="Minute, hour, day, month, day of the week.")
    zone: Zone
    missed: Schedule.Missed = Field(description="What happens after planned times were missed.")
    overlap: Schedule.Overlap = Field(description="What happens if the previous run has not ended.")
    tags: RunTags
    budget: dict[str, Any] | None = Field(description="Caps of its runs; null for the default.")
    set_by: str = Field(
        description="Person who last set its agent and input. Its runs start with that person's rights."
    )
    created_at: datetime = Field(description="Time of creation.")
    updated_at: datetime = Field(description="Time of the schedule's last change.")
    is_paused: bool = Field(description="Whether it is paused.")
    stopped: str = Field(description="Why it no longer starts runs; empty if it does.")
    trouble: str = Field(description="Why due runs have not started yet; empty if there is no problem.")
    next: list[datetime] = Field(description="The next planned times; none while it is paused or stopped.")
    last: list[FiringRow] = Field(description="Results of the latest planned times, newest first.")


class SchedulePage(Page):
    results: Rows[ScheduleRow]


def visible() -> Q:
    """Return the condition for schedules that the viewer may see and that are not deleted."""
    who = viewer()
    return Q(deleted_at__isnull=True) & (Q() if who.sees_all else Q(owner=who.person))


def find(schedule_id: UUID) -> Schedule:
    """Return a schedule. Raises NotFound."""
    found = Schedule.objects.filter(visible(), pk=schedule_id).first()
    if found is None:
        raise NotFound("schedule", schedule_id)
    return found


def newest(*, limit: int, beyond: Place | None = None) -> list[Schedule]:
    """Return schedules, newest first, after a given position."""
    rows = Schedule.objects.filter(visible()).order_by("-created_at", "-id")
    if beyond is not None:
        at, id_ = beyond
        rows = rows.filter(created_at__lte=at).exclude(created_at=at, id__gte=id_)
    return list(rows[:limit])


def can_read_input(schedule: Schedule) -> bool:
    """Return whether the viewer may read the input of the schedule's runs."""
    who = viewer()
    return who.reads_all or (who.person is not None and schedule.owner == who.person)


def rows_of(schedules: Sequence[Schedule]) -> list[ScheduleRow]:
    """Return the rows of schedules, in the same order."""
    last = _latest_results([schedule.id for schedule in schedules])
    return [_row_of(schedule, last[schedule.id]) for schedule in schedules]


def _row_of(schedule: Schedule, last: list[FiringRow]) -> ScheduleRow:
    is_read = can_read_input(schedule)
    return ScheduleRow.of(
        schedule,
        input=masked(schedule.input) if is_read else None,
        hidden=not is_read,
        next=_upcoming(schedule),
        last=last,
    )


def _upcoming(schedule: Schedule) -> list[datetime]:
    """Return the due or next planned time and the ones after it; empty for a schedule that is paused or stopped."""
    if schedule.next_at is None:
        return []
    try:
        following = cron.read(schedule.cron).after(schedule.next_at, cron.zone_of(schedule.zone))
    except (cron.InvalidCron, cron.UnknownZone):  # a damaged row must not hide other schedules
        return [schedule.next_at]
    return list(islice(chain([schedule.next_at], following), NEXT_SHOWN))


def _latest_results(ids: Sequence[UUID]) -> dict[UUID, list[FiringRow]]:
    place = Window(RowNumber(), partition_by=F("schedule_id"), order_by=F("planned_at").desc())
    found = defaultdict[UUID, list[FiringRow]](list)
    rows = Firing.objects.filter(schedule_id__in=ids).annotate(place=place).filter(place__lte=LAST_SHOWN)
    for row in rows.order_by("-planned_at"):
        found[row.schedule_id].append(FiringRow.of(row))
    return found
