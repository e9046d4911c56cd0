"""Set calendars and the timing of queues.

Each act is one transaction that adds a version and records the values before and after. Open questions keep the version
under which they were asked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet
from pydantic import BeforeValidator, Field

from approvals.queue_models import Queue
from approvals.queues.acts import Name, locked_with
from approvals.queues.who import PERMISSION, Unchanged, as_admin, check_text, wrong
from approvals.versions import LOOKED_AT, next_version
from durableagents.contrib.calendars import hours
from durableagents.contrib.calendars.hours import DAYS, MINUTES, NoSuchTime
from durableagents.contrib.calendars.models import Calendar, Timing
from durableagents.contrib.calendars.versions import (
    calendar_of,
    current_calendar,
    current_calendars,
    current_timing,
    current_timings,
    latest_version,
)
from ledger.actors import Actor
from ledger.append import acted, is_moved, justified
from ledger.change_control import two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Moved, NotFound
from ledger.web.bodies import NoFlag, Strict
from ledger.zones import zones
from runs.services.bodies import Moment, SteerBody

Text = Annotated[str, Field(max_length=200)]
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _written(day: object) -> object:
    """Return the text of a day.

    Raises ValueError for other types: Pydantic would read a number as seconds since 1970.
    """
    if not isinstance(day, date) and not (isinstance(day, str) and _DAY.fullmatch(day)):
        raise ValueError("write the date as 2026-12-24")
    return day


Day = Annotated[date, Field(strict=False), BeforeValidator(_written)]


# Hours, rounded to minutes; a quarter of an hour is 0.25.
Hours = Annotated[float, Field(gt=0, le=8784, strict=False, allow_inf_nan=False), NoFlag]


class Holiday(Strict):
    """A day without working hours."""

    day: Day = Field(description="Date, as YYYY-MM-DD.")
    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(description="Name of the holiday.")


class CalendarBody(SteerBody):
    """A calendar, or a new version of it.

    `week` gives each day's shifts as text: "09:00-12:00, 13:00-18:00". A missing day has no shifts.
    """

    name: Name = Field(description="Name of the calendar. If the calendar exists, this becomes its next version.")
    zone: Text = Field(description="IANA time zone, such as Europe/Berlin.")
    week: dict[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], Text] = Field(
        description='Shifts by day, such as "09:00-12:00, 13:00-18:00"; a missing day has no shifts.'
    )
    holidays: Annotated[list[Holiday], Field(max_length=400)] = Field(
        default=[], description="Days without working hours."
    )


class StepBody(Strict):
    """An escalation step: the queue that is added, and how many hours it has."""

    to: Name = Field(description="Queue that is added at this step.")
    hours: Hours = Field(description="Hours until the next step.")


class TimingBody(SteerBody):
    """All time settings of a queue; a missing field is unset. `remind`: reminders are sent after these percentages of
    the time. `every_hours`: first interval of reminders for approvals without expiry. `clock_stops_hours`: the longest
    time for which an inquiry may stop the clock."""

    calendar: Name = Field(default="", description="Calendar by which deadlines are counted; empty: around the clock.")
    on_timeout: Literal["", "reject", "escalate", "remind"] = Field(
        default="", description="Action at the deadline; empty: as the gate specifies, or else reject."
    )
    steps: Annotated[list[StepBody], Field(max_length=3)] = Field(default=[], description="Escalation steps, in order.")
    remind: Annotated[list[Annotated[int, Field(ge=1, le=99)]], Field(max_length=5)] = Field(
        default=[], description="Percentages of the time after which reminders are sent."
    )
    every_hours: Hours | None = Field(
        default=None, description="First interval of reminders for approvals without expiry."
    )
    at_once_if_away: bool = Field(
        default=False, description="Escalate an approval at once if everyone there is absent."
    )
    clock_stops_hours: Hours | None = Field(
        default=None, description="Longest time for which an inquiry may pause the deadline; null if it never does."
    )


class DeputyBody(SteerBody):
    """A deputyship. By default, the caller is the principal, it applies to all queues, and it starts now."""

    deputy: Name = Field(description="User name of the deputy.")
    principal: Name = Field(default="", description="User name of the person they stand in for; empty: the caller.")
    queue: Name = Field(default="", description="Queue where they may decide; empty: everywhere.")
    starts_at: Moment | None = Field(default=None, description="Start time; default: now.")
    ends_at: Moment = Field(description="End time.")


class AbsenceBody(SteerBody):
    """A period of absence. By default, it is the caller's and starts now. `deputy` may decide in the meantime."""

    person: Name = Field(default="", description="User name of the absent person; empty: the caller.")
    deputy: Name = Field(default="", description="User name of the person who stands in; empty: nobody.")
    starts_at: Moment | None = Field(default=None, description="Start time; default: now.")
    ends_at: Moment = Field(description="End time.")


