"""All reports by name, and the function that makes one for a reader."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from durableagents.contrib.reports.period import PeriodProblem, read_period
from durableagents.contrib.reports.queries import (
    approvals,
    outcomes,
    overrides,
    recoveries,
    run_trail,
    storage,
    violations,
)
from durableagents.contrib.reports.reports import ReportKind, Request
from durableagents.contrib.reports.statements import reading
from durableagents.contrib.reports.tables import Report
from ledger.clock import database_now
from ledger.errors import NotFound
from ledger.web.roles import role_in

REPORTS: dict[str, ReportKind] = {
    each.name: each
    for each in (
        run_trail.REPORT,
        recoveries.REPORT,
        violations.REPORT,
        approvals.REPORT,
        overrides.REPORT,
        outcomes.REPORT,
        storage.REPORT,
    )
}
FORMATS = ("json", "csv")


def find(name: str) -> ReportKind:
    """Return the kind of report with that name. Raises NotFound."""
    found = REPORTS.get(name)
    if found is None:
        raise NotFound("report", name)
    return found


def readable_by(held: Collection[str]) -> list[ReportKind]:
    """Return the reports that someone with these roles may read."""
    return [each for each in REPORTS.values() if role_in(each.roles, frozenset(held)) is not None]


def make(kind: ReportKind, start: str = "", end: str = "", run: str = "") -> Report:
    """Make a report for the current viewer, in one transaction with a time limit on each statement.

    Raises PeriodProblem for an invalid period or run, NotFound, ReportTooLarge."""
    if kind.of_run and (start or end):
        raise PeriodProblem("This report covers the whole run: leave `from` and `to` out.")
    if run and not kind.of_run:
        raise PeriodProblem("This report is not about one run: leave `run` out.")
    now = database_now()
    request = Request(now, read_period(start, end, now), _run(kind, run))
    with reading():
        return kind.report(request)


def _run(kind: ReportKind, text: str) -> UUID | None:
    if not kind.of_run:
        return None
    try:
        return UUID(text)
    except ValueError:
        what = f"`run` is {text[:40]!r}, which does not exist's id" if text else "`run` is missing"
        raise PeriodProblem(f"{what}: give the id of the run that the report is about.") from None
