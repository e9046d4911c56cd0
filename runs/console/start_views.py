"""Starting a run from a form that is made from the agent's input schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from ledger.errors import DurableAgentsError
from ledger.templatetags.console import tags as tags_of
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.page_base import Page
from ledger.web.page_forms import Sent
from ledger.web.roles import INTEGRATOR, OPERATOR
from runs.console import attributes, budgets
from runs.console import start_marks as marks
from runs.console.forms.fields import Value
from runs.console.forms.form import ExtraField, PartForm, SchemaForm
from runs.console.run_page import Dossier, gather
from runs.engine.agents import Agent, registry
from runs.services.bodies import StartBody
from runs.services.starts import keys

_LABELS = {
    "business_key": "Business key",
    "on_conflict": "If a run with this key is active",
    "start_at": "Not before (UTC)",
    "start_before": "Not later than (UTC)",
}
_HELP = {"business_key": "for example an invoice number; only one active run per agent and key"}
_RULES = [
    ("", "don't start"),
    ("join", "open that run"),
    ("queue", "start after it"),
    ("replace", "cancel it and start"),
]
_TIMES = ("start_at", "start_before")
_LOCAL = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?")


class WhenForm(PartForm):
    """Fields for the business key and times."""

    def __init__(self, *, data: Mapping[str, str] | None = None) -> None:
        super().__init__(data=data)
        for name, label in _LABELS.items():
            schema = {"title": label, "description": _HELP.get(name, "")}
            self.fields[name] = Value(schema, key=name, required=False, value=None, widget=_widget(name))


def _widget(name: str) -> forms.Widget:
    if name == "on_conflict":
        return forms.Select(choices=_RULES)
    if name in _TIMES:
        return forms.TextInput({"placeholder": "2026-11-22 09:00", "autocomplete": "off"})
    return forms.TextInput({"maxlength": 64, "autocomplete": "off"})


def extra_fields() -> dict[str, ExtraField]:
    """Return the labels and ids of these fields."""
    return {name: ExtraField(label, f"f-{name}") for name, label in _LABELS.items()}


def typed(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the typed values in the API's format, without empty fields. Times are in UTC."""
    found = {name: text for name in _LABELS if (text := texts.get(name, "").strip())}
    return {name: f"{text}Z" if name in _TIMES and _LOCAL.fullmatch(text) else text for name, text in found.items()}


# Fields of the page's form that aren't part of the input.
_EXTRA_FIELDS = {
    "agent": ExtraField(),
    "token": ExtraField(),
    "sample": ExtraField(),
    "like": ExtraField(),
    "tags": ExtraField("Tags", "tags"),
    **extra_fields(),
    **budgets.extra_fields(),
}


def _extra_fields(agent: Agent) -> dict[str, ExtraField]:
    return {**_EXTRA_FIELDS, **attributes.extra_fields(agent)}


@dataclass(frozen=True, slots=True)
class _Filled:
    """The initial content of a form: a sample, another run's input, or nothing. `token` identifies that run's form."""

    document: Any
    sample: int | None = None
    like: Dossier | None = None
    token: str = ""


