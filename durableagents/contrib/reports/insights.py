"""The Insights page: the main figures of the last day, week or month, from the report on outcomes, and two charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from durableagents.contrib.reports.period import Period, iso
from durableagents.contrib.reports.queries import outcomes
from durableagents.contrib.reports.queries.over_time import Span, over_time
from durableagents.contrib.reports.reports import Request
from durableagents.contrib.reports.statements import ReportTooLarge, reading
from durableagents.contrib.reports.tables import Column
from ledger.clock import database_now, lapse
from ledger.web.page_base import Page

# Label, days and number of bars for each value of `over`.
PERIODS = {"24h": ("24 hours", 1, 24), "7d": ("7 days", 7, 28), "30d": ("30 days", 30, 30)}
MAX_SHOWN = (
    *("completion_percent", "median_seconds", "wait_p95_seconds", "tokens_per_completed", "usd_per_completed"),
    *("recoveries", "abandoned_percent", "without_human_percent"),
)
COLUMNS = (
    *("agent", "version", "runs", "completion_percent", "median_seconds", "wait_p95_seconds", "steps_per_ended"),
    *("tokens_per_completed", "usd_per_completed", "recoveries", "usd_per_recovered", "usd_per_undisturbed"),
)
WIDTH, HEIGHT = 720, 80
Series = Sequence[tuple[str, Callable[[Span], int]]]
RUNS: Series = (
    ("done", lambda span: span.completed),
    ("bad", lambda span: span.failed),
    ("run", lambda span: span.other),
)
RECOVERIES: Series = (("unsure", lambda span: span.recoveries),)


class InsightsPage(Page):
    """The main figures over the runs that the reader may see."""

    template = "reports/insights.html"
    section = "audit"

    def get(self, request: HttpRequest) -> HttpResponse:
        chosen = request.GET.get("over", "")
        chosen = chosen if chosen in PERIODS else "24h"
        _, days, bars = PERIODS[chosen]
        now = database_now()
        period = Period(now - timedelta(days=days), now)
        context: dict[str, Any] = {"periods": [(key, label) for key, (label, *_) in PERIODS.items()], "chosen": chosen}
        try:
            with reading():
                content = outcomes.make(Request(now, period))
                spans = over_time(period, bars)
        except ReportTooLarge as error:
            return self.show(request, {**context, "problem": error.detail}, status=error.status)
        by_name = {figure.name: figure for figure in content.figures}
        (table,) = content.tables
        places = [n for name in COLUMNS for n, column in enumerate(table.columns) if column.name == name]
        context |= {
            "figures": [by_name[name] for name in MAX_SHOWN],
            "notes": content.notes,
            "columns": [_titled(table.columns[n]) for n in places],
            "rows": [[_readable(*row[n]) for n in places] for row in table.cells],
            "runs_chart": chart(spans, RUNS, "Runs by start"),
            "recoveries_chart": chart(spans, RECOVERIES, "Recoveries"),
            "most_runs": max(span.runs for span in spans),
            "most_recoveries": max(span.recoveries for span in spans),
            "start": period.start,
        }
        return self.show(request, context)


def _titled(column: Column) -> Column:
    return replace(column, label=column.label.removesuffix(", s"))


def _readable(column: Column, text: str, exact: str) -> tuple[Column, str]:
    return _titled(column), lapse(float(exact)) if column.kind == "seconds" and exact else text


def chart(spans: Sequence[Span], series: Series, label: str) -> SafeString:
    """Return stacked bars as SVG without scripts or inline styles. The title of each bar contains its figures."""
    most = max(1, *(sum(of(span) for _, of in series) for span in spans))
    return format_html(
        '<svg class="graph" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">{}</svg>',
        WIDTH,
        HEIGHT,
        f"{label}: at most {most} at a time",
        format_html_join("", "{}", ((bar,) for bar in _bars(spans, series, most))),
    )


def _bars(spans: Sequence[Span], series: Series, most: int) -> Iterator[SafeString]:
    width = WIDTH / len(spans)
    for n, span in enumerate(spans):
        title, bottom = f"{iso(span.start)}: {span.completed} completed, {span.failed} failed", float(HEIGHT)
        title += f", {span.other} other, {span.recoveries} recoveries"
        parts = []
        for tone, of in series:
            height = (HEIGHT - 4) * of(span) / most
            bottom -= height
            if height:
                parts.append((tone, f"{n * width + 1:.1f}", f"{bottom:.1f}", f"{width - 2:.1f}", f"{height:.1f}"))
        rects = format_html_join("", '<g class="{}"><rect x="{}" y="{}" width="{}" height="{}"></rect></g>', parts)
        yield format_html("<g><title>{}</title>{}</g>", title, rects)
