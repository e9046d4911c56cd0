"""The page of schedules and its form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.schedules import services
from durableagents.contrib.schedules.models import Schedule
from durableagents.contrib.schedules.queries import ScheduleRow, can_read_input, find, newest, rows_of
from durableagents.contrib.schedules.services import ScheduleBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.templatetags.console import tags as tags_of
from ledger.web import strict_json
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.cursors import closed, opened
from ledger.web.page_acts import Act
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import INTEGRATOR, OPERATOR, roles
from ledger.web.seeing.payloads import HIDDEN
from runs.console import budgets
from runs.console import start_marks as marks
from runs.engine.agents import registry
from runs.services.idempotency import KeyReused

PAGE_SIZE = 50
_SETTERS = frozenset({OPERATOR, INTEGRATOR})
_TEXTS = ("name", "agent", "cron", "zone", "missed", "overlap")
_FIELDS = (*_TEXTS, "input", "tags", "token", "seen", *budgets.extra_fields())
_EMPTY = {"zone": "UTC", "input": "{}"}
MISSED = {"skip": "skip", "once": "start one run", "all": "start each (max. 100)"}
OVERLAP = {
    "skip": "skip this run",
    "queue": "start after it",
    "replace": "cancel it and start",
    "allow": "start anyway",
}


class FormUsed(DurableAgentsError):
    """The form was already sent with other values."""

    status, code, title = 409, "form-used", "This form was used"

    def __init__(self) -> None:
        super().__init__("This form was already used to set a schedule. Check the list, then send it again.")


class SchedulesPage(Page):
    """The schedules, newest first."""

    template = "schedules/schedules.html"
    section = "schedules"

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            changing = UUID(request.GET.get("change", ""))
        except ValueError:
            return self.render(request)
        return self.render(request, changing=find(changing))

    def render(
        self,
        request: HttpRequest,
        refused: Refused | None = None,
        at: UUID | None = None,
        *,
        changing: Schedule | None = None,
        mark: UUID | None = None,
    ) -> HttpResponse:
        """Render the page, with the error shown at the schedule that it concerns.

        The form is for changing the schedule `changing`, if given. `mark` identifies the form, so that submitting it
        twice has an effect only once."""
        beyond = opened(request.GET.get("beyond", ""))
        found = newest(limit=PAGE_SIZE + 1, beyond=beyond)
        page_rows = found[:PAGE_SIZE]
        held, person = roles(request.user), request.user.pk
        role = OPERATOR if OPERATOR in held else INTEGRATOR if INTEGRATOR in held else ""
        is_refused = refused is not None and at is None
        typed = refused.typed if refused is not None and is_refused else _filled(changing) if changing else _EMPTY
        caps = budgets.BudgetForm(budgets.AT_START, data=typed)
        if refused is not None and is_refused:
            caps.mark(refused.error)
        agents = [agent.graph_id for agent in registry.agents()]
        if typed.get("agent") and typed["agent"] not in agents:
            agents.append(typed["agent"])  # an agent's name without version, or a version that this process lacks
        context: dict[str, Any] = {
            "listed": [
                _terms(row) | {"may": bool(role) and services.can_change(schedule.owner, role, person)}
                for schedule, row in zip(page_rows, rows_of(page_rows), strict=True)
            ],
            "more": closed(page_rows[-1].created_at, page_rows[-1].id) if len(found) > PAGE_SIZE else "",
            "is_from_start": beyond is None,
            "refused": refused,
            "refused_at": at,
            "may_set": bool(role) and (changing is None or services.can_change(changing.owner, role, person)),
            "agents": agents,
            "missed": MISSED,
            "overlaps": OVERLAP,
            "typed": typed,
            "caps": caps,
            "changing": changing,
            "token": marks.token_of(request, mark or marks.new_mark()),
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class NewSchedule(SchedulesPage):
    """Create a schedule. If the same form is sent twice, one schedule is created."""

    allowed: ClassVar[frozenset[str]] = _SETTERS
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        return self._set(request, None)

    def _set(self, request: HttpRequest, schedule: Schedule | None) -> HttpResponse:
        form = Sent(request)
        mark = marks.mark_in(request, form.texts.get("token", ""))
        try:
            body, seen = _read(form, schedule), _moment(form.texts.get("seen", ""))
            if mark is None or (schedule is not None and seen is None):
                raise marks.NotOurForm("set", "check the list above")
            by = self.acting(request, prefer=(OPERATOR, INTEGRATOR))
            given = [body.model_dump(mode="json"), None if schedule is None else str(schedule.id)]
            marks.do_once(request, mark, given, lambda: self._save(body, schedule, seen, by).id)
        except KeyReused:
            return self.render(request, Refused("set", FormUsed(), form.kept), changing=schedule)
        except DurableAgentsError as error:
            return self.render(request, Refused("set", error, form.kept), changing=schedule, mark=mark)
        messages.success(request, "Schedule saved.", extra_tags="ok")
        return redirect("schedules")

    def _save(self, body: ScheduleBody, schedule: Schedule | None, seen: datetime | None, by: Actor) -> Schedule:
        if schedule is None:
            return services.create(body, by=by)
        return services.change(schedule.id, body, by=by, seen=seen)


class ScheduleChanges(NewSchedule):
    """Replace a schedule's settings, unless they have changed since the caller read them."""

    def post(self, request: HttpRequest, schedule_id: UUID) -> HttpResponse:  # type: ignore[override]
        return self._set(request, find(schedule_id))


