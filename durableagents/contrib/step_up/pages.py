"""The page on which the approver signs in again."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from approvals.models import Approval
from durableagents.contrib.accounts import again, factors
from durableagents.contrib.accounts.assertions import Signed
from durableagents.contrib.step_up.guard import NothingToShow
from durableagents.contrib.step_up.models import terms_of_yes
from runs.engine.gating.proof import Wanted
from runs.engine.gating.stages import APPROVE


def answer(request: HttpRequest, what: str, approval: Approval) -> tuple[HttpResponse | None, Signed | None]:
    """Check the proof in a form, if there is one.

    Returns the page to show again if the proof is wrong, and a passkey's signature if there is one."""
    is_shown = any(name in request.POST for name in (again.PASSWORD, again.CODE, again.PASSKEY))
    if not is_shown or not isinstance(request.user, User):
        return None, None
    found = again.ask_for(request, what, terms=_terms(request, approval))
    return found.page, found.signed


def ask(request: HttpRequest, what: str, approval: Approval, wanted: Wanted) -> HttpResponse:
    """Return the page that asks for a proof, even if the last one is recent, since a passkey signs the approval itself.

    Raises NothingToShow if the user has no suitable factor."""
    user = request.user
    assert isinstance(user, User)
    if not factors.has_factor(user) and (wanted.factor or not user.has_usable_password()):
        raise NothingToShow(wanted)
    page = again.ask_for(request, what, terms=_terms(request, approval)).page
    assert page is not None  # `answer` has removed any proof from the form
    return page


def _terms(request: HttpRequest, approval: Approval) -> dict[str, Any]:
    return terms_of_yes(approval.pk, approval.revision, approval.plan_hash, APPROVE, request.user.pk)