MAX_CALENDARS = 100  # maximum number of calendars
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_SHIFT = re.compile(r"\s*([0-9]{1,2}):([0-9]{2})\s*[-–]\s*([0-9]{1,2}):([0-9]{2})\s*", re.ASCII)
_LOCK_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('calendar ' || %s, 110))"
_LOCK_SHARED = _LOCK_ALONE.replace("_lock(", "_lock_shared(")
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2200, 12, 31)


class CalendarInUse(DurableAgentsError):
    """The calendar can't be removed, because a queue uses it."""

    status, code, title = 409, "calendar-in-use", "The calendar is still needed"


class CalendarMoved(Moved):
    """Another person has just changed the calendar."""

    code, title = "calendar-moved", "The calendar was changed meanwhile"


def find_calendar(name: str) -> Calendar:
    """Return a calendar's current version. Raises NotFound."""
    found = current_calendar(name)
    if found is None:
        raise NotFound("calendar", name)
    return found


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def set_calendar(body: CalendarBody, *, is_new: bool = False, seen: str | None = None, by: Actor) -> Calendar:
    """Add a calendar or a new version of one. With `is_new` the calendar must not exist yet.

    Raises InvalidInput (naming the wrong field), Moved, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by, "change calendars"), justified("calendar", body.justification)
    if not NAME.fullmatch(body.name):
        raise wrong("name", "may hold only letters, digits, _ and -", "such as DE or new_york")
    last = latest_version(body.name)
    if last is None or last.is_removed or not last.is_authentic:
        _check_new(body.name)
    elif is_new:
        raise wrong(
            "name", f"is that of the calendar {last.name}", "choose another name, or change that calendar on its page"
        )
    if is_moved(seen, form_values(last)):
        raise Moved(f"The calendar {body.name}", _author_of(last))
    row = Calendar(
        name=body.name,
        version=_version("name", Calendar.objects.filter(name=body.name)),
        zone=_zone(body.zone),
        week=_week({str(day): text for day, text in body.week.items()}),
        holidays=_holidays(body),
    )
    _check_it_ends(row)
    is_same = last is not None and not last.is_removed and last.is_authentic and snapshot(last) == snapshot(row)
    if is_same:
        raise Unchanged("week", "change something")
    return _store("calendar", row, last, by=by, why=why)


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def remove_calendar(name: str, *, by: Actor, justification: str) -> Calendar:
    """Remove a calendar. Open questions keep using the calendar.

    Raises CalendarInUse, NotFound, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by, "change calendars"), justified("calendar_remove", justification)
    _lock_use(name)
    last = find_calendar(name)
    if using := used_by(name):
        raise CalendarInUse(f"The calendar {name} can't be removed: {', '.join(using)} uses it.")
    given = snapshot(last) if last.is_authentic else {"zone": "UTC", "week": [[] for _ in DAYS], "holidays": []}
    row = Calendar(
        name=name,
        version=_version("name", Calendar.objects.filter(name=name)),
        **given | {"is_removed": True},
    )
    return _store("calendar_remove", row, last, by=by, why=why)


