"""The buttons on a case: I'm on it, and letting it go."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import services
from approvals.cases.views import DecidersPage
from approvals.claims.acts import claim, release
from approvals.claims.bodies import ClaimBody, NoBody
from ledger.errors import DurableAgentsError
from ledger.web.page_forms import Sent
from ledger.web.roles import actor, roles


class Claims(DecidersPage):
    """Being on it, also for longer, or in somebody else's place. Who comes second is told on the case who is."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        opened, form = self.opened(request, approval_id), Sent(request)
        try:
            by = services.deciding(opened.approval, actor(request, ""), roles(request.user))
            body = form.read(ClaimBody, minutes=_whole, take_over=_whole)
            claim(approval_id, by=by, minutes=body.minutes, take_over=body.take_over)
        except DurableAgentsError as error:
            return not_done(request, approval_id, error)
        return redirect("approval", approval_id=approval_id)


class Releases(DecidersPage):
    """Letting it go."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        self.opened(request, approval_id)
        try:
            Sent(request).read(NoBody)
            release(approval_id, by=actor(request, ""))
        except DurableAgentsError as error:
            return not_done(request, approval_id, error)
        return redirect("approval", approval_id=approval_id)


def not_done(request: HttpRequest, approval_id: UUID, error: DurableAgentsError) -> HttpResponse:
    """Back on the case with what was in the way, where somebody else was faster. Raises anything else again."""
    if error.status != 409:
        raise error
    messages.warning(request, error.detail, extra_tags="hold")
    return redirect("approval", approval_id=approval_id)


def _whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
