"""Readers of each report; bad input to page, API and command; reports by schedule and mail."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from durableagents.contrib.reports import schedule, statements
from durableagents.contrib.reports.catalogue import REPORTS
from durableagents.contrib.reports.models import Finding, Mailing, StoredReport
from durableagents.contrib.reports.period import PeriodProblem, last_complete, read_period
from durableagents.contrib.reports.tables import inert
from durableagents.identity.auth import issue_key
from durableagents.outgoing import mail
from ledger.web.roles import role_in
from runs.models import Run
from tests.contrib.reports.conftest import Scenario, make, rows
from tests.integration.api.conftest import Api, person
from tests.integration.console.conftest import Reader
from tests.integration.runs.conftest import _django_db_marker
from tests.integration.runs.stage import in_thread
from tests.tampering import tamper

__all__ = ["_django_db_marker"]

pytestmark = pytest.mark.django_db
ROLES = ("integrator", "operator", "approver_finance", "auditor")


def test_each_role_reads_its_own_reports_of_the_runs_it_sees(scenario: Scenario) -> None:
    run = str(scenario.runs["approved"].id)
    for role in ROLES:
        user = person(f"{role}-reads", role)
        reader, api = Reader(user), Api(issue_key(user, "test"))
        for kind in REPORTS.values():
            query = {"run": run} if kind.of_run else {}
            may = role_in(kind.roles, {role}) is not None
            sees = not (kind.of_run and role == "integrator")  # the run is not theirs
            expected = 403 if not may else 200 if sees else 404
            assert reader.get(f"/audit/reports/{kind.name}", **query).status_code == expected, (role, kind.name)
            assert api.get(f"reports/{kind.name}", **query).status_code == expected, (role, kind.name)
        listed = {row["name"] for row in api.get("reports").json()["results"]}
        assert listed == {kind.name for kind in REPORTS.values() if role_in(kind.roles, {role})}
        if role == "integrator":
            assert rows(make("outcomes"), "agents") and not api.get("reports/outcomes").json()["tables"][0]["rows"]
            Run.objects.filter(pk=run).update(tags=["own"])
    nobody = Reader(person("nobody"))
    assert nobody.get("/audit/reports").status_code == 403 and Reader(None).get("/audit/reports").status_code == 302


def test_page_csv_and_json_have_the_same_values(scenario: Scenario) -> None:
    reader = Reader(person("ann", "auditor"))
    for kind in REPORTS.values():
        path = f"/audit/reports/{kind.name}"
        query = {"run": str(scenario.runs["recovered"].id)} if kind.of_run else {}
        body = reader.get(path, **query, format="json").json()
        page, text = reader.read(path, **query), reader.get(path, **query, format="csv").content.decode()
        for table in body["tables"]:
            for row in table["rows"]:
                for column, value in zip(table["columns"], row, strict=True):
                    answer = "yes" if value is True else "no" if value is False else "" if value is None else str(value)
                    if column["kind"] in ("bytes", "run") or len(answer) > 60 or "storage" in path:
                        continue
                    told_there = " ".join(answer.split())
                    assert told_there in page or told_there in page.replace(",", "") or column["kind"] == "time", (
                        kind.name,
                        column["name"],
                        answer,
                    )
                    assert answer in text.replace('""', '"'), (kind.name, column["name"], answer)
        assert kind.definition.counts[:40] in page and "SELECT" in page


BAD = (
    ("from=2026-13-01", "neither a day like"),
    ("from=2026-11-02&to=2026-11-01", "ends before it begins"),
    ("from=2020-01-01&to=2026-01-01", "at most 400"),
    ("to=0001-01-02", "too early"),
    ("from=%00", ""),
    ("run=0193", "not about one run"),
)


def test_bad_input_is_refused_with_what_to_do(scenario: Scenario) -> None:
    user = person("ann", "auditor")
    reader, api = Reader(user), Api(issue_key(user, "test"))
    for query, words in BAD:
        for answer in (reader.get(f"/audit/reports/outcomes?{query}"), api.get(f"/api/v1/reports/outcomes?{query}")):
            assert answer.status_code == 400 and words in answer.content.decode(), query
    for query in ("run=nothing", "", "run=0193&from=2026-01-01"):
        assert api.get(f"/api/v1/reports/run-audit-trail?{query}").status_code == 400, query
    unknown = {"run": "00000000-0000-0000-0000-000000000001"}
    assert api.get("reports/run-audit-trail", **unknown).status_code == 404
    assert api.get("reports/none").status_code == reader.get("/audit/reports/none").status_code == 404
    for query in ("format=xml", "table=agents", "format=csv&table=none", "limit=0", "page=3"):
        assert api.get(f"/api/v1/reports/outcomes?{query}").status_code == 400, query
    for options, words in (
        (["run", "none"], "one of run-audit-trail"),
        (["run", "outcomes", "--from", "x"], "--from"),
        (["run", "run-audit-trail"], "--run"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("reports", *options)


def test_an_empty_period_is_an_empty_report(scenario: Scenario) -> None:
    for kind in REPORTS.values():
        if not kind.of_run:
            report = make(kind.name, start="2020-01-01", end="2020-01-31")
            kept = {"tables", "samples", "kinds"}
            assert all(not table.rows for table in report.tables if table.name not in kept), kind.name
            assert all(figure.text for figure in report.figures)


def test_a_query_that_takes_too_long_is_cut_off_and_says_so(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(issue_key(person("ann", "auditor"), "test"))

    def slow(sql: str, params: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")

    kind = REPORTS["overrides"]
    monkeypatch.setattr("durableagents.contrib.reports.queries.overrides.rows_of", slow)
    with statements.in_seconds(1):
        answer = api.get(f"reports/{kind.name}")
    assert answer.status_code == 422 and answer.json()["code"] == "report-too-large"
    assert "longer than 1 seconds" in answer.json()["detail"] and api.get("reports/outcomes").status_code == 200


def test_findings_are_reported_and_closed_in_the_console(scenario: Scenario) -> None:
    reader, approver = Reader(person("ann", "auditor")), Reader(person("fay", "approver_finance"))
    form = {"run_id": "", "tool": "", "justification": "<b>paid twice</b>"}
    assert approver.post("/audit/findings", **form).status_code == 403
    assert reader.post("/audit/findings", **form | {"run_id": "x"}).status_code == 422
    assert reader.post("/audit/findings", **form | {"justification": ""}).status_code == 422
    assert reader.post("/audit/findings", **form).status_code == 302
    finding = Finding.objects.get()
    page = reader.get("/audit/reports/idempotency-violations").content.decode()
    assert "<b>paid twice</b>" not in page and "&lt;b&gt;paid twice" in page
    path = f"/audit/findings/{finding.pk}/closures"
    assert (
        "Choose" in (response := reader.post(path, justification="it was ours")).content.decode()
        or response.status_code == 422
    )
    assert reader.post(path, verdict="duplicate", justification="it was ours").status_code == 302
    assert reader.post(path, verdict="duplicate", justification="it was ours").status_code == 409
    assert (
        Api(issue_key(person("olaf", "operator"), "t"))
        .get("findings", state="closed")
        .json()["results"][0]["closed_by"]
        == "user:ann"
    )


def test_commands_list_and_print(scenario: Scenario) -> None:
    def said(*words: str) -> str:
        out = StringIO()
        call_command(*words, stdout=out)
        return out.getvalue()

    assert all(f"{name}: " in said("reports", "list") for name in REPORTS)
    assert "Completion rate: 80.00 %" in said("reports", "run", "outcomes")
    assert json.loads(said("reports", "run", "overrides", "--format", "json"))["report"] == "overrides"
    assert said("reports", "run", "overrides", "--format", "csv").startswith("Figures\r\n")
    assert "ledger_event" in said("storage", "report")


def test_scheduled_reports_are_stored_once_with_their_digest_and_mailed(
    scenario: Scenario, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    outcomes = [mail.Outcome("failed", "no line"), *[mail.SENT] * 9]

    def post(to: str, subject: str, text: str, **more: Any) -> mail.Outcome:
        sent.append(text)
        return outcomes.pop(0)

    monkeypatch.setattr(mail, "send", post)
    monkeypatch.setattr(mail, "is_set", lambda: True)
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"report_recipients": ["audit@example.org"]})
    tamper("UPDATE runs_run SET created_at = now() - interval '40 days'")
    due = is_due(schedule.store_is_due), is_due(schedule.mail_is_due)
    assert due == (True, False)
    assert in_thread(schedule.store) == 6 and in_thread(schedule.store) == 0
    assert (is_due(schedule.store_is_due), is_due(schedule.mail_is_due)) == (False, True)
    assert in_thread(schedule.announce) == 0 and in_thread(schedule.announce) == 0  # the next try comes later
    tamper("UPDATE reports_mailing SET at = at - interval '1 hour'")
    assert in_thread(schedule.announce) == 1 and in_thread(schedule.announce) == 0
    assert Mailing.objects.count() == len(sent) == 2 and is_due(schedule.mail_is_due) is False
    reader = Reader(person("ann", "auditor"))
    for row in StoredReport.objects.all():
        assert row.sha256 == sha256(row.content.encode()).hexdigest() and row.sha256 in sent[-1]
        assert "Definition" in reader.read(f"/audit/reports/stored/{row.pk}")
        answer = reader.get(f"/audit/reports/stored/{row.pk}", format="json")
        assert sha256(answer.content).hexdigest() == row.sha256
    assert "Stored by schedule" in reader.read("/audit/reports")
    api = Api(issue_key(person("olaf", "operator"), "test"))
    assert len(api.get("stored-reports").json()["results"]) == 6
    assert sha256(api.get(f"stored-reports/{row.pk}").content).hexdigest() == row.sha256
    assert Reader(person("fay", "approver_finance")).get(f"/audit/reports/stored/{row.pk}").status_code == 403
    tamper("UPDATE reports_storedreport SET content = replace(content, '0', '1') WHERE id = %s", row.pk)
    assert "no longer matches its digest" in reader.read(f"/audit/reports/stored/{row.pk}")
    assert api.get(f"stored-reports/{row.pk}").status_code == 404
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"report_schedule": "off"})
    assert in_thread(schedule.store) == 0 and is_due(schedule.store_is_due) is False


def is_due(condition: Callable[[], str]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {condition()}")
        return bool(cursor.fetchone()[0])


def test_periods_are_read_in_utc_and_formulas_are_inert() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert read_period("", "", now).days == 30
    whole = read_period("2026-02-01", "2026-02-28", now)
    assert (whole.start, whole.end) == (datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))
    assert read_period("2026-02-01T01:00+01:00", "", now).start == datetime(2026, 2, 1, tzinfo=UTC)
    for start, end in (("9999-12-31", ""), ("", "9999-12-31"), ("x", ""), ("2026-03-01", "2026-02-28")):
        with pytest.raises(PeriodProblem):
            read_period(start, end, now)
    for name, start in (("daily", (2026, 2, 28)), ("weekly", (2026, 2, 16)), ("monthly", (2026, 2, 1))):
        period = last_complete(name, now)
        assert period.start == datetime(*start, tzinfo=UTC) and period.end - period.start >= timedelta(days=1)
    hostile = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "\uff1d1")
    assert [inert(text)[:1] for text in hostile] == ["'"] * len(hostile) and inert("plain") == "plain"
