"""The audit page: what people did, from every table that records it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import QueryDict

from approvals.genuine import out_of_time
from approvals.trail import ACTS, DECISIONS, OVERRIDES, PAGE, Filters, acts
from ledger.verification.pages import VerifyAllPage
from ledger.web.page_base import SharedPage
from ledger.web.roles import READS_AUDIT, role_in
from ledger.web.tally import Tally
from runs.journal import wait_hooks


class AuditPage(SharedPage):
    """Decisions, overrides, other acts and what was done to accounts, newest first."""

    allowed: ClassVar[frozenset[str]] = frozenset(READS_AUDIT)
    template = "audit/list.html"
    section = "audit"

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        filters = Filters.of(query)
        rows = acts(filters, PAGE + 1)
        more = filters.link(before=rows[PAGE - 1].place) if len(rows) > PAGE else ""
        tabs = [(action, filters.link(action=action)) for action in ("", *DECISIONS, *OVERRIDES, *ACTS, "accounts")]
        return {
            "acts": rows[:PAGE],
            "more": more,
            "filters": filters,
            "tabs": tabs,
            "queues": sorted(wait_hooks.queues),
            "are_any_out_of_time": tally.read({"out of time": out_of_time()})["out of time"] > 0,
            "may_verify": role_in(VerifyAllPage.allowed, held) is not None,
        }
