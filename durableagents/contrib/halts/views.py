"""The page of halts: setting, lifting in stages, lifting."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from durableagents.contrib.halts import services
from durableagents.contrib.halts.queries import halts_and_history, known_names
from durableagents.contrib.halts.services import ALL_OF_IT, HaltBody, LiftBody, StageBody
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs import features

PAGE = 20
KINDS = (
    ("halt", "Halt", "Nothing starts. Active runs stop at their next step."),
    ("quarantine", "Quarantine", "For a tool or a version: as a halt, and no new run starts on the version."),
    ("starts", "Stop new starts", "No new runs. Active runs continue."),
)
SCOPES = (
    ("all", "everything"),
    ("tag", "a tag"),
    ("agent", "an agent"),
    ("version", "a version"),
    ("tool", "a tool"),
    ("provider", "a provider"),
)


class HaltsPage(Page):
    """The halts in force, and past ones."""

    template = "halts/halts.html"
    section = "halts"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None, about: UUID | None = None) -> HttpResponse:
        """Render the page, with the refused form where it was typed."""
        beyond = request.GET.get("beyond", "")
        below = int(beyond) if beyond.isdecimal() and len(beyond) < 18 else None
        now, found = halts_and_history(limit=PAGE + 1, before=below)
        past = [row for _, row in found[:PAGE] if row.state == "lifted"]
        typed, may_act = dict(refused.typed) if refused else {}, OPERATOR in roles(request.user)
        context: dict[str, Any] = {
            "halts": now,
            "panels": [panel for one in now for panel in _panels_of(one.id)],
            "past": past,
            "more": found[PAGE - 1][0] if len(found) > PAGE else "",
            "beyond": beyond,
            "refused": refused,
            "about": about,
            "may_act": may_act,
            "typed": typed if about is None else {},
            "kinds": KINDS,
            "scopes": SCOPES,
            "all_of_it": ALL_OF_IT,
            "names": known_names() if may_act else {},
            "typed_there": typed,
            "here": reverse("halts") if refused else "",
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


def _panels_of(halt: UUID) -> Iterator[dict[str, Any]]:
    """Yield what features say about a halt: the template with its values."""
    for panel in features.parts_of_all(lambda each: each.halt_panels):
        if (found := panel(halt)) is not None:
            yield {"template": found[0], "halt": halt, **found[1]}


class NewHalt(HaltsPage):
    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(HaltBody, refuse=lambda text: text == "on")
            services.begin(body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, Refused("halt", error, form.kept))
        messages.success(request, "Halted. Workers confirm below.", extra_tags="ok")
        return redirect("halts")


class ChangeHalt(HaltsPage):
    """Lifting a halt, for some runs or completely."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]
    act = "lift"

    def post(self, request: HttpRequest, halt: UUID) -> HttpResponse:
        form = Sent(request)
        services.find(halt)
        try:
            by = self.acting(request, prefer=(OPERATOR,))
            if self.act == "lift":
                services.lift(halt, form.read(LiftBody, revision=_whole), by=by)
            else:
                body = form.read(StageBody, share=_number, agents=_names, tags=_names, revision=_whole)
                services.stage(halt, body, by=by)
        except DurableAgentsError as error:
            return self.tell(request, Refused(self.act, error, form.kept), halt)
        messages.success(request, "Halt lifted." if self.act == "lift" else "Halt changed.", extra_tags="ok")
        return redirect("halts")


def _number(text: str) -> Any:
    """Return a share; other text unchanged, for the body's rules to refuse."""
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return text


def _whole(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _names(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]