def used_by(name: str) -> list[str]:
    return [row.queue.name for row in current_timings() if row.calendar == name]


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def set_timing(name: str, body: TimingBody, *, seen: str | None = None, by: Actor) -> Timing:
    """Replace a queue's timing.

    Raises InvalidInput (naming the field), Moved, NotFound, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by), justified("queue_timing", body.justification)
    queue = locked_with(name, [each.to for each in body.steps])
    if body.calendar:
        _lock_use(body.calendar, shared=True)
    if body.calendar and ((known := current_calendar(body.calendar)) is None or not known.is_authentic):
        raise wrong("calendar", "does not exist", "the name of a calendar, or empty for around the clock")
    _check_steps(queue, body)
    last = current_timing(queue.pk)
    if is_moved(seen, form_values(last)):
        raise Moved(f"The timing of the queue {name}", _author_of(last))
    row = Timing(
        queue=queue,
        version=_version("calendar", Timing.objects.filter(queue=queue)),
        calendar=body.calendar,
        on_timeout=body.on_timeout,
        steps=[[each.to, _minutes("steps", each.hours)] for each in body.steps],
        remind=sorted(body.remind),
        every=0 if body.every_hours is None else _minutes("every_hours", body.every_hours),
        at_once_if_away=body.at_once_if_away,
        clock_stops=0 if body.clock_stops_hours is None else _minutes("clock_stops_hours", body.clock_stops_hours),
        set_by=by.ref,
        set_at=database_now(),
    )
    if last is not None and last.is_authentic and timing_values(last) == timing_values(row):
        raise Unchanged("calendar", "change something")
    row.seal()
    row.save(force_insert=True)
    acted(
        "queue_timing",
        by=by,
        subject=f"deadlines of {queue.name}",
        queue=queue.name,
        justification=why,
        before=form_values(last),
        after=timing_values(row),
    )
    return row


def timing_values(row: Timing) -> dict[str, Any]:
    names = ("calendar", "on_timeout", "steps", "remind", "every", "at_once_if_away")
    return {name: getattr(row, name) for name in names} | ({"clock_stops": row.clock_stops} if row.clock_stops else {})


def form_values(row: Calendar | Timing | None) -> dict[str, Any]:
    """Return the values that fill the timing form; empty for missing or forged rows."""
    if row is None or not row.is_authentic:
        return {}
    return timing_values(row) if isinstance(row, Timing) else {} if row.is_removed else snapshot(row)


def _author_of(row: Calendar | Timing | None) -> str:
    return row.set_by if row is not None and row.is_authentic else ""


def snapshot(row: Calendar) -> dict[str, Any]:
    return {"zone": row.zone, "week": row.week, "holidays": row.holidays, "is_removed": row.is_removed}


def week_of(texts: Mapping[str, str]) -> hours.Week:
    """Return the shifts of each day from texts such as "09:00-12:00, 13:00-18:00". Raises InvalidInput."""
    return tuple(tuple(_shifts(day, texts.get(day, ""))) for day in DAYS)


def _shifts(day: str, text: str) -> list[tuple[int, int]]:
    found = []
    for part in text.split(",") if text.strip() else []:
        match = _SHIFT.fullmatch(part)
        hours = [int(each) for each in match.groups()] if match else []
        if not match or hours[1] > 59 or hours[3] > 59:
            raise wrong(
                "week", f"can't be read: {day} says {part.strip()[:40]!r}", 'such as "09:00-12:00, 13:00-18:00"'
            )
        found.append((hours[0] * 60 + hours[1], min(hours[2] * 60 + hours[3], MINUTES + 1)))
    return found


def _week(texts: Mapping[str, str]) -> list[list[list[int]]]:
    week = week_of(texts)
    if problem := hours.problem_of(week):
        raise wrong("week", problem, "working hours on at least one day")
    return [[[opens, closes] for opens, closes in shifts] for shifts in week]


def _check_new(name: str) -> None:
    """Check the number of calendars and similar names. Raises InvalidInput.

    No other calendar can be added until the transaction ends.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('calendars', 110))")
    known = [row.name for row in current_calendars() if row.is_authentic]
    if len(known) >= MAX_CALENDARS:
        raise wrong("name", f"would exceed the limit of {MAX_CALENDARS} calendars", "remove one first")
    if twin := next((each for each in known if each.casefold() == name.casefold()), None):
        raise wrong("name", f"is that of the calendar {twin} (case is ignored)", "another name")


