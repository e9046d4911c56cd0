"""The page of limits: rules, breakers, use, and waiting calls."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse

from durableagents.contrib.limits import services
from durableagents.contrib.limits.queries import list_limits
from durableagents.contrib.limits.services import LimitBody
from ledger.actors import Actor
from ledger.web.page_acts import Act, FormPage, whole
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


class LimitsPage(FormPage):
    """All limits that are set or in use, by key."""

    template = "limits/limits.html"
    section = "limits"
    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR, INTEGRATOR})

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        after = request.GET.get("after", "")
        found = list_limits(limit=PAGE_SIZE + 1, after=after)
        typed = refused.typed if refused else {}
        context: dict[str, Any] = {
            "rows": found[:PAGE_SIZE],
            "more": found[PAGE_SIZE - 1].key if len(found) > PAGE_SIZE else "",
            "after": after,
            "may_act": OPERATOR in roles(request.user),
            "fields": [
                (name, label, help_, typed.get(name, ""), refused.at.get(name, "") if refused else "")
                for name, (label, help_) in FIELDS.items()
            ],
        }
        return self.show_forms(request, context, refused)


class LimitAct(Act, LimitsPage):
    """An operator's act on a listed key."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    act, page = "act", "limits"
    body, reads = LimitBody, dict.fromkeys(FIELDS, whole)

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Call the service. All acts share one form, so acts other than `set_limit` ignore most of its fields."""
        body = form.read(LimitBody, **self.reads)
        return self.service(body.key, by=by, justification=body.justification)


class LimitSettings(LimitAct):
    act, done = "set", "Limit saved."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Set all limits of one key."""
        body = form.read(LimitBody, **self.reads)
        services.set_limit(body.key, body.rule, by=by, justification=body.justification)
