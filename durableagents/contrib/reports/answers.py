"""Reports as files for download."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils.http import content_disposition_header

from durableagents.contrib.reports.models import StoredReport
from durableagents.contrib.reports.tables import Report, as_bytes, csv_text
from ledger.web.renderers import HEADERS


def csv_file(report: Report, table: str = "") -> HttpResponse:
    """Return a report as a CSV file. Raises KeyError for a table that the report doesn't have."""
    text = csv_text(report, table).encode("utf-8", "replace")
    return _file(text, "text/csv; charset=utf-8", f"{_name(report)}.csv")


def json_file(report: Report) -> HttpResponse:
    """Return a report as a JSON file. The digest of a stored report covers exactly these bytes."""
    return _file(as_bytes(report.to_json()), "application/json", f"{_name(report)}.json")


def _file(content: bytes, kind: str, name: str) -> HttpResponse:
    response = HttpResponse(content, content_type=kind, headers=HEADERS)
    response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    return response


def _name(report: Report) -> str:
    about = report.subject or f"{report.start:%Y-%m-%d}_{report.end:%Y-%m-%d}" if report.end else report.subject
    return f"{report.name}_{about}"


def stored_file(row: StoredReport) -> HttpResponse:
    """Return the JSON of a stored report, unchanged."""
    return _file(
        row.content.encode(), "application/json", f"{row.name}_{row.starts_at:%Y-%m-%d}_{row.ends_at:%Y-%m-%d}.json"
    )
