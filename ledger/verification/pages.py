"""Pages that verify the record of one run, and of all."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.models import VerificationJob
from ledger.verification import jobs
from ledger.verification.runs import verify
from ledger.web.page_base import Page
from ledger.web.roles import READS_AUDIT

MAX_SHOWN = 50


class VerificationPage(Page):
    """Verify a run's whole record from the stored rows."""

    template = "audit/verification.html"
    section = "audit"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        return self.show(request, {"v": verify(run_id), "run_id": run_id})


class VerifyAllPage(Page):
    """Show the last verification of every run and of the records without a run, and a form to request one."""

    allowed = frozenset(READS_AUDIT)
    template = "audit/verify_all.html"
    section = "audit"

    def get(self, request: HttpRequest) -> HttpResponse:
        some = list(VerificationJob.objects.order_by("-id")[:11])
        job, earlier = (some[0], some[1:]) if some else (None, [])
        return self.show(
            request,
            {
                "job": job,
                "findings": [(_place(where), problem) for where, problem in job.findings[:MAX_SHOWN]] if job else [],
                "earlier": earlier,
                "may_verify_changes": any(each.finished_at for each in some),
                "most": MAX_SHOWN,
            },
        )

    def post(self, request: HttpRequest) -> HttpResponse:
        jobs.ask(self.acting(request), only_changed=request.POST.get("which") == "changed")
        return redirect("verify_all")


def _place(where: str) -> dict[str, Any]:
    """Return the location of a problem: a run's id or the name of a list."""
    try:
        return {"run": UUID(where)}
    except ValueError:
        return {"list": where}
