"""The page of actions on the fleet: draining a worker, declaring a host dead."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from pydantic import Field

from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR
from runs.models import Process
from runs.services import fleet
from runs.services.bodies import SteerBody
from runs.services.fleet import DeadBody


class _DrainForm(SteerBody):
    """Form that names a worker and a reason."""

    process: Annotated[UUID, Field(strict=False)]


class FleetActsPage(Page):
    """The workers that can be drained, and the hosts that can be declared dead."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    template = "fleet/acts.html"
    section = "fleet"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        workers = Process.objects.filter(kind="worker", ended_at=None, drain_asked_at=None).order_by("host", "pid")
        named = fleet.declarable().order_by("host").values_list("host", flat=True).distinct()
        context: dict[str, Any] = {
            "workers": workers[:200],
            "hosts": list(named[:200]),
            "refused": refused,
            "typed": dict(refused.typed) if refused is not None else {},
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class Drains(FleetActsPage):
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(_DrainForm)
            fleet.drain(body.process, by=self.acting(request, prefer=(OPERATOR,)), justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused("drain", error, form.kept))
        messages.success(request, "Draining: the worker hands over its runs and exits.", extra_tags="ok")
        return redirect("fleet")


class Deaths(FleetActsPage):
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(DeadBody)
            by = self.acting(request, prefer=(OPERATOR,))
            count = fleet.declare_dead(body.host, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused("declare_dead", error, form.kept))
        words = f"{count} process{'' if count == 1 else 'es'} recorded as ended. Their runs continue on other workers."
        messages.success(request, words, extra_tags="ok")
        return redirect("fleet")
