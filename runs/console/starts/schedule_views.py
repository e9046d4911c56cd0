"""Starts by the clock: what stands set, when it comes next, what became of it last; setting one, pausing it, taking it
away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.errors import DurableAgentsError
from ledger.web import strict_json
from ledger.web.cursors import closed, opened
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import INTEGRATOR, OPERATOR, roles
from runs.engine.agents import registry
from runs.models import Schedule
from runs.queries.schedules import listed, newest
from runs.services.bodies import ScheduleBody, SteerBody
from runs.services.schedules import acts

PAGE = 50
_SETTERS = frozenset({OPERATOR, INTEGRATOR})
_MISSED = {"skip": "leave them out", "once": "start one run for all", "all": "start each, a hundred at most"}
_OVERLAP = {
    "skip": "leave this one out", "queue": "begin after it", "replace": "cancel it and begin",
    "allow": "begin beside it",
}  # fmt: skip


class SchedulesPage(Page):
    """The schedules, newest first; a POST sets one."""

    template = "runs/schedules.html"
    section = "schedules"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None, at: UUID | None = None) -> HttpResponse:
        """The page; with what was refused, at the schedule that it was about."""
        beyond = opened(request.GET.get("beyond", ""))
        found = newest(limit=PAGE + 1, beyond=beyond)
        shown = found[:PAGE]
        held, person = roles(request.user), request.user.pk
        role = OPERATOR if OPERATOR in held else INTEGRATOR if INTEGRATOR in held else ""
        context: dict[str, Any] = {
            "listed": [(one, bool(role) and acts.may(one.schedule, role, person)) for one in listed(shown)],
            "more": closed(shown[-1].created_at, shown[-1].id) if len(found) > PAGE else "",
            "is_from_start": beyond is None, "refused": refused, "refused_at": at, "may_set": bool(role),
            "agents": registry.agents(), "missed": _MISSED, "overlaps": _OVERLAP,
            "typed": refused.typed if refused is not None and at is None else {"zone": "UTC", "input": "{}"},
        }  # fmt: skip
        return self.show(request, context, status=refused.error.status if refused else 200)


class NewSchedule(SchedulesPage):
    """Setting one."""

    allowed: ClassVar[frozenset[str]] = _SETTERS
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(ScheduleBody, input=_json)
            acts.create(body, by=self.acting(request, prefer=(OPERATOR, INTEGRATOR)))
        except DurableAgentsError as error:
            return self.tell(request, Refused("set", error, form.kept))
        messages.success(request, "The schedule is set. It is on the record.", extra_tags="ok")
        return redirect("schedules")


def _json(text: str) -> Any:
    """The input as it was typed; what is no JSON is handed on as text, which no agent's schema takes."""
    try:
        return strict_json.loads(text.encode("utf-8", "replace"))
    except strict_json.MalformedJSON:
        return text


class ScheduleAct(SchedulesPage):
    """One thing that a person does to a schedule. Which ones they may, the schedule says."""

    allowed: ClassVar[frozenset[str]] = _SETTERS
    http_method_names = ["post"]
    verb: ClassVar[str] = ""
    done: ClassVar[str] = ""

    def post(self, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
        form = Sent(request)
        service: Callable[..., Schedule] = getattr(acts, self.verb)
        try:
            body = form.read(SteerBody)
            by = self.acting(request, prefer=(OPERATOR, INTEGRATOR))
            service(schedule_id, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused(self.verb, error, form.kept), schedule_id)
        messages.success(request, self.done, extra_tags="ok")
        return redirect("schedules")


class SchedulePauses(ScheduleAct):
    verb, done = "pause", "The schedule is paused. It is on the record."


class ScheduleResumptions(ScheduleAct):
    verb, done = "resume", "The schedule goes on. It is on the record."


class ScheduleDeletions(ScheduleAct):
    verb, done = "delete", "The schedule is taken away. It is on the record."
