"""The page of halts: set them, lift them for some runs, lift them completely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from durableagents.contrib.halts import services
from durableagents.contrib.halts.queries import halts_and_history, known_names
from durableagents.contrib.halts.services import ALL_OF_IT
from ledger.actors import Actor
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs import features

PAGE = 20
KINDS = (
    ("halt", "Halt", "Nothing starts. Active runs stop at their next step."),
    ("quarantine", "Quarantine", "For a tool or a version: like a halt, and no new run starts on the version."),
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


class HaltsPage(FormPage):
    """The page with the halts in force, and past ones."""

    template = "halts/halts.html"
    section = "halts"

    def tell(self, request: HttpRequest, refused: Refused | None = None, halt: UUID | None = None) -> HttpResponse:
        """Show the page, with a refused form in its place on the page."""
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
            "about": halt,
            "may_act": may_act,
            "typed": typed if halt is None else {},
            "kinds": KINDS,
            "scopes": SCOPES,
            "all_of_it": ALL_OF_IT,
            "names": known_names() if may_act else {},
            "typed_there": typed,
            "here": reverse("halts") if refused else "",
        }
        return self.show_forms(request, context, refused)


def _panels_of(halt: UUID) -> Iterator[dict[str, Any]]:
    """Yield the panels that features have for a halt, each as a template and its values."""
    for panel in features.parts_of_all(lambda each: each.halt_panels):
        if (found := panel(halt)) is not None:
            yield {"template": found[0], "halt": halt, **found[1]}


class HaltAct(Act, HaltsPage):
    """Set a halt, or lift it for some runs or completely."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    page = "halts"

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Call the service for a halt that exists. Raises NotFound."""
        if address:
            services.find(**address)
        return super().perform(form, by, **address)

    def tell(self, request: HttpRequest, refused: Refused | None = None, halt: UUID | None = None) -> HttpResponse:
        """Show the page, with the form that was refused. Raises NotFound."""
        if halt is not None:
            services.find(halt)
        return super().tell(request, refused, halt)
