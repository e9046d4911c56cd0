"""Reports, stored reports and findings over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.reports import answers, catalogue, findings
from durableagents.contrib.reports.findings import ClosureBody, FindingBody
from durableagents.contrib.reports.models import Finding, StoredReport
from durableagents.contrib.reports.period import PeriodProblem
from durableagents.contrib.reports.reports import ReportKind
from durableagents.contrib.reports.schedule import is_as_stored
from ledger.errors import Forbidden, NotFound
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import Rows
from ledger.web.roles import AUDITOR, OPERATOR, role_in, roles
from ledger.web.shapes import Page, Shape

_BOTH = (OPERATOR, AUDITOR)


class DefinitionRow(Shape):
    """The definition of a report in plain English."""

    counts: str = Field(description="What counts.")
    leaves_out: str = Field(description="Data that is left out.")
    period: str = Field(description="The time by which something falls into the period.")


class ReportRow(Shape):
    """A report that can be made."""

    name: str = Field(description="Name of the report.")
    title: str = Field(description="Title of the report.")
    about: str = Field(description="Content of the report in one sentence.")
    definition: DefinitionRow = Field(description="Definition of the report.")
    queries: dict[str, str] = Field(description="SQL statements of the report, by name.")
    needs_run: bool = Field(description="Whether it is about one run instead of a period.")


class ReportPage(Page):
    results: Rows[ReportRow]


class FigureRow(Shape):
    name: str = Field(description="Name of the figure.")
    label: str = Field(description="Its title.")
    kind: str = Field(description="text, run, time, number, seconds, usd, amount, percent or bytes.")
    value: str | int | bool | None = Field(description="Value of the figure; decimals and times are strings.")


class ColumnRow(Shape):
    name: str = Field(description="Name of the column.")
    label: str = Field(description="Its title.")
    kind: str = Field(description="text, run, time, number, seconds, usd, amount, percent or bytes.")


class TableRow(Shape):
    name: str = Field(description="Name of the table.")
    title: str = Field(description="Its title.")
    total: int = Field(description="Total number of rows; `rows` has at most 2000 of them.")
    columns: list[ColumnRow] = Field(description="Its columns.")
    rows: list[list[str | int | bool | None]] = Field(description="Rows of the table; decimals and times are strings.")


class ReportContent(Shape):
    """A finished report."""

    report: str = Field(description="Name of the report.")
    title: str = Field(description="Title of the report.")
    made_at: datetime = Field(description="Time when the report was made.")
    from_: datetime | None = Field(
        alias="from", description="Beginning of its period; null for a report about one run."
    )
    to: datetime | None = Field(description="End of its period, exclusive; null for a report about one run.")
    subject: str = Field(description="Run that it is about; empty for a report about a period.")
    notes: list[str] = Field(description="Limitations, such as rows left out.")
    figures: list[FigureRow] = Field(description="Its figures.")
    tables: list[TableRow] = Field(description="Its tables.")


class StoredRow(Shape):
    """A report made by schedule."""

    id: int = Field(description="Id of the stored report.")
    name: str = Field(description="Name of the report.")
    schedule: str = Field(description="daily, weekly or monthly.")
    starts_at: datetime = Field(description="Beginning of its period.")
    ends_at: datetime = Field(description="End of its period, exclusive.")
    made_at: datetime = Field(description="Time when the report was made.")
    sha256: str = Field(description="SHA-256 of its JSON, as `GET /api/v1/stored-reports/{stored_id}` returns it.")
    problem: str = Field(description="Why it could not be made; empty if it was made.")


class StoredReportPage(Page):
    results: Rows[StoredRow]


class FindingRow(Shape):
    """A recorded fact that suggests a duplicate effect."""

    id: int = Field(description="Id of the finding.")
    kind: str = Field(description="Kind of fact, such as `contradicting_receipt`.")
    run_id: UUID | None = Field(description="Run of the call; null if the fact is not about one run.")
    seq: int | None = Field(description="Journal event of the fact; null if there is none.")
    slot: str = Field(description="Slot of the call; empty: not known.")
    attempt: int | None = Field(description="Attempt of the call, 0 for the first; null: not known.")
    tool: str = Field(description="Tool of the call; empty: not known.")
    what: str = Field(description="The recorded facts.")
    fact_at: datetime = Field(description="Time when the fact was recorded.")
    found_at: datetime = Field(description="Time when it was found.")
    by: str = Field(description="Person who reported it; empty: the detector.")
    state: str = Field(description="open or closed.")
    verdict: str = Field(description="duplicate or no_duplicate; empty: open.")
    root_cause: str = Field(description="Root cause; empty: open.")
    closed_by: str = Field(description="Person who closed it; empty while it is open.")
    closed_at: datetime | None = Field(description="Time when it was closed; null while it is open.")


class FindingPage(Page):
    results: Rows[FindingRow]


_PARAMETERS = [
    OpenApiParameter("from", str, "query", description="First day or time of the period; default: 30 days before."),
    OpenApiParameter("to", str, "query", description="Last day (inclusive) or end of the period; default: now."),
    OpenApiParameter("run", UUID, "query", description="Run that the report is about, if it is about one run."),
    OpenApiParameter("format", str, "query", description="json (default) or csv."),
    OpenApiParameter(
        "table",
        str,
        "query",
        description="For CSV: include only this table; default: all tables, each below its title.",
    ),
]


class Reports(ApiView):
    """The reports that you may read, with their definitions and queries."""

    roles = READ

    @described("List reports", ReportPage, query=("limit",))
    def get(self, request: Request) -> Response:
        query = Query(request)
        kinds = catalogue.readable_by(roles(request.user))
        return query.stretch([_report_row(kind) for kind in kinds[: query.limit]], None)


class OneReport(ApiView):
    """A report made for this request; with `format=csv`, as CSV."""

    roles = READ

    @described("Make a report", ReportContent, query=_PARAMETERS, kinds=("application/json", "text/csv"))
    def get(self, request: Request, report: str) -> Response | HttpResponse:
        kind = catalogue.find(report)
        if role_in(kind.roles, roles(request.user)) is None:
            raise Forbidden(f"The report {kind.name} is for {' and '.join(kind.roles)}.")
        query = Query(request, "from", "to", "run", "format", "table")
        form = query.choice("format", catalogue.FORMATS) or "json"
        table = query.text("table") or ""
        if table and form != "csv":
            raise ParseError("Query parameter 'table' is only for CSV: add format=csv, or leave it out.")
        try:
            made = catalogue.make(kind, query.text("from") or "", query.text("to") or "", query.text("run") or "")
        except PeriodProblem as problem:
            raise ParseError(str(problem)) from None
        if form == "json":
            return Response(made.to_json())
        known = ["figures", *(each.name for each in made.tables)]
        if table and table not in known:
            raise ParseError(f"Unknown table {table[:60]!r}. Known: {', '.join(known)}.")
        return answers.csv_file(made, table)


class StoredReports(ApiView):
    """Reports made by schedule, newest first."""

    roles = {"GET": _BOTH}

    @described("List stored reports", StoredReportPage, query=("before", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "before")
        rows = StoredReport.objects.filter(pk__lt=_before(query)).defer("content").order_by("-pk")[: query.limit + 1]
        return query.page(list(rows), lambda row: {"before": str(row.pk)}, StoredRow.of)


class OneStoredReport(ApiView):
    """A stored report. The bytes have the SHA-256 shown in the list."""

    roles = {"GET": _BOTH}

    @described("Get a stored report", ReportContent)
    def get(self, request: Request, stored_id: int) -> HttpResponse:
        Query(request)
        content = stored(stored_id).content
        return HttpResponse(content.encode(), content_type="application/json")


class Findings(ApiView):
    """Facts that suggest that an effect happened twice, newest first."""

    roles = {"GET": _BOTH, "POST": _BOTH}

    @described("List findings of duplicate effects", FindingPage, query=("run_id", "state", "before", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "run_id", "state", "before")
        rows = Finding.objects.select_related("closure").filter(pk__lt=_before(query))
        if run_id := query.uuid("run_id"):
            rows = rows.filter(run_id=run_id)
        if state := query.choice("state", ("open", "closed")):
            rows = rows.filter(closure__isnull=state == "open")
        page = list(rows.order_by("-pk")[: query.limit + 1])
        return query.page(page, lambda row: {"before": str(row.pk)}, finding_row)

    @described("Report a duplicate effect", FindingRow, body=FindingBody, status=201)
    def post(self, request: Request) -> Response:
        """Store a duplicate effect that a person has seen, as an open finding."""
        finding = findings.report(read_body(request, FindingBody), by=self.by)
        return Response(finding_row(finding), status=201)


class FindingClosing(ApiView):
    """Close a finding with its verdict and root cause. A finding can only be closed once."""

    roles = {"POST": _BOTH}

    @described("Close a finding", FindingRow, body=ClosureBody)
    def post(self, request: Request, finding_id: int) -> Response:
        return Response(finding_row(findings.close(finding_id, read_body(request, ClosureBody), by=self.by)))


def stored(stored_id: int) -> StoredReport:
    """Return a stored report.

    Raises NotFound, even if the report exists but could not be made or no longer matches its digest."""
    found = StoredReport.objects.filter(pk=stored_id, problem="").first() if stored_id < 2**63 else None
    if found is None or not is_as_stored(found):
        raise NotFound("stored report with its digest", stored_id)
    return found


def _before(query: Query) -> int:
    return query.integer("before", default=2**63 - 1, lowest=1, highest=2**63 - 1)


def _report_row(kind: ReportKind) -> ReportRow:
    definition = DefinitionRow.of(kind.definition)
    return ReportRow.of(kind, definition=definition, queries=kind.shown_queries, needs_run=kind.of_run)


def finding_row(finding: Finding) -> FindingRow:
    """Return the row of a finding, including its closure."""
    closure: Any = getattr(finding, "closure", None)
    return FindingRow.of(
        finding,
        state="closed" if closure else "open",
        verdict=closure.verdict if closure else "",
        root_cause=closure.root_cause if closure else "",
        closed_by=closure.by if closure else "",
        closed_at=closure.at if closure else None,
    )
