"""Pages that verify the record of one run, and of all."""

from __future__ import annotations

import time
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from ledger.verification.registers import verify_registers
from ledger.verification.runs import Verification, verify, verify_all
from ledger.web.page_base import Page
from ledger.web.roles import READS_AUDIT

# Limits of one page: seconds of verification, and runs with problems listed. A link continues.
PAGE_SECONDS = 3.0
MOST_SHOWN = 50


class VerificationPage(Page):
    """Verify a run's whole record from the stored rows."""

    template = "audit/verification.html"
    section = "audit"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        return self.show(request, {"v": verify(run_id), "run_id": run_id})


class VerifyAllPage(Page):
    """Verify records without a run and every run, within the page's time, with a link to continue."""

    allowed = frozenset(READS_AUDIT)
    template = "audit/verify_all.html"
    section = "audit"

    def get(self, request: HttpRequest) -> HttpResponse:
        until, after = time.monotonic() + PAGE_SECONDS, _cursor(request)
        runs, events, next_after = 0, 0, None
        bad: list[Verification] = []
        for each in verify_all(after):
            runs, events = runs + 1, events + each.events
            if each.problems:
                bad.append(each)
            if time.monotonic() > until or len(bad) >= MOST_SHOWN:
                next_after = each.run_id
                break
        lists = verify_registers() if after is None else []
        return self.show(
            request,
            {
                "runs": runs,
                "events": events,
                "bad": bad,
                "lists": lists,
                "after": after,
                "next_after": next_after,
                "most": MOST_SHOWN,
            },
        )


def _cursor(request: HttpRequest) -> UUID | None:
    """Return the cursor; None (the beginning) if invalid."""
    try:
        return UUID(request.GET.get("after", ""))
    except ValueError:
        return None
