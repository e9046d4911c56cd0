"""Claims, questions and delegations in the console."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import services
from approvals.brief import load_approval_detail
from approvals.cases.views import DecidersPage
from approvals.views import Deciding, InboxPage
from durableagents.contrib.casework.claims import ClaimBody, claim, release
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.bodies import NoBody
from ledger.web.page_acts import Act, whole
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import actor, ordered, roles


class Claims(DecidersPage):
    """Claim an approval, extend a claim, or take one over. If others have claimed it, their names are shown."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        opened, form = self.opened(request, approval_id), Sent(request)
        try:
            by = services.actor_for_decision(opened.approval, actor(request, ""), roles(request.user))
            body = form.read(ClaimBody, minutes=whole, take_over=whole)
            claim(approval_id, by=by, minutes=body.minutes, take_over=body.take_over)
        except DurableAgentsError as error:
            return _not_done(request, approval_id, error)
        return redirect("approval", approval_id=approval_id)


class Releases(DecidersPage):
    """Release a claim."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        self.opened(request, approval_id)
        try:
            Sent(request).read(NoBody)
            release(approval_id, by=actor(request, ""))
        except DurableAgentsError as error:
            return _not_done(request, approval_id, error)
        return redirect("approval", approval_id=approval_id)


def _not_done(request: HttpRequest, approval_id: UUID, error: DurableAgentsError) -> HttpResponse:
    """Return to the approval and show the conflict (409) as a message. Raises other errors again."""
    if error.status != 409:
        raise error
    messages.warning(request, error.detail, extra_tags="hold")
    return redirect("approval", approval_id=approval_id)


class CaseAct(Act, InboxPage):
    """An act on a case. The person must be allowed to see the case."""

    takes_fields = True

    @property
    def by(self) -> Actor:
        """Return the actor with the role that lets them decide in the queue, if they have it."""
        held = roles(self.request.user)
        opened = load_approval_detail(self.kwargs["approval_id"], held, actor(self.request, ""))
        return actor(self.request, opened.role if opened.is_mine else (ordered(held) or [""])[0])

    def tell(
        self, request: HttpRequest, refused: Refused | None = None, *, approval_id: UUID | None = None, n: int = 0
    ) -> HttpResponse:
        """Show the case, with the form that was refused."""
        return super().tell(request, refused, approval_id=approval_id)

    def name_form(self, form: Sent, **address: Any) -> str:
        """Return the form's name, which includes the number of its inquiry or delegation."""
        return f"{self.act}-{address['n']}" if "n" in address else self.act

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Show the result of an act on the case's page."""
        messages.success(request, self.done, extra_tags="ok")
        return redirect("approval", approval_id=address["approval_id"])


class DecidersAct(Deciding, CaseAct):
    """An act of people who may decide the case. This right is checked before the input."""

    @property
    def by(self) -> Actor:
        held = roles(self.request.user)
        opened = load_approval_detail(self.kwargs["approval_id"], held, actor(self.request, ""))
        somebody = actor(self.request, (ordered(held) or [""])[0])
        return services.actor_for_decision(opened.approval, somebody, held)
