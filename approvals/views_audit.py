"""The audit page: what people did, from every table that records it."""

from __future__ import annotations

from typing import ClassVar

from django.http import HttpRequest, HttpResponse

from approvals.genuine import are_any_out_of_time
from approvals.policy import QUEUES
from approvals.trail import ACTS, DECISIONS, OVERRIDES, PAGE, Filters, acts
from ledger.access import READS_AUDIT, roles
from ledger.pages import Page
from ledger.views import VerifyAllPage


class AuditPage(Page):
    """Decisions, overrides, other acts and what was done to accounts, newest first."""

    allowed: ClassVar[frozenset[str]] = frozenset(READS_AUDIT)
    template = "audit/list.html"
    section = "audit"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = Filters.of(request.GET)
        found = acts(filters, PAGE + 1)
        more = filters.link(before=found[PAGE - 1].place) if len(found) > PAGE else ""
        tabs = [(action, filters.link(action=action)) for action in ("", *DECISIONS, *OVERRIDES, *ACTS, "accounts")]
        return self.show(
            request,
            {
                "acts": found[:PAGE],
                "more": more,
                "filters": filters,
                "tabs": tabs,
                "queues": QUEUES,
                "are_any_out_of_time": are_any_out_of_time(),
                "may_verify": bool(roles(request.user) & VerifyAllPage.allowed),
            },
        )
