"""Reports: definitions in plain English, queries, readers, and the functions that make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from durableagents.contrib.reports.period import Period
from durableagents.contrib.reports.tables import Figure, Report, Table


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a report: what it counts, what it leaves out, and which timestamp decides on the period."""

    counts: str
    leaves_out: str
    period: str


@dataclass(frozen=True, slots=True)
class Request:
    """The scope of a report: a period, or a run."""

    now: datetime
    period: Period
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The result of the function that makes a report."""

    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    subject: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportKind:
    """One kind of report. `queries` contains the statements shown to readers, each under a label."""

    name: str
    title: str
    about: str
    definition: Definition
    queries: Mapping[str, str]
    roles: tuple[str, ...]
    make: Callable[[Request], Content]
    of_run: bool = False
    is_scheduled: bool = True

    @property
    def shown_queries(self) -> dict[str, str]:
        """Return the statements as shown to readers.

        The condition that limits rows to visible runs is replaced by a comment."""
        return {
            what: sql.strip().replace("{seen}", "/* a run that you may see */ true")
            for what, sql in self.queries.items()
        }

    def report(self, request: Request) -> Report:
        """Make the report. Raises NotFound, ReportTooLarge."""
        content = self.make(request)
        period = None if self.of_run else request.period
        return Report(
            name=self.name,
            title=self.title,
            made_at=request.now,
            start=period.start if period else None,
            end=period.end if period else None,
            figures=tuple(content.figures),
            tables=tuple(content.tables),
            subject=content.subject,
            notes=(*_cuts(content.tables), *content.notes),
        )


def _cuts(tables: Sequence[Table]) -> list[str]:
    return [
        f"{each.title}: the first {len(each.rows)} of {each.total} rows. Choose a shorter period to see the other rows."
        for each in tables
        if each.is_cut
    ]
