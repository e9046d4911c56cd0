"""Standing approvals in the console: list, detail, revoking, and a queue's limits."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path

from approvals.queues.views import QueueAct, QueuePage, parse_sum
from durableagents.contrib.standing_approvals import queries, services
from durableagents.contrib.standing_approvals.services import BoundsBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.cursors import placed, placed_at
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import actor, roles
from runs.services.bodies import SteerBody


class GrantsPage(QueuePage):
    """All standing approvals, newest first."""

    template = "standing_approvals/grants.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        beyond, size = placed_at(request.GET.get("beyond", "")), queries.PAGE
        found = queries.find_page(request.user, beyond=beyond, limit=size + 1)
        grants, more = found[:size], ""
        if len(found) > size:
            more = placed(grants[-1].at, grants[-1].id)
        parties = queries.find_parties(grants)
        fields = {"grants": [(each, parties.get(each.approval_id, "")) for each in grants], "more": more}
        return self.show(request, fields | self.context(request, None))


class OneGrantPage(QueuePage):
    """One standing approval with its uses."""

    template = "standing_approvals/grant.html"

    def get(self, request: HttpRequest, grant_id: int) -> HttpResponse:
        return self.tell(request, grant_id)

    def tell(self, request: HttpRequest, grant_id: int, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        grant, may_end = queries.find_one(grant_id, request.user)
        about = queries.find_parties([grant]).get(grant.approval_id, "")
        fields: dict[str, Any] = {"g": grant, "may_end": may_end, "about": about, **self.context(request, refused)}
        return self.show(request, fields, status=refused.error.status if refused else 200)


class GrantEnds(OneGrantPage):
    """Revoke one. The service checks who may."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, grant_id: int) -> HttpResponse:
        queries.find_one(grant_id, request.user)
        form, by = Sent(request), actor(request, "")
        try:
            why = form.read(SteerBody).justification
            held = services.revoke(grant_id, justification=why, by=by, roles=roles(request.user))
        except DurableAgentsError as error:
            return self.tell(request, grant_id, Refused("end", error, form.kept))
        words = "Standing approval revoked. Later calls need approval again."
        if held.end is not None and not held.end.is_authentic:
            words = "Unused approvals from it are void. The database holds an earlier revocation that is not authentic."
        messages.success(request, words, extra_tags="ok")
        return redirect("standing_grant", grant_id=grant_id)


class QueueGrants(QueueAct):
    """Set the limits at a queue."""

    words = "Standing approval limits saved."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["sum"] = form.texts.get("sum") or "none"
        services.set_limits(name, form.read(BoundsBody, sum=parse_sum), seen=seen, by=by)


urlpatterns = [
    path("queues/of/<str:queue>/grants", QueueGrants.as_view(), name="queue_grants"),
    path("queues/grants", GrantsPage.as_view(), name="standing_grants"),
    path("queues/grants/<int:grant_id>", OneGrantPage.as_view(), name="standing_grant"),
    path("queues/grants/<int:grant_id>/ends", GrantEnds.as_view(), name="standing_grant_ends"),
]
