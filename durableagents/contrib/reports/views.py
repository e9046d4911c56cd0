"""Pages of reports: the list, a report on screen, in print and as a file, and the forms for findings."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from durableagents.contrib.reports import answers, catalogue, findings
from durableagents.contrib.reports.findings import ClosureBody, FindingBody
from durableagents.contrib.reports.models import Finding, StoredReport
from durableagents.contrib.reports.period import DEFAULT_DAYS, PeriodProblem
from durableagents.contrib.reports.queries import run_trail, violations
from durableagents.contrib.reports.reports import ReportKind
from durableagents.contrib.reports.schedule import is_as_stored
from durableagents.contrib.reports.tables import Report
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, EVERY, OPERATOR, name_of, role_in, roles

_BOTH = frozenset({OPERATOR, AUDITOR})
STORED_SHOWN = 60
OPEN_SHOWN = 50


class ReportsPage(Page):
    """All reports that the reader may read, and the stored ones."""

    template = "reports/list.html"
    section = "audit"

    def get(self, request: HttpRequest) -> HttpResponse:
        held = roles(request.user)
        is_reader = role_in(_BOTH, held) is not None
        stored = StoredReport.objects.defer("content").order_by("-ends_at", "name")[:STORED_SHOWN] if is_reader else []
        context = {
            "kinds": catalogue.readable_by(held),
            "stored": [(each, _title(each.name)) for each in stored],
            "may_read_stored": is_reader,
            "days": DEFAULT_DAYS,
        }
        return self.show(request, context)


class ReportPage(Page):
    """One report, made for this request: on screen, or as a file with `format=csv` or `json`."""

    template = "reports/report.html"
    section = "audit"

    def get(self, request: HttpRequest, report: str) -> HttpResponse:
        return self.tell(request, catalogue.find(report), request.GET.get("run", ""))

    def tell(
        self, request: HttpRequest, kind: ReportKind, run: str = "", refused: Refused | None = None
    ) -> HttpResponse:
        held = roles(request.user)
        if role_in(kind.roles, held) is None:
            needed = [name_of(role) for role in EVERY if role in kind.roles]
            return self.show(request, {"needed": needed}, template="errors/403.html", status=403)
        start, end = (request.GET.get(name, "").strip() for name in ("from", "to"))
        made, problem, status = None, "", refused.error.status if refused else 200
        try:
            if kind.of_run and not run and not request.GET:
                problem = ""  # shows the form, because no run was chosen yet
            else:
                made = catalogue.make(kind, start, end, run.strip())
        except (PeriodProblem, DurableAgentsError) as error:
            problem = error.detail if isinstance(error, DurableAgentsError) else str(error)
            status = error.status if isinstance(error, DurableAgentsError) else 400
        form = request.GET.get("format", "")
        if made is not None and form in catalogue.FORMATS:
            return answers.csv_file(made) if form == "csv" else answers.json_file(made)
        context = {
            "kind": kind,
            "title": kind.title,
            "report": made,
            "problem": problem.replace("`from`", "From").replace("`to`", "To").replace("`run`", "Run"),
            "from": start or (f"{made.start:%Y-%m-%d}" if made and made.start else ""),
            "to": end or "",
            "run": run,
            "file": _file(request),
            **self.finding_forms(kind, held, refused),
        }
        return self.show(request, context, status=status)

    def finding_forms(self, kind: ReportKind, held: frozenset[str], refused: Refused | None) -> dict[str, Any]:
        """Return the values for the forms about findings; empty for other reports."""
        if kind is not violations.REPORT or role_in(_BOTH, held) is None:
            return {}
        rows = Finding.objects.filter(closure__isnull=True).order_by("-id")[: OPEN_SHOWN + 1]
        return {"open": rows[:OPEN_SHOWN], "are_more": len(rows) > OPEN_SHOWN, "may_find": True, "refused": refused}


class RunReportPage(ReportPage):
    """The audit trail of one run."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:  # type: ignore[override]
        return self.tell(request, run_trail.REPORT, str(run_id))


class StoredPage(Page):
    """A stored report."""

    allowed: ClassVar[frozenset[str]] = _BOTH
    template = "reports/report.html"
    section = "audit"

    def get(self, request: HttpRequest, stored_id: int) -> HttpResponse:
        row = StoredReport.objects.filter(pk=stored_id, problem="").first() if stored_id < 2**63 else None
        if row is None:
            raise NotFound("stored report", stored_id)
        is_intact = is_as_stored(row)
        if request.GET.get("format") == "json" and is_intact:
            return answers.stored_file(row)
        report = Report.from_json(json.loads(row.content)) if is_intact else None
        if report is not None and request.GET.get("format") == "csv":
            return answers.csv_file(report)
        known = catalogue.REPORTS.get(row.name)
        problem = "" if is_intact else "The content no longer matches its digest: it was changed in the database."
        context = {
            "kind": known,
            "title": _title(row.name),
            "report": report,
            "stored": row,
            "problem": problem,
            "file": f"{request.path}?",
        }
        return self.show(request, context)


class NewFinding(ReportPage):
    """Report a duplicate effect."""

    allowed: ClassVar[frozenset[str]] = _BOTH
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(FindingBody)
            found = findings.report(body, by=self.acting(request))
        except DurableAgentsError as error:
            return self.tell(request, violations.REPORT, refused=Refused("report", error, form.kept))
        messages.success(request, f"Finding {found.pk} is open.", extra_tags="ok")
        return redirect("report", violations.REPORT.name)

    def form_page(self, path: str, **kwargs: Any) -> str:
        return reverse("report", args=[violations.REPORT.name])


class NewClosure(NewFinding):
    """Close a finding with its root cause."""

    def post(self, request: HttpRequest, finding_id: int) -> HttpResponse:  # type: ignore[override]
        form = Sent(request)
        try:
            findings.close(finding_id, form.read(ClosureBody), by=self.acting(request))
        except DurableAgentsError as error:
            refused = Refused(f"close {finding_id}", error, form.kept)
            return self.tell(request, violations.REPORT, refused=refused)
        messages.success(request, f"Finding {finding_id} is closed.", extra_tags="ok")
        return redirect("report", violations.REPORT.name)


def _file(request: HttpRequest) -> str:
    """Return the URL of this report as a file; callers append the format."""
    query = request.GET.copy()
    for name in ("format", "fragment", "since"):
        query.pop(name, None)
    return f"{request.path}?{query.urlencode()}{'&' if query else ''}"


def _title(name: str) -> str:
    return catalogue.REPORTS[name].title if name in catalogue.REPORTS else name