class StartPage(Page):
    """The start form, prefilled from a sample. A POST starts the run. A form that was already used shows its run."""

    allowed: ClassVar[frozenset[str]] = frozenset({INTEGRATOR, OPERATOR})
    template = "runs/start.html"
    section = "runs"

    def get(self, request: HttpRequest) -> HttpResponse:
        agents = registry.agents()
        if not agents:
            return self.show(request, {"agents": []})
        agent = registry.find(request.GET.get("agent") or agents[0].name)
        mark = marks.mark_in(request, request.GET.get("form", ""))
        if mark is None:
            return self.private(request, redirect(_address(request, form=marks.token_of(request, marks.new_mark()))))
        if (run_id := marks.run_of(request, mark)) is not None:
            return self.show(request, {"agent": agent, "agents": agents, **self._used(request, mark, run_id)})
        filled = self._filled(request, agent, request.GET.get("sample"), request.GET.get("like", ""))
        form = SchemaForm(agent.input.model_json_schema(), document=filled.document, extra_fields=_extra_fields(agent))
        like = filled.like
        tags = ", ".join(tags_of(like.run.tags)) if like is not None else ""
        found_by = attributes.AttributeForm(agent, values=like.attributes if like is not None else ())
        return self._show(request, agent, form, mark, filled, tags=tags, found_by=found_by)

    def post(self, request: HttpRequest) -> HttpResponse:
        agent = registry.find(request.POST.get("agent", ""))
        sent = Sent(request)
        filled = self._filled(request, agent, sent.texts.get("sample", ""), sent.texts.get("like", ""))
        schema = agent.input.model_json_schema()
        form = SchemaForm(schema, data=request.POST, document=filled.document, extra_fields=_extra_fields(agent))
        mark = marks.mark_in(request, sent.texts.get("token", ""))
        try:
            sent.check(request.POST)
            if mark is None:
                raise marks.NotOurForm()
            run_id, message = self._start(request, mark, _requested_start(agent, form.document(), sent.texts))
        except DurableAgentsError as error:
            form.mark(error, within="input")
            caps = budgets.BudgetForm(budgets.AT_START, data=sent.kept)
            caps.mark(error)
            when = WhenForm(data=sent.kept)
            when.mark(error)
            found_by = attributes.AttributeForm(agent, data=sent.kept)
            found_by.mark(error)
            typed = {"tags": sent.kept.get("tags", ""), "caps": caps, "when": when, "found_by": found_by}
            return self._refuse(request, agent, form, mark, filled, error, typed)
        messages.success(request, message, extra_tags="ok")
        return redirect("run", run_id=run_id)

    def _start(self, request: HttpRequest, mark: UUID, body: StartBody) -> tuple[UUID, str]:
        by, text = (
            self.acting(request, prefer=(INTEGRATOR, OPERATOR)),
            "This form has already started this run.",
        )

        def start() -> UUID:
            nonlocal text
            begun = keys.start(keys.Wanted.of(body), by=by)
            text = "Run started." if begun.is_new else "A run with this key is already active."
            return begun.run.id

        # Omitted fields stay omitted, so that a form sent before the field existed still matches.
        run_id, _ = marks.start_once(request, mark, body.model_dump(mode="json", exclude_unset=True), start)
        return run_id, text

    def _refuse(
        self,
        request: HttpRequest,
        agent: Agent,
        form: SchemaForm,
        mark: UUID | None,
        filled: _Filled,
        error: DurableAgentsError,
        typed: dict[str, Any],
    ) -> HttpResponse:
        """Render the form again.

        The form keeps its mark if that is unused; otherwise the page names the run that was started.
        """
        run_id = marks.run_of(request, mark) if mark is not None else None
        if mark is None or run_id is None:
            return self._show(request, agent, form, mark or marks.new_mark(), filled, error=error, **typed)
        further = error.further if isinstance(error, marks.FormUsed) else marks.new_mark()
        used = self._used(request, mark, run_id)
        return self._show(request, agent, form, further, filled, error=error, **typed, **used)

    def _show(
        self, request: HttpRequest, agent: Agent, form: SchemaForm, mark: UUID, filled: _Filled, **more: Any
    ) -> HttpResponse:
        context = {"agent": agent, "agents": registry.agents(), "form": form, "token": marks.token_of(request, mark)}
        context |= {"filled": filled, "sample": filled.sample, "like": filled.like}
        more.setdefault("caps", budgets.BudgetForm(budgets.AT_START))
        context["beforehand"] = budgets.Beforehand.of(agent)
        more.setdefault("when", WhenForm())
        more.setdefault("found_by", attributes.AttributeForm(agent))
        error = more.get("error")
        return self.show(request, {**context, **more}, status=error.status if error else 200)

    def _used(self, request: HttpRequest, mark: UUID, run_id: UUID) -> dict[str, Any]:
        used = gather(run_id)
        another = {"agent": used.run.graph_id, "like": marks.token_of(request, mark)}
        return {"used": used, "another": f"{reverse('start')}?{urlencode(another)}"}

    def _filled(self, request: HttpRequest, agent: Agent, sample: str | None, token: str) -> _Filled:
        """Return the form's initial content as requested by the query string, or the first sample."""
        like = self._like(request, agent, token)
        chosen = ("0" if agent.samples and like is None else "") if sample is None else sample
        n = int(chosen) if re.fullmatch("[0-9]{1,6}", chosen) else None
        if n is not None and n < len(agent.samples):
            return _Filled(agent.samples[n].input, n, like, token)
        return _Filled(like.story.input if like is not None and like.is_read else {}, None, like, token)

    def _like(self, request: HttpRequest, agent: Agent, token: str) -> Dossier | None:
        """Return the run to copy, if it was started by this person's form for this agent."""
        mark = marks.mark_in(request, token)
        run_id = marks.run_of(request, mark) if mark is not None else None
        found = gather(run_id) if run_id is not None else None
        return found if found is not None and found.run.graph_id == agent.graph_id else None


def _address(request: HttpRequest, **more: str) -> str:
    query = request.GET.copy()
    for name, value in more.items():
        query[name] = value
    return f"{request.path}?{query.urlencode()}"


def _requested_start(agent: Agent, document: dict[str, Any], texts: Mapping[str, str]) -> StartBody:
    """Return the requested start in the API's format. Raises InvalidInput."""
    found = {
        "agent": agent.graph_id,
        "input": document,
        "tags": [tag for tag in map(str.strip, texts.get("tags", "").split(",")) if tag],
        **typed(texts),
    }
    if caps := budgets.at_start(texts):
        found["budget"] = caps
    if found_by := attributes.at_start(agent, texts):
        found["attributes"] = found_by
    if problems := unstorable(found):
        raise does_not_fit(problems, "form")
    return fit(StartBody, found, "form")