def _lock_use(calendar: str, *, shared: bool = False) -> None:
    """Take a lock so that a calendar is not removed while a queue starts to use it.

    An advisory lock, since append-only rows can't be locked.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LOCK_SHARED if shared else _LOCK_ALONE, [calendar])


def _zone(name: str) -> str:
    if name not in zones():
        raise wrong("zone", "is not an IANA time zone", "such as Europe/Berlin or America/New_York")
    return name


def _holidays(body: CalendarBody) -> list[list[str]]:
    days = sorted(body.holidays, key=lambda each: each.day)
    for before, after in itertools.pairwise(days):
        if before.day == after.day:
            raise wrong("holidays", f"names {after.day} twice", "each day once")
    for each in days:
        check_text("holidays", each.name)
        if not FIRST_DAY <= each.day <= LAST_DAY:
            raise wrong("holidays", f"names {each.day}", f"days from {FIRST_DAY} to {LAST_DAY}")
    return [[each.day.isoformat(), each.name] for each in days]


def _check_it_ends(row: Calendar) -> None:
    """Check that holidays leave a working day in every year. Raises InvalidInput."""
    now = database_now()
    try:
        due = calendar_of(row).after(now, timedelta(minutes=1))
    except NoSuchTime:
        due = now + timedelta(days=400)
    if due - now > timedelta(days=366):
        raise wrong("holidays", "leave no working day for a year", "at least one working day")


def _store(action: str, row: Calendar, last: Calendar | None, *, by: Actor, why: str) -> Calendar:
    row.set_by, row.set_at = by.ref, database_now()
    row.seal()
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise CalendarMoved(f"The calendar {row.name}") from None
    acted(
        action,
        by=by,
        subject=f"calendar {row.name}",
        justification=why,
        before=snapshot(last) if last is not None and last.is_authentic else {},
        after=snapshot(row),
    )
    return row


def _version(field: str, rows: QuerySet[Any]) -> int:
    """Return the number of the next version. Raises InvalidInput if forged rows have the highest numbers."""
    rows = rows.order_by("-version")
    last = next((row.version for row in rows[:LOOKED_AT] if row.is_authentic), 0)
    number = next_version(rows.values_list("version", flat=True), last)
    if number is None:
        raise wrong(
            field,
            "has versions with the highest possible numbers that this installation did not write",
            "ask the database's owner to remove them",
        )
    return number


def _check_steps(queue: Queue, body: TimingBody) -> None:
    is_escalated = body.on_timeout == "escalate"
    if is_escalated and not body.steps:
        raise wrong("steps", "name nobody", "at least one queue to escalate to")
    if body.steps and not is_escalated:
        raise wrong("steps", "require on_timeout escalate", "on_timeout escalate, or no steps")
    if body.at_once_if_away and not is_escalated:
        raise wrong("at_once_if_away", "requires on_timeout escalate", "on_timeout escalate")
    if body.every_hours is not None and body.on_timeout != "remind":
        raise wrong("every_hours", "requires on_timeout remind", "on_timeout remind")
    if body.clock_stops_hours is not None and body.on_timeout == "remind":
        raise wrong("clock_stops_hours", "needs a deadline", "none with on_timeout remind")
    if len(set(body.remind)) != len(body.remind):
        raise wrong("remind", "names a percentage twice", "each once")
    known = dict(Queue.objects.filter(name__in=[each.to for each in body.steps]).values_list("name", "state"))
    seen = {queue.name}
    for each in body.steps:
        if not each.to:
            raise wrong("steps", "have a step without a queue", "name its queue")
        if known.get(each.to) != Queue.State.OPEN:
            raise wrong("steps", f"name {each.to[:60]!r}, which is not an open queue", "an open queue")
        if each.to in seen:
            raise wrong("steps", f"name {each.to} again", "name each queue once, and not the queue itself")
        seen.add(each.to)


def _minutes(field: str, hours: float) -> int:
    minutes = round(hours * 60)
    if minutes < 1 or abs(hours * 60 - minutes) > 1e-6:
        raise wrong(field, "is not a whole number of minutes", "hours, such as 8 or 0.5")
    return minutes
