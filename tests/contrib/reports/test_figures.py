"""Each report's figures, compared with what a driven scenario did."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest

from durableagents.contrib.reports import detector
from durableagents.contrib.reports.catalogue import REPORTS
from durableagents.contrib.reports.queries import storage
from durableagents.contrib.reports.tables import Report, csv_text, text_of
from ledger.models import Event, LedgerEntry, OverrideRecord
from ledger.web.seeing.viewers import Viewer, looking_as
from runs.models import Checkpoint, Incident, Run, Wait
from tests.contrib.reports.conftest import Scenario, figures, make, rows
from tests.integration.runs.conftest import _django_db_marker
from tests.integration.runs.stage import in_thread

__all__ = ["_django_db_marker"]

pytestmark = pytest.mark.django_db


def test_outcomes_count_every_run_once(scenario: Scenario) -> None:
    report = make("outcomes")
    found = figures(report)
    states = [str(run.state) for run in Run.objects.all()]
    assert found["runs"] == len(states) == 9
    assert found["completed"] == states.count("completed") == 4
    assert found["cancelled"] == states.count("cancelled") == 1
    assert found["failed"] == states.count("failed") == 1 and found["open"] == 3
    assert found["completion_percent"] == Decimal("80.00")  # of completed and failed, as in alerts
    # plain, recovered and answered differently were completed without anybody
    assert found["without_human_percent"] == Decimal("75.00") and found["abandoned"] == 0
    spans = sorted(
        (run.ended_at - run.created_at).total_seconds() for run in Run.objects.filter(state="completed") if run.ended_at
    )
    assert float(found["median_seconds"]) == pytest.approx((spans[1] + spans[2]) / 2, abs=0.002)
    ended = Wait.objects.filter(kind__in=["approval", "reconcile"], resolved_at__isnull=False)
    assert found["waits_for_people"] == ended.exclude(resolution="withdrawn").count() == 3
    by_agent = {row["agent"]: row for row in rows(report, "agents")}
    assert by_agent["plain"]["runs"] == 3 and sum(row["runs"] for row in by_agent.values()) == 9
    Wait.objects.filter(run=scenario.runs["waiting"], kind="approval").update(deadline="2020-01-01T00:00Z")
    assert figures(make("outcomes"))["abandoned"] == 1


def test_overrides_are_listed_with_their_reasons(scenario: Scenario) -> None:
    report = make("overrides")
    acts = list(OverrideRecord.objects.order_by("-at", "-id"))
    assert figures(report) == {"overrides": len(acts), "runs": 2} and len(acts) == 4
    assert [row["action"] for row in rows(report, "overrides")] == [act.action for act in acts]
    assert {row["action"]: row["overrides"] for row in rows(report, "actions")} == {
        "pause": 1,
        "resume": 1,
        "cancel": 1,
        "reconcile": 1,
    }
    assert all(row["is_authentic"] for row in rows(report, "overrides"))


def test_approvals_tell_times_duties_and_sums(scenario: Scenario) -> None:
    report = make("approvals")
    found, listed = figures(report), rows(report, "approvals")
    assert (found["closed"], found["approved"], found["rejected"], found["overdue"]) == (2, 1, 1, 0)
    assert found["in_time_percent"] == Decimal("100.00") and found["by_requester"] == 0
    assert [(row["outcome"], row["amount"], row["currency"]) for row in listed] == [
        ("rejected", Decimal(7000), "USD"),
        ("approved", Decimal(5000), "USD"),
    ]
    assert {row["duties"] for row in listed} == {"different people"}
    assert [(row["by"], row["sum_approved"]) for row in rows(report, "people")] == [
        ("user:fiona", Decimal(5000)),
        ("user:frank", None),
    ]
    with looking_as(Viewer(reads_all=False)):
        hidden = make("approvals")
    assert {row["amount"] for row in rows(hidden, "approvals")} == {None} and "2 approvals" in hidden.notes[0]


def test_recoveries_tell_cause_duration_and_repeated_work(scenario: Scenario) -> None:
    report = make("recoveries")
    found, listed = figures(report), rows(report, "recoveries")
    incidents = list(Incident.objects.order_by("-at", "-id"))
    assert found["recoveries"] == len(incidents) == 3
    assert [row["event"] for row in listed] == [each.seq for each in incidents]
    repeated = {run: row["calls_repeated"] for run, row in zip((i.run_id for i in incidents), listed, strict=True)}
    assert repeated == {
        scenario.runs["recovered"].id: 1,
        scenario.runs["answered differently"].id: 1,
        scenario.runs["contradicted"].id: 0,
    }
    assert found["calls_repeated"] == 2 and found["not_resumed"] == 0
    assert found["longest_down_seconds"] == max(row["down_seconds"] for row in listed)


def test_violations_are_found_and_the_rate_is_measured(scenario: Scenario) -> None:
    assert "has not run yet" in make("idempotency-violations").notes[0]
    assert in_thread(detector.detect) == 3
    report = make("idempotency-violations")
    result = figures(report)
    effects = {
        (entry.run_id, entry.slot, entry.attempt)
        for entry in LedgerEntry.objects.all()
        if entry.fact == "committed" or (entry.fact == "reconciled" and entry.digest not in ("did_not", "fail"))
    }
    assert result["effects"] == len(effects) == 4
    assert result["repeats"] == Event.objects.filter(kind="ToolRedispatched").count() > 0
    assert (result["findings"], result["open"], result["duplicate"]) == (3, 3, 0)
    assert result["confirmed_percent"] == 0 and result["rate_percent"] == 75
    found = {row["run"]: row["kind"] for row in rows(report, "findings")}
    assert found == {
        scenario.runs["contradicted"].id: "Contradicting receipt",
        scenario.runs["key rejected"].id: "Key rejected",
        scenario.runs["answered differently"].id: "Repeat answered differently",
    }


def test_storage_adds_up_and_forecasts_from_kept_sizes(scenario: Scenario) -> None:
    assert in_thread(storage.sample) > 50 and in_thread(storage.sample) == 0
    report = make("storage")
    found = figures(report)
    assert found["checkpoints"] == Checkpoint.objects.count() > 0
    assert sum(row["runs"] for row in rows(report, "agents")) == sum(row["runs"] for row in rows(report, "days")) == 9
    assert sum(row["events"] for row in rows(report, "agents")) == Event.objects.count()
    assert found["database_growth"] is None and "no forecast yet" in report.notes[0]
    shares = [row["percent"] for row in rows(report, "tables")]
    assert "ledger_event" in {row["table"] for row in rows(report, "tables")} and 99 < sum(shares) < 101


def test_the_trail_of_a_run_is_whole_and_holds_no_payload(scenario: Scenario) -> None:
    for name, run in scenario.runs.items():
        report = make("run-audit-trail", run=str(run.id))
        found, events = figures(report), Event.objects.filter(run_id=run.id).order_by("seq")
        assert found["events"] == len(events), name
        assert [row["event"] for row in rows(report, "events")] == [event.seq for event in events], name
        assert found["overrides"] == OverrideRecord.objects.filter(run_id=run.id).count()
        assert found["recoveries"] == Incident.objects.filter(run_id=run.id).count()
    report = make("run-audit-trail", run=str(scenario.runs["approved"].id))
    assert [(row["verdict"], row["by"]) for row in rows(report, "decisions")] == [("approve", "user:fiona")]
    assert "5000" not in csv_text(report)


def test_csv_and_json_say_the_same_and_hostile_text_is_inert(scenario: Scenario) -> None:
    in_thread(detector.detect)
    for kind in REPORTS.values():
        run = str(scenario.runs["overridden"].id) if kind.of_run else ""
        report = make(kind.name, run=run)
        assert text_in(Report.from_json(report.to_json())) == text_in(report), kind.name
        assert csv_text(Report.from_json(report.to_json())) == csv_text(report), kind.name
    found = csv_text(make("overrides"))
    assert "'=HYPERLINK(1)" in found and ",=HYPERLINK" not in found
    (line,) = [row for row in csv.reader(io.StringIO(found)) if "cancel" in row and "'=HYPERLINK(1)" in row]
    assert line[2] == str(scenario.runs["overridden"].id)


def text_in(report: Report) -> list[list[str]]:
    return [[text_of(value) for value in row] for table in report.tables for row in table.rows]
