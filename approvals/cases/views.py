"""Pages for acts on a case before its decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from approvals import services
from approvals.brief import ApprovalDetail, load_approval_detail
from approvals.cases.amending import WITHIN, Wanted, amend, look
from approvals.inbox import Wanted as Listing
from approvals.queues.sight import read_one
from approvals.views import Deciding, goes_on
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, RecordDamaged
from ledger.web.bodies import does_not_fit, unstorable
from ledger.web.downloads import json_file
from ledger.web.page_base import Page
from ledger.web.page_forms import Sent
from ledger.web.roles import actor, roles
from ledger.web.text_safety import Change, compare, leaves
from runs.console.forms.form import ExtraField, SchemaForm
from runs.engine.gating.fields import editable_in
from runs.journal.digests import hasher

# The form's fields other than the arguments.
_EXTRA_FIELDS = {
    "plan_hash": ExtraField(),
    "looked": ExtraField(),
    "step": ExtraField(),
    "justification": ExtraField("Why", "justification"),
}


class DecidersPage(Deciding):
    """A page for people who may decide."""

    def opened(self, request: HttpRequest, approval_id: UUID) -> ApprovalDetail:
        """Return the case as the reader sees it. Raises NotFound."""
        return load_approval_detail(approval_id, roles(request.user), actor(request, ""))


class Changes(DecidersPage):
    """Approve with changes: a form of the editable fields, a comparison, and approval of exactly what it compared."""

    template = "approvals/changes.html"

    def get(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        opened = self.opened(request, approval_id)
        return self._show(request, opened, _form(opened))

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        opened = self.opened(request, approval_id)
        form = _form(opened, request.POST)
        sent = Sent(request)
        wanted = None
        try:
            by = services.actor_for_decision(opened.approval, actor(request, ""), roles(request.user))
            if opened.is_made_elsewhere:
                raise Forbidden(opened.why_no_change)
            if not opened.is_open:
                raise services.AlreadyDecided(opened.approval)
            sent.check(request.POST)
            given = form.document()
            if problems := unstorable({WITHIN: given}):
                raise does_not_fit(problems, "form")
            wanted = look(opened.approval, given)
            if sent.texts.get("step") != "send" or sent.texts.get("looked") != _digest(wanted):
                return self._show(request, opened, form, wanted=wanted, typed=sent.kept)
            done = amend(
                approval_id,
                plan_hash=sent.texts.get("plan_hash", ""),
                arguments=given,
                justification=sent.texts.get("justification", ""),
                by=by,
            )
        except DurableAgentsError as error:
            if isinstance(error, InvalidInput):
                form.mark(error, within=WITHIN)
            fresh = self.opened(request, approval_id)
            return self._show(request, fresh, form, wanted=wanted, typed=sent.kept, error=error)
        if done.why_open:
            messages.warning(request, f"Changed, but not approved yet: {done.why_open}", extra_tags="hold")
        else:
            messages.success(request, f"Approved with your changes. {goes_on(opened)}", extra_tags="ok")
        place = Listing.of(request.GET, request.user.pk)
        return redirect(f"{reverse('approval', args=[done.approval.id])}{place.here}")

    def _show(
        self,
        request: HttpRequest,
        opened: ApprovalDetail,
        form: SchemaForm,
        *,
        wanted: Wanted | None = None,
        typed: Mapping[str, str] | None = None,
        error: DurableAgentsError | None = None,
    ) -> HttpResponse:
        context = {
            "b": opened,
            "here_link": Listing.of(request.GET, request.user.pk).here,
            "form": form,
            "error": error,
            "justification": (typed or {}).get("justification", ""),
            "changes": _compared(wanted) if wanted else [],
            "looked": _digest(wanted) if wanted else "",
            "may_change": opened.is_open and opened.is_editable,
        }
        return self.show(request, context, status=error.status if error else 200)


def _form(opened: ApprovalDetail, data: Mapping[str, Any] | None = None) -> SchemaForm:
    """Return the form of the editable fields. A field that has a value may not be emptied, unless null is allowed."""
    schema = {**editable_in(opened.plan), "type": "object"}
    return SchemaForm(schema, data=data, document=_now(opened), extra_fields=_EXTRA_FIELDS, keeps=True)


def _now(opened: ApprovalDetail) -> dict[str, Any]:
    arguments = opened.plan.get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def _digest(wanted: Wanted) -> str:
    return hasher()({"looked": wanted.arguments})


def _compared(wanted: Wanted) -> list[Change]:
    found = compare(leaves(wanted.arguments), leaves(wanted.plan["arguments"]))
    return [change for change in found if change.what != "same"]


class Plan(Page):
    """Show the bytes that a decision binds, with evidence."""

    section = "inbox"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, approval_id: UUID) -> HttpResponseBase:
        approval = read_one(approval_id, roles(request.user))

        def read() -> Any:
            if (plan := approval.planned()) is None:
                raise RecordDamaged(approval.run_id, "a plan that can be read")
            return plan

        return json_file(request, f"{approval_id}-plan.json", read)
