"""The audit page: what people did, from every table that records it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from approvals.trail import DECISIONS, OVERRIDES, Filters, acts
from ledger.access import roles
from ledger.pages import Page
from ledger.views import VerifyAllPage


class AuditPage(Page):
    """Override records and decisions, newest first."""

    template = "audit/list.html"
    section = "audit"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = Filters.of(request.GET)
        found, more = acts(filters)
        return self.show(request, {"acts": found, "more": more, "filters": filters, "actions": [*OVERRIDES, *DECISIONS], "may_verify": bool(roles(request.user) & VerifyAllPage.allowed)})
