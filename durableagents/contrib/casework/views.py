"""Claims, questions and delegations in the console."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import services
from approvals.brief import ApprovalDetail, load_approval_detail
from approvals.cases.views import DecidersPage
from approvals.views import Deciding, InboxPage
from durableagents.contrib.casework import delegations, inquiries
from durableagents.contrib.casework.claims import ClaimBody, claim, release
from durableagents.contrib.casework.common import AnswerBody, DelegationBody, InquiryBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.bodies import NoBody
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import actor, ordered, roles
from runs.services.bodies import SteerBody


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


class _Act(InboxPage):
    """One act on a case that the person may see. `name` is the form to show again if it is refused."""

    http_method_names = ["post"]

    def done(
        self,
        request: HttpRequest,
        approval_id: UUID,
        name: str,
        act: Callable[[Sent, ApprovalDetail, Actor], None],
        words: str,
    ) -> HttpResponse:
        """Perform the act and show the case; a refused form is shown again."""
        held = roles(request.user)
        opened = load_approval_detail(approval_id, held, actor(request, ""))
        form, somebody = Sent(request), actor(request, (ordered(held) or [""])[0])
        try:
            act(form, opened, somebody)
        except DurableAgentsError as error:
            return self.tell(request, approval_id, Refused(name, error, form.kept))
        messages.success(request, words, extra_tags="ok")
        return redirect("approval", approval_id=approval_id)


class _DecidersAct(Deciding, _Act):
    """An act whose deciders' right is checked before their input. `name` is the form's, `words` the success message."""

    name = words = ""
    act: Callable[..., None]

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        held = roles(request.user)

        def as_decider(form: Sent, opened: ApprovalDetail, somebody: Actor) -> None:
            type(self).act(approval_id, form, by=services.actor_for_decision(opened.approval, somebody, held))

        return self.done(request, approval_id, self.name, as_decider, self.words)


class Inquiries(_DecidersAct):
    """Ask someone about a case."""

    name, words = "ask", "Question sent. You can still decide at any time."

    @staticmethod
    def act(approval_id: UUID, form: Sent, *, by: Actor) -> None:
        body = form.read(InquiryBody)
        inquiries.ask(approval_id, to=body.to, question=body.question, by=by)


class Delegations(_DecidersAct):
    """Delegate a case."""

    name, words = "hand", "Delegated. They were notified and can decide for you."

    @staticmethod
    def act(approval_id: UUID, form: Sent, *, by: Actor) -> None:
        body = form.read(DelegationBody)
        delegations.delegate(approval_id, to=body.to, justification=body.justification, by=by)


class Answers(_Act):
    """Answer an inquiry."""

    def post(self, request: HttpRequest, approval_id: UUID, n: int) -> HttpResponse:
        def act(form: Sent, opened: ApprovalDetail, by: Actor) -> None:
            inquiries.answer(approval_id, n, answer=form.read(AnswerBody).answer, by=by)

        return self.done(request, approval_id, f"answer-{n}", act, "Answer added to the case.")


class InquiryWithdrawals(_Act):
    """Withdraw an inquiry."""

    def post(self, request: HttpRequest, approval_id: UUID, n: int) -> HttpResponse:
        def act(form: Sent, opened: ApprovalDetail, by: Actor) -> None:
            why = form.read(SteerBody).justification
            inquiries.withdraw(approval_id, n, justification=why, by=replace(by, role=_as(opened, by)))

        return self.done(request, approval_id, f"withdraw-{n}", act, "Question withdrawn.")


class DelegationEnds(_Act):
    """End a delegation."""

    def post(self, request: HttpRequest, approval_id: UUID, n: int) -> HttpResponse:
        def act(form: Sent, opened: ApprovalDetail, by: Actor) -> None:
            why = form.read(SteerBody).justification
            delegations.take_back(approval_id, n, justification=why, by=replace(by, role=_as(opened, by)))

        return self.done(request, approval_id, f"back-{n}", act, "Delegation ended.")


def _as(opened: ApprovalDetail, by: Actor) -> str:
    """Return the actor under the queue's role, if they decide there."""
    return opened.role if opened.is_mine else by.role
