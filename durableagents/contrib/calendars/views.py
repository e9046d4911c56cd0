"""Pages of calendars, queue timings and absences: everybody reads them, administrators set them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from pydantic import Field

from approvals.queues.acts import Name
from approvals.queues.views import ForAdmins, QueueAct, QueuePage, QueuesPage, is_on, moment, perform_act
from durableagents.contrib.calendars import absences, deputies, queries, services
from durableagents.contrib.calendars.hours import DAYS
from durableagents.contrib.calendars.services import AbsenceBody, CalendarBody, DeputyBody, Text, TimingBody
from ledger.actors import Actor
from ledger.append import mark_of
from ledger.web.bodies import Body, fit
from ledger.web.page_forms import Refused, Sent, told_of
from runs.engine.gating.timing import MAX_WORK
from runs.services.bodies import SteerBody

Lines = Annotated[str, Field(max_length=60_000)]


def _fit(shape: type[Body], seen: Mapping[str, tuple[str, str]], data: dict[str, Any]) -> Body:
    """Return `fit` with errors mapped to the visible fields. Raises InvalidInput."""
    with told_of(seen):
        return fit(shape, data, "form")


class CalendarForm(SteerBody):
    """A field for each day, and the holidays as lines of a day and its name."""

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
    """Three places for steps, and the shares as numbers with commas between them."""

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
    """All calendars."""

    template = "calendars/calendars.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        known = self.context(request, refused)
        days = [(day, known["typed"].get(day, "09:00-17:00" if day not in ("sat", "sun") else "")) for day in DAYS]
        shown = {"calendars": queries.overview(), "days": days, "act": reverse("new_calendar"), **known}
        return self.show(request, shown, status=refused.error.status if refused else 200)


class OneCalendarPage(QueuePage):
    """A calendar in full, with examples."""

    template = "calendars/calendar.html"

    def get(self, request: HttpRequest, calendar: str) -> HttpResponse:
        return self.tell(request, calendar)

    def tell(self, request: HttpRequest, name: str, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        known = self.context(request, refused)
        asked = request.GET.get("hours", "").strip().replace("\x00", "")[:20]
        hours = _hours(asked or f"{queries.HOURS:g}")
        row = services.find_calendar(name)
        shown = queries.calendar_row(row, hours or queries.HOURS)
        days = [(day, known["typed"].get(day, text)) for day, text in shown.week.items()]
        context = {
            "c": shown,
            "mark": mark_of(services.form_values(row)),
            "hours": hours or queries.HOURS,
            "days": days,
            "act": reverse("calendar_changes", args=[name]),
            "is_no_hours": hours is None,
            "asked": asked if hours is None else f"{hours:g}",
            "most_hours": _MAX_HOURS,
            **known,
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


def _hours(text: str) -> float | None:
    """Parse hours; None if out of range."""
    try:
        hours = float(text)
    except ValueError:
        return None
    return hours if 0 < hours <= _MAX_HOURS else None  # NaN fails both comparisons


class CalendarPosts(ForAdmins, CalendarsPage):
    """Add a calendar."""

    def post(self, request: HttpRequest) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            services.set_calendar(form.read(CalendarForm).as_body(), is_new=True, by=by)

        return perform_act(request, "add_calendar", act, "Calendar added.", self.tell) or redirect("calendars")


class _CalendarAct(ForAdmins, OneCalendarPage):
    words = ""

    def post(self, request: HttpRequest, calendar: str) -> HttpResponse:
        services.find_calendar(calendar)

        def act(form: Sent, by: Actor) -> None:
            self.act(form, calendar, by)

        def tell(request: HttpRequest, refused: Refused) -> HttpResponse:
            return self.tell(request, calendar, refused)

        return perform_act(request, type(self).__name__, act, self.words, tell) or self.after(calendar)

    def act(self, form: Sent, name: str, by: Actor) -> None:
        raise NotImplementedError

    def after(self, name: str) -> HttpResponse:
        return redirect("calendar", calendar=name)


class CalendarChanges(_CalendarAct):
    """Add a version of a calendar."""

    words = "Calendar saved. Open cases keep the earlier version."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["name"] = name
        services.set_calendar(form.read(CalendarForm).as_body(), seen=seen, by=by)


class CalendarRemovals(_CalendarAct):
    """Remove a calendar."""

    words = "Calendar removed."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        services.remove_calendar(name, by=by, justification=form.read(SteerBody).justification)

    def after(self, name: str) -> HttpResponse:
        return redirect("calendars")


class QueueTimings(QueueAct):
    """Set a queue's timing."""

    words = "Deadlines saved. Open cases keep theirs."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts.setdefault("at_once_if_away", "off")  # an unticked box sends nothing
        services.set_timing(name, form.read(TimingForm, at_once_if_away=is_on).as_body(), seen=seen, by=by)


class _PersonalAct(QueuesPage):
    """An act on absences or deputies, one's own or as an administrator anybody's."""

    http_method_names = ["post"]
    form = ""
    words = ""

    def post(self, request: HttpRequest, **which: int) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            self.act(form, by, **which)

        name = "-".join([self.form, *map(str, which.values())])
        return perform_act(request, name, act, self.words, self.tell) or redirect("queues")

    def act(self, form: Sent, by: Actor, **which: int) -> None:
        raise NotImplementedError


class AbsencePosts(_PersonalAct):
    """Record an absence."""

    form, words = "absence", "Absence saved."

    def act(self, form: Sent, by: Actor, **which: int) -> None:
        absences.record_absence(form.read(AbsenceBody, starts_at=moment, ends_at=moment), by=by)


class AbsenceEndings(_PersonalAct):
    """End an absence."""

    form, words = "back", "Absence and deputyship ended."

    def act(self, form: Sent, by: Actor, **which: int) -> None:
        absences.end_absence(which["absence_id"], by=by, justification=form.read(SteerBody).justification)


class DeputyPosts(_PersonalAct):
    """Name a deputy."""

    form, words = "deputy", "Deputy saved."

    def act(self, form: Sent, by: Actor, **which: int) -> None:
        deputies.name_deputy(form.read(DeputyBody, starts_at=moment, ends_at=moment), by=by)


class DeputyRevocations(_PersonalAct):
    """End a deputyship."""

    form, words = "revoke", "Deputyship ended."

    def act(self, form: Sent, by: Actor, **which: int) -> None:
        deputies.end_deputyship(which["deputy_id"], by=by, justification=form.read(SteerBody).justification)
