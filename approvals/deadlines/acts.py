"""What administrators set of time: calendars, and what a queue says. Each is one verb in one transaction, adds a
version, and leaves a record that says what was before and after. What is open goes on by the version under which it was
put."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from approvals.calendars.asof import calendar_of, newest, newest_timing
from approvals.deadlines.bodies import CalendarBody, TimingBody
from approvals.models import Calendar, Queue, Timing
from approvals.queues.acts import locked
from approvals.queues.who import PERMISSION, as_admin, check_text, wrong
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound
from ledger.four_eyes.guard import second
from runs.engine.gate import calendars
from runs.engine.gate.calendars import DAYS, MINUTES, NoSuchTime

MOST = 100  # calendars that there are
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_SHIFT = re.compile(r"\s*([0-9]{1,2}):([0-9]{2})\s*[-–]\s*([0-9]{1,2}):([0-9]{2})\s*", re.ASCII)
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2200, 12, 31)


class CalendarInUse(DurableAgentsError):
    """A queue works by it."""

    status, code, title = 409, "calendar-in-use", "The calendar is still needed"


class CalendarMoved(DurableAgentsError):
    """Somebody else has just set it."""

    status, code, title = 409, "calendar-moved", "The calendar was set anew meanwhile"

    def __init__(self, name: str) -> None:
        super().__init__(f"Somebody else has just set the calendar {name}. Look at it again.")


def find(name: str) -> Calendar:
    """A calendar as it is now. Raises NotFound."""
    found = newest(name)
    if found is None:
        raise NotFound("calendar", name)
    return found


def all_of_them() -> list[Calendar]:
    """Those that were not removed, by name."""
    rows = Calendar.objects.order_by("name", "-version").distinct("name")
    return [row for row in rows if not row.is_removed]


@second("queues", needs=PERMISSION)
@transaction.atomic
def set_calendar(body: CalendarBody, *, by: Actor) -> Calendar:
    """Add a calendar, or a further version of one. Raises InvalidInput by the field that is wrong, CalendarMoved,
    Forbidden, JustificationRequired."""
    by, why = as_admin(by), justified("calendar", body.justification)
    if not NAME.fullmatch(body.name):
        raise wrong("name", "is no name of letters, digits, _ and -", "such as DE or new_york")
    last = Calendar.objects.filter(name=body.name).order_by("-version").first()
    if (last is None or last.is_removed) and len(all_of_them()) >= MOST:
        raise wrong("name", f"would be one more than {MOST} calendars", "remove what nobody needs")
    row = Calendar(
        name=body.name, version=1 if last is None else last.version + 1, zone=_zone(body.zone),
        week=_week({str(day): text for day, text in body.week.items()}), holidays=_holidays(body),
    )  # fmt: skip
    _check_it_ends(row)
    is_same = last is not None and not last.is_removed and last.is_genuine and snapshot(last) == snapshot(row)
    if is_same:
        raise wrong("week", "and all else is as it was", "set something anew")
    return _store("calendar", row, last, by=by, why=why)


@second("queues", needs=PERMISSION)
@transaction.atomic
def remove_calendar(name: str, *, by: Actor, justification: str) -> Calendar:
    """Take it away; questions that were put under it keep it. Raises CalendarInUse, NotFound, Forbidden,
    JustificationRequired."""
    by, why = as_admin(by), justified("calendar_remove", justification)
    last = find(name)
    if using := used_by(name):
        raise CalendarInUse(f"The calendar {name} can't be removed: {', '.join(using)} works by it.")
    row = Calendar(
        name=name, version=last.version + 1, zone=last.zone, week=last.week, holidays=last.holidays, is_removed=True
    )
    return _store("calendar_remove", row, last, by=by, why=why)


def used_by(name: str) -> list[str]:
    """The queues that work by a calendar now."""
    queues = Queue.objects.exclude(state=Queue.State.REMOVED).order_by("name")
    rows = Timing.objects.filter(queue__in=queues).order_by("queue__name", "-version").distinct("queue__name")
    return [row.queue.name for row in rows.select_related("queue") if row.calendar == name]


@second("queues", needs=PERMISSION)
@transaction.atomic
def set_timing(name: str, body: TimingBody, *, by: Actor) -> Timing:
    """Set what a queue says of time, all of it anew. Raises InvalidInput by the field that is wrong, NotFound,
    Forbidden, JustificationRequired."""
    by, why = as_admin(by), justified("queue_timing", body.justification)
    queue = locked(name)
    if body.calendar and newest(body.calendar) is None:
        raise wrong("calendar", "is no calendar that there is", "the name of one, or none for around the clock")
    _check_steps(queue, body)
    last = newest_timing(queue.pk)
    row = Timing(
        queue=queue, version=1 if last is None else last.version + 1, calendar=body.calendar,
        on_timeout=body.on_timeout, steps=[[each.to, _minutes("steps", each.hours)] for each in body.steps],
        remind=sorted(body.remind), every=0 if body.every_hours is None else _minutes("every_hours", body.every_hours),
        at_once_if_away=body.at_once_if_away, set_by=by.ref, set_at=database_now(),
    )  # fmt: skip
    if last is not None and last.is_genuine and said(last) == said(row):
        raise wrong("calendar", "and all else is as it was", "set something anew")
    row.seal()
    row.save(force_insert=True)
    acted(
        "queue_timing", by=by, subject=f"deadlines of {queue.name}", queue=queue.name, justification=why,
        before={} if last is None else said(last), after=said(row),
    )  # fmt: skip
    return row


def said(row: Timing) -> dict[str, Any]:
    """What a queue says of time, as an act's record keeps it."""
    names = ("calendar", "on_timeout", "steps", "remind", "every", "at_once_if_away")
    return {name: getattr(row, name) for name in names}


