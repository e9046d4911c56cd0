"""The page of actions on the fleet: draining a worker, and declaring a host dead."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from pydantic import Field

from ledger.actors import Actor
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_forms import Refused
from ledger.web.roles import OPERATOR
from runs.models import Process
from runs.services import fleet
from runs.services.bodies import SteerBody
from runs.services.fleet import DeadBody


class _DrainForm(SteerBody):
    """The form for a worker and a reason."""

    process: Annotated[UUID, Field(strict=False)]


class FleetActsPage(FormPage):
    """The workers that can be drained, and the hosts that can be declared dead."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    template = "fleet/acts.html"
    section = "fleet"

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        workers = Process.objects.filter(kind="worker", ended_at=None, drain_asked_at=None).order_by("host", "pid")
        named = fleet.declarable().order_by("host").values_list("host", flat=True).distinct()
        context: dict[str, Any] = {
            "workers": workers[:200],
            "hosts": list(named[:200]),
        }
        return self.show_forms(request, context, refused)


class Drains(Act, FleetActsPage):
    act, page, done = "drain", "fleet", "Draining: the worker hands over its runs and exits."
    body, takes_fields = _DrainForm, True

    def service(self, *, process: UUID, by: Actor, justification: str) -> None:
        """Drain the worker. Raises DurableAgentsError."""
        fleet.drain(process, by=by, justification=justification)


class Deaths(Act, FleetActsPage):
    act, page, service, body, takes_fields = "declare_dead", "fleet", staticmethod(fleet.declare_dead), DeadBody, True

    def after(self, request: HttpRequest, result: int, **address: Any) -> HttpResponse:
        """Show how many processes were recorded as ended."""
        count = f"{result} process{'' if result == 1 else 'es'}"
        self.done = f"{count} recorded as ended. The runs continue on other workers."
        return super().after(request, result, **address)
