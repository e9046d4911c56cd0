"""Pages of calendars, queue timings and absences. Everybody may read them; administrators change them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from pydantic import BaseModel, Field

from approvals.queues.acts import Name
from approvals.queues.views import ForAdmins, PersonalAct, QueueAct, QueuePage, QueuesPage
from durableagents.contrib.calendars import queries, services
from durableagents.contrib.calendars.hours import DAYS
from durableagents.contrib.calendars.services import CalendarBody, Text, TimingBody
from ledger.actors import Actor
from ledger.append import mark_of
from ledger.web.bodies import Body, fit
from ledger.web.page_acts import Act, is_on
from ledger.web.page_forms import Refused, Sent, told_of
from runs.engine.gating.timing import MAX_WORK
from runs.services.bodies import SteerBody

Lines = Annotated[str, Field(max_length=60_000)]


def _fit(shape: type[Body], seen: Mapping[str, tuple[str, str]], data: dict[str, Any]) -> Body:
    """Parse a form with `fit`, and name the visible form fields in errors. Raises InvalidInput."""
    with told_of(seen):
        return fit(shape, data, "form")


class CalendarForm(SteerBody):
    """A form with a field for each day; holidays are lines with a day and its name."""

    name: Name
    zone: Text
    mon: Text = ""
    tue: Text = ""
    wed: Text = ""
    thu: Text = ""
    fri: Text = ""
    sat: Text = ""
    sun: Text = ""
    holidays: Lines = ""

    def as_body(self) -> CalendarBody:
        """Return the body. Raises InvalidInput."""
        typed = [(n, line.strip().partition(" ")) for n, line in enumerate(self.holidays.splitlines(), 1)]
        lines = [(n, line) for n, line in typed if line[0]]
        seen = {f"holidays.{place}": ("holidays", f"line {n}") for place, (n, _) in enumerate(lines)}
        return _fit(
            CalendarBody,
            seen,
            {
                "name": self.name,
                "zone": self.zone,
                "justification": self.justification,
                "week": {day: text for day in DAYS if (text := getattr(self, day))},
                "holidays": [{"day": day, "name": name.strip() or "holiday"} for _, (day, _, name) in lines],
            },
        )


class TimingForm(SteerBody):
    """A form with room for three steps; percentages are numbers separated by commas."""

    calendar: Name = ""
    on_timeout: Text = ""
    to1: Name = ""
    hours1: Text = ""
    to2: Name = ""
    hours2: Text = ""
    to3: Name = ""
    hours3: Text = ""
    remind: Text = ""
    every_hours: Text = ""
    at_once_if_away: bool = False
    clock_stops_hours: Text = ""

    def as_body(self) -> TimingBody:
        """Return the body. Raises InvalidInput."""
        places = [(1, self.to1, self.hours1), (2, self.to2, self.hours2), (3, self.to3, self.hours3)]
        steps = [(n, to, hours) for n, to, hours in places if to or hours]
        shares = [part.strip().removesuffix("%").strip() for part in self.remind.split(",") if part.strip()]
        seen = {f"steps.{place}.to": ("steps", f"escalate to ({n})") for place, (n, _, _) in enumerate(steps)}
        seen |= {f"steps.{place}.hours": ("steps", f"hours ({n})") for place, (n, _, _) in enumerate(steps)}
        seen |= {f"remind.{place}": ("remind", share) for place, share in enumerate(shares)}
        return _fit(
            TimingBody,
            seen,
            {
                "calendar": self.calendar,
                "on_timeout": self.on_timeout,
                "justification": self.justification,
                "steps": [{"to": to, "hours": hours} for _, to, hours in steps],
                "remind": [int(share) if re.fullmatch("[0-9]{1,3}", share) else share for share in shares],
                "every_hours": self.every_hours or None,
                "at_once_if_away": self.at_once_if_away,
                "clock_stops_hours": self.clock_stops_hours or None,
            },
        )


_MAX_HOURS = int(MAX_WORK.total_seconds() // 3600)


class CalendarsPage(QueuePage):
    """The page with all calendars."""

    template = "calendars/calendars.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the form that was refused."""
        known = self.context(request, refused)
        days = [(day, known["typed"].get(day, "09:00-17:00" if day not in ("sat", "sun") else "")) for day in DAYS]
        shown = {"calendars": queries.overview(), "days": days, "act": reverse("new_calendar"), **known}
        return self.show_forms(request, shown, refused)


