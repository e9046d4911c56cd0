"""The page of limits: rules, breakers, use, and waiting calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.limits import services
from durableagents.contrib.limits.queries import list_limits
from durableagents.contrib.limits.services import LimitBody
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, INTEGRATOR, OPERATOR, roles

PAGE_SIZE = 100
FIELDS = {
    "per_minute": ("Calls per minute", "of a tool, a model or a provider"),
    "burst": ("Burst", "burst size after a quiet period"),
    "at_once": ("Concurrency", "calls in progress; for an agent or a tag, active runs"),
    "breaker": ("Breaker opens at", "percent of failed calls in about a minute"),
    "rest": ("Cool-down", "seconds until one test call; 30"),
    "weight": ("Weight", "share of an agent or a tag; 1"),
}


class LimitsPage(Page):
    """All limits that are set or in use, by key."""

    template = "limits/limits.html"
    section = "limits"
    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR, INTEGRATOR})

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        after = request.GET.get("after", "")
        found = list_limits(limit=PAGE_SIZE + 1, after=after)
        typed = refused.typed if refused else {}
        context: dict[str, Any] = {
            "rows": found[:PAGE_SIZE],
            "more": found[PAGE_SIZE - 1].key if len(found) > PAGE_SIZE else "",
            "after": after,
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
            services.set_limit(body.key, body.rule, by=self.acting(request), justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused("set", error, form.kept))
        messages.success(request, "Limit saved.", extra_tags="ok")
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
    act, done = staticmethod(services.reset_limit), "Limit reset."


class BreakerOpenings(LimitAct):
    act, done = staticmethod(services.open_breaker), "Breaker opened. It stays open until someone closes it."


class BreakerClosings(LimitAct):
    act, done = staticmethod(services.close_breaker), "Breaker closed."
