from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.reports import catalogue
from durableagents.contrib.reports.period import PeriodProblem
from durableagents.contrib.reports.statements import SHELL_SECONDS, in_seconds
from durableagents.contrib.reports.tables import Report, csv_text
from ledger.errors import DurableAgentsError

TEXT_ROWS = 20


class Command(BaseCommand):
    help = "List the reports, or make one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="list the reports and their contents")
        run = verbs.add_parser("run", help="make a report; without --format as text")
        run.add_argument("name", metavar="NAME")
        add_period(run)
        run.add_argument("--run", default="", metavar="ID", help="the run, for a report about one run")

    def handle(self, *, verb: str, **given: Any) -> None:
        if verb == "list":
            for kind in catalogue.REPORTS.values():
                self.stdout.write(f"{kind.name}: {kind.about}")
            return
        try:
            kind = catalogue.find(given["name"])
        except DurableAgentsError:
            known = ", ".join(catalogue.REPORTS)
            raise CommandError(f"unknown report {given['name']!r}: one of {known}", returncode=2) from None
        write(self, kind, given)


def add_period(parser: ArgumentParser) -> None:
    """Add the options for a period and a format."""
    parser.add_argument("--from", dest="start", default="", metavar="DAY", help="first day or moment (UTC)")
    parser.add_argument("--to", dest="end", default="", metavar="DAY", help="last day (inclusive) or moment (UTC)")
    parser.add_argument("--format", choices=catalogue.FORMATS, help="instead of text")


def write(command: BaseCommand, kind: catalogue.ReportKind, given: dict[str, Any]) -> None:
    """Make a report and print it. Raises CommandError."""
    try:
        with in_seconds(SHELL_SECONDS):
            report = catalogue.make(kind, given["start"], given["end"], given.get("run", ""))
    except PeriodProblem as problem:
        raise CommandError(_as_options(str(problem)), returncode=2) from None
    except DurableAgentsError as error:
        raise CommandError(error.detail, returncode=2) from None
    match given["format"]:
        case "csv":
            command.stdout.write(csv_text(report), ending="")
        case "json":
            command.stdout.write(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
        case _:
            command.stdout.write("\n".join(_lines(report)))


def _as_options(problem: str) -> str:
    for name in ("from", "to", "run"):
        problem = problem.replace(f"`{name}`", f"--{name}")
    return problem


def _lines(report: Report) -> list[str]:
    """Return a report as lines for a terminal, with the first rows of each table."""
    period = f"{report.start:%Y-%m-%d %H:%M} to {report.end:%Y-%m-%d %H:%M} UTC" if report.start and report.end else ""
    lines = [f"{report.title}: {period or report.subject}", *(f"note: {note}" for note in report.notes)]
    lines += [f"{figure.label}: {figure.text}" for figure in report.figures]
    for table in report.tables:
        rows = [[column.label for column in table.columns]]
        rows += [[text or exact for _, text, exact in row] for row in table.cells[:TEXT_ROWS]]
        widths = [max(len(row[n]) for row in rows) for n in range(len(table.columns))]
        lines += ["", f"{table.title} ({table.total})"]
        for row in rows if table.rows else []:
            parts = zip(row, widths, table.columns, strict=True)
            cells = (text.rjust(width) if column.is_number else text.ljust(width) for text, width, column in parts)
            lines.append("  ".join(cells).rstrip())
        if table.total > TEXT_ROWS:
            lines.append(f"… only the first {TEXT_ROWS} rows are shown: use --format csv for the rest")
    return ["".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines]
