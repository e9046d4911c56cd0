"""Pages of retention rules and holds, of archived runs, and of one archived run read from its archive."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.queues.who import ADMIN, is_admin
from durableagents.contrib.retention import holds, listed, places, policies, register, report, restoring
from durableagents.contrib.retention.holds import LegalHoldBody
from ledger.actors import Actor
from ledger.erasure import erasure_of
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_forms import Refused
from ledger.web.roles import AUDITOR, OPERATOR, actor, roles
from runs import features

_MAX_SHOWN = 100
_EFFECTS = ("pure", "idempotent_with_key", "unsafe_on_replay")
_STATES = ("completed", "failed", "cancelled")


class RetentionPage(FormPage):
    """Policies, legal holds and archived runs."""

    template = "retention/retention.html"
    section = "retention"
    needed: ClassVar[tuple[str, ...]] = ("Operator", "Auditor", "Administrator")

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader may open the page. The services check each act."""
        user: Any = self.request.user
        return bool(held & {OPERATOR, AUDITOR}) or bool(user.is_superuser or is_admin(user))

    def tell(self, request: HttpRequest, refused: Refused | None = None, **address: Any) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        fields = {
            "policies": policies.in_force(),
            "holds": [(row, holds.covered(row, holds.MAX_COUNTED_IN_LISTS)) for row in holds.in_force()],
            "counted": holds.MAX_COUNTED_IN_LISTS,
            "report": report.report(report.ON_PAGES),
            "archived": [(row, register.deleted_at(row)) for row in listed.archived(limit=_MAX_SHOWN)],
            "is_set": places.is_set(),
            "may_set": _is_superuser(request),
            "effects": _EFFECTS,
            "states": _STATES,
        }
        return self.show_forms(request, fields, refused)


class RetentionAct(Act, RetentionPage):
    """Base class of administrators' acts. The service checks the account."""

    needed = ("Administrator",)
    page = "retention"

    @property
    def by(self) -> Actor:
        return actor(self.request, ADMIN)

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader is an administrator.

        Other people who open the form's URL are redirected to the page.
        """
        return self.request.method != "POST" or _is_superuser(self.request)


class NewHold(RetentionAct):
    act, done, body = "hold", "Legal hold placed.", LegalHoldBody
    service = staticmethod(holds.place)

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Show how many runs the hold keeps, because a hold that keeps none may have a wrong field."""
        found = holds.covered(result)
        if found.live or found.archived:
            messages.success(request, f"{self.done} {found}.", extra_tags="ok")
        else:
            messages.warning(request, f"{self.done} {found}.", extra_tags="hold")
        return redirect(self.page)


class ArchivedRunPage(FormPage):
    """One archived run, read from its archive."""

    template = "retention/archived.html"
    section = "runs"

    def tell(self, request: HttpRequest, archived_id: UUID, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        row = register.find(archived_id)
        after = request.GET.get("after", "")
        start = int(after) if after.isdecimal() and len(after) < 19 else 0
        problem, found = "", []
        try:
            found = listed.lines(row, after=start, limit=_MAX_SHOWN + 1)
        except (listed.ArchiveUnreadable, places.StorageUnavailable) as error:
            problem = error.detail
        fields = {
            "row": row,
            "deleted_at": register.deleted_at(row),
            "erasure": erasure_of(row.run_id),
            "digest": bytes(row.digest).hex(),
            "chain": bytes(row.chain).hex(),
            "lines": found[:_MAX_SHOWN],
            "next": found[_MAX_SHOWN - 1].seq if len(found) > _MAX_SHOWN else None,
            "problem": problem,
            "may_restore": OPERATOR in roles(request.user) or _is_superuser(request),
            "links": [] if register.deleted_at(row) else features.parts_of_all(lambda each: each.archived_run_links),
        }
        return self.show_forms(request, fields, refused)


class Restorations(Act, ArchivedRunPage):
    """Restore an archived run."""

    needed = ("Operator", "Administrator")
    act, done, page = "restore", "Run restored. The run's retention period begins again.", "run"
    service = staticmethod(restoring.restore)

    @property
    def by(self) -> Actor:
        return actor(self.request, OPERATOR if OPERATOR in roles(self.request.user) else ADMIN)

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader is an operator or an administrator. Other people are redirected to the page."""
        return self.request.method != "POST" or OPERATOR in held or _is_superuser(self.request)

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Show the restored run."""
        messages.success(request, self.done, extra_tags="ok")
        return redirect(self.page, run_id=address["archived_id"])


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))