class ScheduleAct(Act, SchedulesPage):
    """Base class of acts on a schedule. The service checks the rights."""

    allowed: ClassVar[frozenset[str]] = _SETTERS
    page = "schedules"

    @property
    def by(self) -> Actor:
        return self.acting(self.request, prefer=(OPERATOR, INTEGRATOR))

    def tell(self, request: HttpRequest, schedule_id: UUID, refused: Refused | None = None) -> HttpResponse:
        """Show the list, with the errors of a refused form next to its schedule."""
        return self.render(request, refused, schedule_id)


def _terms(row: ScheduleRow) -> dict[str, Any]:
    """Return a row with its rules in plain words; unknown values stay unchanged."""
    return {
        "row": row,
        "missed": MISSED.get(row.missed, row.missed),
        "overlap": OVERLAP.get(row.overlap, row.overlap),
        "caps": budgets.cap_texts(row.budget),
        "input": HIDDEN if row.hidden else row.input,
    }


def _filled(schedule: Schedule) -> dict[str, str]:
    """Return the form's values for changing a schedule, including `updated_at` of the version shown."""
    texts = {name: str(getattr(schedule, name)) for name in _TEXTS}
    caps = schedule.budget if isinstance(schedule.budget, dict) else {}
    typed = {f"budget.{name}": budgets.in_field(name, cap) for name, cap in caps.items() if name in budgets.AT_START}
    return {
        **texts,
        **typed,
        "tags": ", ".join(tags_of(schedule.tags)),
        "seen": schedule.updated_at.isoformat(),
        "input": json.dumps(schedule.input, indent=2, ensure_ascii=False) if can_read_input(schedule) else "",
    }


def _read(form: Sent, before: Schedule | None = None) -> ScheduleBody:
    """Parse the form into the body of the API. Raises InvalidInput, TooLarge.

    Caps of `before` are kept if the form has no field for them or shows them unchanged."""
    form.check(_FIELDS)
    texts = form.texts
    if problems := unstorable(texts):
        raise does_not_fit(problems, "form")
    found: dict[str, Any] = {name: texts[name] for name in _TEXTS if texts.get(name)}
    found["tags"] = [tag for tag in map(str.strip, texts.get("tags", "").split(",")) if tag]
    unreadable: list[dict[str, str]] = []
    if "input" in texts:
        found["input"], unreadable = _read_json(texts["input"])
    if caps := _caps(texts, before):
        found["budget"] = caps
    if problems := unstorable(found):
        raise does_not_fit(problems, "form")
    try:
        body = fit(ScheduleBody, found, "form")
    except InvalidInput as error:
        raise does_not_fit([*error.extra["errors"], *unreadable], "form") from None
    if unreadable:
        raise does_not_fit([*services.time_errors(body), *unreadable], "form")
    return body


def _caps(texts: Mapping[str, str], before: Schedule | None) -> dict[str, Any]:
    had = before.budget if before is not None and isinstance(before.budget, dict) else {}
    typed = budgets.at_start(texts)
    same = {name: cap for name, cap in had.items() if texts.get(f"budget.{name}") == budgets.in_field(name, cap)}
    return {name: cap for name, cap in had.items() if name not in budgets.AT_START} | typed | same


def _read_json(text: str) -> tuple[Any, list[dict[str, str]]]:
    """Return the input parsed as JSON, and an error if it can't be parsed."""
    try:
        return strict_json.loads(text.encode("utf-8", "replace")), []
    except strict_json.MalformedJSON as error:
        words = str(error).removeprefix("The body is not JSON: ").rstrip(".")
        fix = 'such as {} or {"item": "chairs"}'
        return None, [{"field": "input", "problem": f"Not valid JSON: {words}", "fix": fix}]


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
