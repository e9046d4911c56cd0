"""Pages: retention rules and holds, archived runs, and one archived run read from its archive."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.queues.who import ADMIN, is_admin
from durableagents.contrib.retention import holds, listed, places, policies, register, report, restoring
from durableagents.contrib.retention.holds import LegalHoldBody
from durableagents.contrib.retention.models import Hold
from durableagents.contrib.retention.policies import RetentionPolicyBody
from ledger.erasure import erasure_of
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, OPERATOR, actor, roles
from runs import features
from runs.services.bodies import SteerBody

_SHOWN = 100
_EFFECTS = ("pure", "idempotent_with_key", "unsafe_on_replay")
_STATES = ("completed", "failed", "cancelled")


class RetentionPage(Page):
    """Policies, legal holds and archived runs."""

    template = "retention/retention.html"
    section = "retention"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they may read; the services check each act."""
        user: Any = self.request.user
        return bool(held & {OPERATOR, AUDITOR}) or bool(user.is_superuser or is_admin(user))

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the roles that are allowed."""
        needed = ["Operator", "Auditor", "Administrator"]
        return self.show(request, {"needed": needed}, template="errors/403.html", status=403)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        shown = {
            "policies": policies.in_force(),
            "holds": [(row, holds.covered(row, holds.MAX_COUNTED_IN_LISTS)) for row in holds.in_force()],
            "counted": holds.MAX_COUNTED_IN_LISTS,
            "report": report.report(report.ON_PAGES),
            "archived": [(row, register.deleted_at(row)) for row in listed.archived(limit=_SHOWN)],
            "is_set": places.is_set(),
            "may_set": bool(getattr(request.user, "is_superuser", False)),
            "effects": _EFFECTS,
            "states": _STATES,
            "refused": refused,
            "typed": refused.typed if refused else {},
        }
        return self.show(request, shown, status=refused.error.status if refused else 200)


class _Act(RetentionPage):
    """An administrator's act; the service checks the account."""

    http_method_names = ["post"]
    act = ""
    done = ""

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they are an administrator; others who open the form's address are led to the page."""
        return self.request.method != "POST" or bool(getattr(self.request.user, "is_superuser", False))

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the roles that are allowed."""
        return self.show(request, {"needed": ["Administrator"]}, template="errors/403.html", status=403)

    def post(self, request: HttpRequest, **named: int) -> HttpResponse:
        form = Sent(request)
        try:
            self.perform(form, actor(request, ADMIN), **named)
        except DurableAgentsError as error:
            if hasattr(error, "change"):
                raise  # a second person has to agree
            return self.tell(request, Refused(self.act, error, form.kept))
        self.confirm(request)
        return redirect("retention")

    def confirm(self, request: HttpRequest) -> None:
        """Say on the next page what was done."""
        messages.success(request, self.done, extra_tags="ok")

    def perform(self, form: Sent, by: Any, **named: int) -> None:
        raise NotImplementedError


class NewPolicy(_Act):
    act, done = "policy", "Policy in force."

    def perform(self, form: Sent, by: Any, **named: int) -> None:
        policies.create(form.read(RetentionPolicyBody, archive_days=_number, delete_days=_number), by=by)


class PolicyEnds(_Act):
    act, done = "end", "Policy ended."

    def perform(self, form: Sent, by: Any, **named: int) -> None:
        policies.end(named["policy_id"], by=by, justification=form.read(SteerBody).justification)


class NewHold(_Act):
    act, done = "hold", "Legal hold placed."
    row: Hold

    def perform(self, form: Sent, by: Any, **named: int) -> None:
        self.row = holds.place(form.read(LegalHoldBody), by=by)

    def confirm(self, request: HttpRequest) -> None:
        """Say also how many runs the hold keeps: none may be a mistake in a field."""
        found = holds.covered(self.row)
        if found.live or found.archived:
            messages.success(request, f"{self.done} {found}.", extra_tags="ok")
        else:
            messages.warning(request, f"{self.done} {found}.", extra_tags="hold")


class HoldEnds(_Act):
    act, done = "lift", "Legal hold lifted."

    def perform(self, form: Sent, by: Any, **named: int) -> None:
        holds.lift(named["hold_id"], by=by, justification=form.read(SteerBody).justification)


class ArchivedRunPage(Page):
    """One archived run, read from its archive."""

    template = "retention/archived.html"
    section = "runs"

    def get(self, request: HttpRequest, archived_id: UUID) -> HttpResponse:
        return self.tell(request, archived_id)

    def tell(self, request: HttpRequest, archived_id: UUID, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        row = register.find(archived_id)
        after = request.GET.get("after", "")
        start = int(after) if after.isdecimal() and len(after) < 19 else 0
        problem, found = "", []
        try:
            found = listed.lines(row, after=start, limit=_SHOWN + 1)
        except (listed.ArchiveUnreadable, places.StorageUnavailable) as error:
            problem = error.detail
        shown = {
            "row": row,
            "deleted_at": register.deleted_at(row),
            "erasure": erasure_of(row.run_id),
            "digest": bytes(row.digest).hex(),
            "chain": bytes(row.chain).hex(),
            "lines": found[:_SHOWN],
            "next": found[_SHOWN - 1].seq if len(found) > _SHOWN else None,
            "problem": problem,
            "may_restore": OPERATOR in roles(request.user) or bool(getattr(request.user, "is_superuser", False)),
            "links": [] if register.deleted_at(row) else features.parts_of_all(lambda each: each.archived_run_links),
            "refused": refused,
        }
        return self.show(request, shown, status=refused.error.status if refused else 200)


class Restorations(ArchivedRunPage):
    """Bring an archived run back."""

    http_method_names = ["post"]

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they are an operator or an administrator; others are led to the page."""
        return (
            self.request.method != "POST" or OPERATOR in held or bool(getattr(self.request.user, "is_superuser", False))
        )

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the roles that are allowed."""
        needed = ["Operator", "Administrator"]
        return self.show(request, {"needed": needed}, template="errors/403.html", status=403)

    def post(self, request: HttpRequest, archived_id: UUID) -> HttpResponse:
        form = Sent(request)
        by = actor(request, OPERATOR if OPERATOR in roles(request.user) else ADMIN)
        try:
            restoring.restore(archived_id, by=by, justification=form.read(SteerBody).justification)
        except DurableAgentsError as error:
            return self.tell(request, archived_id, Refused("restore", error, form.kept))
        messages.success(request, "Run restored. Its retention period begins again.", extra_tags="ok")
        return redirect("run", run_id=archived_id)


def _number(text: str) -> Any:
    """Return a whole number; other text unchanged, for the body's rules to refuse."""
    return int(text) if text.isdecimal() and len(text) < 12 else text
