"""Claims in the console."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import services
from approvals.cases.views import DecidersPage
from durableagents.contrib.casework.claims import ClaimBody, NoBody, claim, release
from ledger.errors import DurableAgentsError
from ledger.web.page_forms import Sent
from ledger.web.roles import actor, roles


class Claims(DecidersPage):
    """Claim an approval, extend a claim, or take one over. A late claimant sees who else claimed it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        opened, form = self.opened(request, approval_id), Sent(request)
        try:
            by = services.actor_for_decision(opened.approval, actor(request, ""), roles(request.user))
            body = form.read(ClaimBody, minutes=_whole_number, take_over=_whole_number)
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
    """Return to the approval with the conflict (409) as a message. Raises any other error again."""
    if error.status != 409:
        raise error
    messages.warning(request, error.detail, extra_tags="hold")
    return redirect("approval", approval_id=approval_id)


def _whole_number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
