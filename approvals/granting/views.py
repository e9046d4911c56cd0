"""Standing grants in the console: all that the reader is shown, one whole, taking one back; and how far they may go."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.granting import acts, bounds, listed
from approvals.granting.bodies import BoundsBody
from approvals.queues.views import QueueAct, QueuePage, most
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.cursors import placed, placed_at
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import actor, roles
from runs.services.bodies import SteerBody


class GrantsPage(QueuePage):
    """All of them, newest first."""

    template = "approvals/grants.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        found = listed.page(request.user, beyond=placed_at(request.GET.get("beyond", "")), limit=listed.PAGE + 1)
        grants, more = listed.with_parties(found[: listed.PAGE]), ""
        if len(found) > listed.PAGE:
            more = placed(grants[-1].row.at, grants[-1].row.pk)
        return self.show(request, {"grants": grants, "more": more, **self.context(request, None)})


class OneGrantPage(QueuePage):
    """One whole, with its uses."""

    template = "approvals/grant.html"

    def get(self, request: HttpRequest, grant_id: int) -> HttpResponse:
        return self.tell(request, grant_id)

    def tell(self, request: HttpRequest, grant_id: int, refused: Refused | None = None) -> HttpResponse:
        """The page, with what was refused."""
        (grant,) = listed.with_parties([listed.one(grant_id, request.user)])
        shown: dict[str, Any] = {"g": grant, **self.context(request, refused)}
        return self.show(request, shown, status=refused.error.status if refused else 200)


class GrantEnds(OneGrantPage):
    """Taking one back. Who may is the grant's business."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, grant_id: int) -> HttpResponse:
        listed.one(grant_id, request.user)
        form, by = Sent(request), actor(request, "")
        try:
            why = form.read(SteerBody).justification
            held = acts.take_back(grant_id, justification=why, by=by, roles=roles(request.user))
        except DurableAgentsError as error:
            return self.tell(request, grant_id, Refused("end", error, form.kept))
        words = "It is taken back: people are asked again. It is on the record."
        if held.end is not None and not held.end.is_genuine:
            words = (
                "What it gave and nobody has used lets nothing through: that is on the record. That it was taken back "
                "before, a row says that was written past this installation."
            )
        messages.success(request, words, extra_tags="ok")
        return redirect("standing_grant", grant_id=grant_id)


class QueueGrants(QueueAct):
    """Setting how far they may go at a queue."""

    words = "How far the same again may be allowed is set."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["sum"] = form.texts.get("sum") or "none"
        bounds.allow(name, form.read(BoundsBody, sum=most), seen=seen, by=by)
