"""Pages of proposed rule changes: read, apply, refuse or withdraw them, and set which rules need two people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.queues.who import ADMIN, is_admin
from durableagents.contrib.change_control import services, setting
from durableagents.contrib.change_control.queries import change_row, guards_row, list_changes, trial_of
from durableagents.contrib.change_control.setting import GuardsBody
from ledger.actors import Actor
from ledger.change_control import acts
from ledger.errors import DurableAgentsError
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, OPERATOR, actor, is_role


def may_read(user: Any, held: frozenset[str]) -> bool:
    """Return whether the user may read proposals: operators, auditors and administrators may."""
    return bool(held & {OPERATOR, AUDITOR}) or bool(user.is_active and (user.is_superuser or is_admin(user)))


class RulesPage(FormPage):
    section = "changes"
    needed: ClassVar[tuple[str, ...]] = ("Operator", "Auditor", "Administrator")

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the user may read. The services check each act."""
        return may_read(self.request.user, held)


class ChangesPage(RulesPage):
    """The list of proposed changes."""

    template = "change_control/changes.html"

    def tell(
        self, request: HttpRequest, refused: Refused | None = None, ticked: Sequence[str] | None = None
    ) -> HttpResponse:
        """Show the page, with the form that was refused and the families `ticked` in it."""
        fields = {
            "changes": list_changes(request.user),
            "guards": guards_row(ticked),
            "may_set": bool(request.user.is_superuser),
        }
        return self.show_forms(request, fields, refused)


class ChangePage(RulesPage):
    """One change in full."""

    template = "change_control/change.html"

    def tell(self, request: HttpRequest, change_id: UUID, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the form that was refused."""
        row = services.find(change_id)
        return self.show_forms(request, {"c": change_row(row, request.user), "trial": trial_of(row)}, refused)


class ChangeAct(Act, ChangePage):
    """Apply, refuse or withdraw a change."""

    page, has_own_page = "rule_change", True

    @property
    def by(self) -> Actor:
        known = acts.get(services.find(self.kwargs["change_id"]).act)
        return actor(self.request, known.needs if known is not None and is_role(known.needs) else ADMIN)


class Guards(ChangesPage):
    """Set which rules need two people."""

    http_method_names = ["post"]

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the user is an administrator. GET requests pass, because they change nothing."""
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