def snapshot(row: Calendar) -> dict[str, Any]:
    """What a calendar says, as an act's record keeps it."""
    return {"zone": row.zone, "week": row.week, "holidays": row.holidays, "is_removed": row.is_removed}


def week_of(texts: Mapping[str, str]) -> calendars.Week:
    """Shifts by day, of texts such as "09:00-12:00, 13:00-18:00". Raises InvalidInput."""
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
    if problem := calendars.wrong(week):
        raise wrong("week", problem, "hours in which somebody works")
    return [[[opens, closes] for opens, closes in shifts] for shifts in week]


def _zone(name: str) -> str:
    try:
        calendars.zone_of(name)
    except ValueError as error:
        raise wrong("zone", "is no time zone by its IANA name", "such as Europe/Berlin or America/New_York") from error
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
    """Holidays that leave nobody a working day for a year are a mistake."""
    now = database_now()
    try:
        due = calendar_of(row).after(now, timedelta(minutes=1))
    except NoSuchTime:
        due = now + timedelta(days=400)
    if due - now > timedelta(days=366):
        raise wrong("holidays", "leave no working day for a year", "days on which somebody works")


def _store(action: str, row: Calendar, last: Calendar | None, *, by: Actor, why: str) -> Calendar:
    row.set_by, row.set_at = by.ref, database_now()
    row.seal()
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise CalendarMoved(row.name) from None
    acted(
        action, by=by, subject=f"calendar {row.name}", justification=why,
        before={} if last is None else snapshot(last), after=snapshot(row),
    )  # fmt: skip
    return row


def _check_steps(queue: Queue, body: TimingBody) -> None:
    is_escalated = body.on_timeout == "escalate"
    if is_escalated and not body.steps:
        raise wrong("steps", "name nobody", "at least one queue that questions go to")
    if body.steps and not is_escalated:
        raise wrong("steps", "are for escalate only", "on_timeout escalate, or no steps")
    if body.at_once_if_away and not is_escalated:
        raise wrong("at_once_if_away", "is for escalate only", "on_timeout escalate")
    if body.every_hours is not None and body.on_timeout != "remind":
        raise wrong("every_hours", "is for remind only", "on_timeout remind")
    if len(set(body.remind)) != len(body.remind):
        raise wrong("remind", "names a share twice", "each once")
    known = dict(Queue.objects.filter(name__in=[each.to for each in body.steps]).values_list("name", "state"))
    seen = {queue.name}
    for each in body.steps:
        if known.get(each.to) != Queue.State.OPEN:
            raise wrong("steps", f"name {each.to[:60]!r}, which is no queue that is open", "an open queue")
        if each.to in seen:
            raise wrong("steps", f"name {each.to} again", "each queue once, and not the queue itself")
        seen.add(each.to)


def _minutes(field: str, hours: float) -> int:
    minutes = round(hours * 60)
    if minutes < 1 or abs(hours * 60 - minutes) > 1e-6:
        raise wrong(field, "is not to the minute", "hours, such as 8 or 0.5")
    return minutes
