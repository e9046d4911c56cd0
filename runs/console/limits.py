"""The page of limits, breakers and shares: rules, status, and waiting calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, INTEGRATOR, OPERATOR, roles
from runs.queries.limits import standing
from runs.services.limits import acts
from runs.services.limits.acts import LimitBody

PAGE = 100
FIELDS = {
    "per_minute": ("Tries a minute", "of a tool, a model or a provider"),
    "burst": ("Burst", "how many may go at once after a quiet time"),
    "at_once": ("At once", "tries under way; of an agent or a tag, runs driven"),
    "breaker": ("Breaker opens at", "per cent of the tries of about a minute that fail"),
    "rest": ("Rest", "seconds before one try finds out; 30"),
    "weight": ("Weight", "of an agent or a tag: its share; 1"),
}


class LimitsPage(Page):
    """All known limits, by key."""

    template = "fleet/limits.html"
    section = "limits"
    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR, INTEGRATOR})

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Render the page, with the refused form where it was typed."""
        beyond = request.GET.get("beyond", "")
        found = standing(limit=PAGE + 1, beyond=beyond)
        typed = refused.typed if refused else {}
        context: dict[str, Any] = {
            "rows": found[:PAGE],
            "more": found[PAGE - 1].key if len(found) > PAGE else "",
            "beyond": beyond,
            "refused": refused,
            "typed": typed,
            "may_act": OPERATOR in roles(request.user),
            "fields": [
                (name, label, help_, typed.get(name, ""), refused.at.get(name, "") if refused else "")
                for name, (label, help_) in FIELDS.items()
            ],
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class LimitSettings(LimitsPage):
    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(LimitBody, **dict.fromkeys(FIELDS, _number))
            acts.set_limit(body.key, body.rule, by=self.acting(request), justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused("set", error, form.kept))
        messages.success(request, "The limit is set. It is on the record.", extra_tags="ok")
        return redirect("limits")


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


class LimitAct(LimitsPage):
    """An operator's action on a listed key."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]
    act: ClassVar[Callable[..., Any]]
    done: ClassVar[str] = ""

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(LimitBody, **dict.fromkeys(FIELDS, _number))  # one form: its other fields are ignored
            type(self).act(body.key, by=self.acting(request), justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused("act", error, form.kept))
        messages.success(request, self.done, extra_tags="ok")
        return redirect("limits")


class LimitResets(LimitAct):
    act, done = staticmethod(acts.reset_limit), "What was said before counts again. It is on the record."


class BreakerOpenings(LimitAct):
    act, done = staticmethod(acts.open_breaker), "The breaker is open until somebody closes it. It is on the record."


class BreakerClosings(LimitAct):
    act, done = staticmethod(acts.close_breaker), "The breaker is closed. It is on the record."