class OneCalendarPage(QueuePage):
    """The page of one calendar, with examples."""

    template = "calendars/calendar.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None, *, calendar: str) -> HttpResponse:
        """Show the page, with the form that was refused."""
        known = self.context(request, refused)
        asked = request.GET.get("hours", "").strip().replace("\x00", "")[:20]
        hours = _hours(asked or f"{queries.HOURS:g}")
        row = services.find_calendar(calendar)
        shown = queries.calendar_row(row, hours or queries.HOURS)
        days = [(day, known["typed"].get(day, text)) for day, text in shown.week.items()]
        context = {
            "c": shown,
            "mark": mark_of(services.form_values(row)),
            "hours": hours or queries.HOURS,
            "days": days,
            "act": reverse("calendar_changes", args=[calendar]),
            "is_no_hours": hours is None,
            "asked": asked if hours is None else f"{hours:g}",
            "most_hours": _MAX_HOURS,
            **known,
        }
        return self.show_forms(request, context, refused)


def _hours(text: str) -> float | None:
    """Parse hours; None if out of range."""
    try:
        hours = float(text)
    except ValueError:
        return None
    return hours if 0 < hours <= _MAX_HOURS else None  # NaN makes both comparisons false


class _Read(Act):
    """An act whose form is converted to the service's body."""

    def read(self, form: Sent, **address: Any) -> BaseModel:
        """Return the body. Raises InvalidInput, TooLarge."""
        given: Any = super().read(form, **address)
        return given.as_body()  # type: ignore[no-any-return]


class NewCalendar(_Read, ForAdmins, PersonalAct, CalendarsPage):
    act, done, page = "add_calendar", "Calendar added.", "calendars"
    service, body = staticmethod(partial(services.set_calendar, is_new=True)), CalendarForm


class CalendarAct(ForAdmins, PersonalAct, OneCalendarPage):
    def post(self, request: HttpRequest, **address: Any) -> HttpResponse:
        """Act on a calendar that exists. Raises NotFound."""
        services.find_calendar(address["calendar"])
        return super().post(request, **address)


class CalendarChanges(_Read, CalendarAct):
    act, done = "CalendarChanges", "Calendar saved. Open cases keep the earlier version."
    page, has_own_page, body, aside = "calendar", True, CalendarForm, ("seen",)

    def read(self, form: Sent, **address: Any) -> BaseModel:
        """Return the body, with the name from the URL. Raises InvalidInput, TooLarge."""
        form.texts["name"] = address["calendar"]
        return super().read(form, **address)

    def service(self, name: str, body: CalendarBody, *, seen: str | None, by: Actor) -> None:
        """Add a version of the calendar. The calendar's name is in the body too."""
        services.set_calendar(body, seen=seen, by=by)


class QueueTimings(_Read, QueueAct):
    act, done, service = "QueueTimings", "Deadlines saved. Open cases keep theirs.", staticmethod(services.set_timing)
    body, reads, aside = TimingForm, {"at_once_if_away": is_on}, ("seen",)
    defaults = {"at_once_if_away": "off"}  # browsers send nothing for an unticked box


class OwnAct(PersonalAct, QueuesPage):
    """An act on absences or deputies: your own or, as an administrator, anybody's."""

    page = "queues"

    def tell(self, request: HttpRequest, refused: Refused | None = None, **address: Any) -> HttpResponse:
        """Show the page, with the form that was refused."""
        return super().tell(request, refused)

    def name_form(self, form: Sent, **address: Any) -> str:
        """Return the form's name, which includes the id of its absence or deputyship."""
        return "-".join([self.act, *map(str, address.values())])
