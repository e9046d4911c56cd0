"""Calendars, what a queue says of time, and who is away: for everybody to read, for administrators to set."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from approvals.deadlines import acts, away, listed
from approvals.deadlines.bodies import AbsenceBody
from approvals.deadlines.forms import CalendarForm, TimingForm
from approvals.queues.views import ForAdmins, QueueAct, QueuePage, QueuesPage, done, is_on, moment
from ledger.actors import Actor
from ledger.web.page_forms import Refused, Sent
from runs.engine.gate.calendars import DAYS
from runs.engine.gate.timing import LONGEST_WORK
from runs.services.bodies import SteerBody

_MOST_HOURS = int(LONGEST_WORK.total_seconds() // 3600)


class CalendarsPage(QueuePage):
    """All calendars."""

    template = "approvals/calendars.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """The page, with what was refused."""
        known = self.context(request, refused)
        days = [(day, known["typed"].get(day, "09:00-17:00" if day not in ("sat", "sun") else "")) for day in DAYS]
        shown = {"calendars": listed.overview(), "days": days, "act": reverse("new_calendar"), **known}
        return self.show(request, shown, status=refused.error.status if refused else 200)


class OneCalendarPage(QueuePage):
    """A calendar whole, with what it would make of questions."""

    template = "approvals/calendar.html"

    def get(self, request: HttpRequest, calendar: str) -> HttpResponse:
        return self.tell(request, calendar)

    def tell(self, request: HttpRequest, name: str, refused: Refused | None = None) -> HttpResponse:
        """The page, with what was refused."""
        known = self.context(request, refused)
        asked = request.GET.get("hours", "").strip().replace("\x00", "")[:20]
        hours = _hours(asked or f"{listed.HOURS:g}")
        shown = listed.one(acts.find(name), hours or listed.HOURS)
        days = [(day, known["typed"].get(day, text)) for day, text in shown.days]
        context = {
            "c": shown,
            "days": days,
            "act": reverse("calendar_changes", args=[name]),
            "is_no_hours": hours is None,
            "asked": asked if hours is None else f"{hours:g}",
            "most_hours": _MOST_HOURS,
            **known,
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


def _hours(text: str) -> float | None:
    """None for what nobody could mean."""
    try:
        hours = float(text)
    except ValueError:
        return None
    return hours if 0 < hours <= _MOST_HOURS else None  # NaN is neither


class AddingCalendar(ForAdmins, CalendarsPage):
    """Adding a calendar."""

    def post(self, request: HttpRequest) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            acts.set_calendar(form.read(CalendarForm).as_body(), is_new=True, by=by)

        return done(request, "add_calendar", act, "The calendar is added.", self.tell) or redirect("calendars")


class _CalendarAct(ForAdmins, OneCalendarPage):
    words = ""

    def post(self, request: HttpRequest, calendar: str) -> HttpResponse:
        acts.find(calendar)

        def act(form: Sent, by: Actor) -> None:
            self.act(form, calendar, by)

        def tell(request: HttpRequest, refused: Refused) -> HttpResponse:
            return self.tell(request, calendar, refused)

        return done(request, type(self).__name__, act, self.words, tell) or self.after(calendar)

    def act(self, form: Sent, name: str, by: Actor) -> None:
        """The one service that it calls."""
        raise NotImplementedError

    def after(self, name: str) -> HttpResponse:
        """Where it leads to."""
        return redirect("calendar", calendar=name)


class CalendarChanges(_CalendarAct):
    """Setting it anew: a further version."""

    words = "The calendar is set anew; what is open keeps the version under which it was put."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["name"] = name
        acts.set_calendar(form.read(CalendarForm).as_body(), seen=seen, by=by)


class CalendarRemovals(_CalendarAct):
    """Taking it away."""

    words = "The calendar is removed."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        acts.remove_calendar(name, by=by, justification=form.read(SteerBody).justification)

    def after(self, name: str) -> HttpResponse:
        return redirect("calendars")


class QueueTimings(QueueAct):
    """Setting what a queue says of time."""

    words = "The queue's deadlines are set; what is open keeps those under which it was put."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts.setdefault("at_once_if_away", "off")  # a box that isn't ticked sends nothing
        acts.set_timing(name, form.read(TimingForm, at_once_if_away=is_on).as_body(), seen=seen, by=by)


class Leaving(QueuesPage):
    """Saying that somebody is away: oneself, or as an administrator anybody."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            away.leave(form.read(AbsenceBody, starts_at=moment, ends_at=moment), by=by)

        return done(request, "absence", act, "The absence is noted.", self.tell) or redirect("queues")


class ComingBack(QueuesPage):
    """Ending an absence now."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, absence_id: int) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            away.come_back(absence_id, by=by, justification=form.read(SteerBody).justification)

        return done(
            request,
            f"back-{absence_id}",
            act,
            "The absence is over, and whoever was named to stand in meanwhile no longer does.",
            self.tell,
        ) or redirect("queues")
