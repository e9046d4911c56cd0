"""The Insights page tells what the report on outcomes tells."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from decimal import Decimal

import pytest

from durableagents.contrib.reports import insights, statements
from durableagents.contrib.reports.period import Period
from durableagents.contrib.reports.queries.over_time import over_time
from durableagents.contrib.reports.schedule import NO_CONTENTS
from ledger.models import Head
from ledger.web.seeing.viewers import looking_as
from runs.models import Incident, Run
from tests.contrib.reports.conftest import Scenario, figures, make, rows
from tests.integration.api.conftest import person
from tests.integration.console.conftest import Reader
from tests.integration.runs.conftest import _django_db_marker
from tests.integration.runs.stage import now

__all__ = ["_django_db_marker"]

pytestmark = pytest.mark.django_db


def test_insights_show_the_figures_of_the_report(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    found = figures(make("outcomes"))
    assert found["recoveries"] == Incident.objects.count() == 3
    by_agent = {row["agent"]: row for row in rows(make("outcomes"), "agents")}
    ended = Run.objects.filter(agent="plain", ended_at__isnull=False).values_list("id", flat=True)
    steps = Head.objects.filter(run_id__in=ended).values_list("steps", flat=True)
    assert by_agent["plain"]["steps_per_ended"] == round(Decimal(sum(steps)) / len(steps), 1)
    reader = Reader(person("reads-insights", "auditor"))
    for over in ("24h", "7d", "30d", "<script>", ""):
        text = reader.get("/insights", over=over).content.decode()
        assert "80.00 %" in text and "plain" in text and text.count('class="graph"') == 2, over
        assert "<script>" not in text.split("<h1>Insights</h1>")[1].split("</main>")[0]
        assert not re.search(r"\d\.\d{3}( s)?<|, s<", text), over  # durations in readable units
    assert b"Insights" in reader.get("/audit").content
    # An account that sees none of the runs reads none of their figures.
    stranger = Reader(person("sees-nothing", "integrator")).get("/insights").content.decode()
    assert "No runs in this period" in stranger and "plain" not in stranger
    monkeypatch.setattr(statements, "WEB_SECONDS", 0)
    monkeypatch.setattr(statements, "_seconds", type("Now", (), {"get": lambda self: 1})())
    monkeypatch.setattr(insights, "over_time", lambda *_: statements.rows_of("SELECT pg_sleep(5)", {}))
    slow = reader.get("/insights")
    assert slow.status_code == 422 and b"longer than 1 seconds" in slow.content


def test_spans_hold_each_run_and_recovery_once(scenario: Scenario) -> None:
    Run.objects.filter(pk=scenario.runs["plain"].pk).update(created_at=now() - timedelta(hours=5, minutes=30))
    end = now()
    with looking_as(NO_CONTENTS):
        spans = over_time(Period(end - timedelta(hours=24), end), 24)
        assert over_time(Period(end, end + timedelta(hours=1)), 7)[6].runs == 0
    states = Counter(Run.objects.values_list("state", flat=True))
    assert len(spans) == 24 and sum(span.runs for span in spans) == Run.objects.count()
    assert sum(span.completed for span in spans) == states["completed"]
    assert sum(span.failed for span in spans) == states["failed"]
    assert sum(span.recoveries for span in spans) == Incident.objects.count()
    assert spans[18].completed == 1 and spans[23].runs == Run.objects.count() - 1
    drawn = insights.chart(spans, insights.RUNS, "Runs")
    assert drawn.count("<title>") == 24 and "style=" not in drawn
