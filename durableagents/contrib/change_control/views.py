"""Pages of proposed rule changes: read, agree, refuse, withdraw, and set which rules need two people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.queues.who import ADMIN, is_admin
from durableagents.contrib.change_control import services, setting
from durableagents.contrib.change_control.models import RuleChange
from durableagents.contrib.change_control.queries import change_row, guards_row, list_changes, policy_trial
from durableagents.contrib.change_control.setting import GuardsBody
from ledger.actors import Actor
from ledger.change_control import acts
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, OPERATOR, actor, is_role
from runs.services.bodies import SteerBody


def may_read(user: Any, held: frozenset[str]) -> bool:
    """Return whether someone may read the proposals: operators, auditors and administrators."""
    return bool(held & {OPERATOR, AUDITOR}) or bool(user.is_active and (user.is_superuser or is_admin(user)))


class RulesPage(Page):
    section = "changes"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they may read; the services check each act."""
        return may_read(self.request.user, held)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the roles that are allowed."""
        needed = ["Operator", "Auditor", "Administrator"]
        return self.show(request, {"needed": needed}, template="errors/403.html", status=403)


class ChangesPage(RulesPage):
    """The list of proposed changes."""

    template = "change_control/changes.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(
        self, request: HttpRequest, refused: Refused | None = None, ticked: Sequence[str] | None = None
    ) -> HttpResponse:
        """Show the page, with a refused form and the families `ticked` in it."""
        shown = {
            "changes": list_changes(request.user),
            "guards": guards_row(ticked),
            "may_set": bool(request.user.is_superuser),
            "refused": refused,
        }
        return self.show(request, shown, status=refused.error.status if refused else 200)


class ChangePage(RulesPage):
    """One change in full."""

    template = "change_control/change.html"

    def get(self, request: HttpRequest, change_id: UUID) -> HttpResponse:
        return self.tell(request, change_id)

    def tell(self, request: HttpRequest, change_id: UUID, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        row = services.find(change_id)
        shown = {"c": change_row(row, request.user), "tries": policy_trial(row), "refused": refused}
        return self.show(request, shown, status=refused.error.status if refused else 200)


class _Act(ChangePage):
    http_method_names = ["post"]
    act: Callable[..., RuleChange]
    words = ""

    def post(self, request: HttpRequest, change_id: UUID) -> HttpResponse:
        form = Sent(request)
        row = services.find(change_id)
        try:
            type(self).act(change_id, by=_acting(request, row), justification=form.read(SteerBody).justification)
        except DurableAgentsError as error:
            return self.tell(request, change_id, Refused(type(self).__name__, error, form.kept))
        messages.success(request, self.words, extra_tags="ok")
        return redirect("rule_change", change_id=change_id)


class Agreements(_Act):
    """Apply a change."""

    act = staticmethod(services.apply)
    words = "Change applied."


class Refusals(_Act):
    """Refuse a change."""

    act = staticmethod(services.refuse)
    words = "Change rejected."


class Withdrawals(_Act):
    """Withdraw a change."""

    act = staticmethod(services.withdraw)
    words = "Change withdrawn."


class Guards(ChangesPage):
    """Set which rules need two people."""

    http_method_names = ["post"]

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they are an administrator. GET passes, for its own answer."""
        return self.request.method != "POST" or bool(self.request.user.is_superuser)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        families = request.POST.getlist("families")
        try:
            body = GuardsBody(families=families[:20], justification=form.texts.get("justification", ""))
            setting.require(body, by=actor(request, ADMIN))
        except DurableAgentsError as error:
            return self.tell(request, Refused("guards", error, form.kept), families)
        messages.success(request, "Saved. These changes now need two people.", extra_tags="ok")
        return redirect("rule_changes")


def _acting(request: HttpRequest, row: RuleChange) -> Actor:
    known = acts.get(row.act)
    return actor(request, known.needs if known is not None and is_role(known.needs) else ADMIN)
