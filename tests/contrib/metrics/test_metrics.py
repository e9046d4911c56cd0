"""A scrape returns what is in the database; nothing is counted twice or lost."""

from __future__ import annotations

from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Sum

from durableagents.contrib.metrics import collecting, counting, scraping
from durableagents.contrib.metrics.models import Counter, Fact, Snapshot
from ledger.models import Head
from runs import features
from runs.models import Incident, Wait
from tests.contrib.metrics.conftest import TOKEN, Scenario, collect, scraped
from tests.integration.runs.stage import Stage, in_thread, now
from tests.integration.runs.test_budgets import _prices_of_this_test, priced, start, thinking
from tests.world import Toolbox

__all__ = ["_prices_of_this_test"]
pytestmark = pytest.mark.django_db(transaction=True)


def _rows(sql: str, *values: Any) -> dict[Any, float]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return {key[0] if len(key) == 1 else tuple(key): float(value) for *key, value in cursor.fetchall()}


def _events(*kinds: str) -> float:
    return _rows("SELECT 0, count(*) FROM ledger_event WHERE kind = ANY(%s)", list(kinds))[0]


_ENDS = """
    SELECT r.agent, lower(replace(e.kind, 'Run', '')), count(*)
    FROM ledger_event e JOIN runs_run r ON r.id = e.run_id
    WHERE e.kind IN ('RunCompleted', 'RunFailed', 'RunCancelled') GROUP BY 1, 2"""
_QUEUE = "coalesce(CASE kind WHEN 'approval' THEN detail ->> 'queue' WHEN 'input' THEN detail ->> 'of' END, '')"


_EFFECTS = "SELECT tool, count(*) FROM ledger_ledgerentry WHERE fact = 'committed' GROUP BY 1"
_SPENT = ("tokens_in", "tokens_out", "usd_micro", "model_calls")
_FACT = """
    INSERT INTO metrics_fact (kind, run_id, name, queue, seconds)
    SELECT 'wait', id, 'timer', 'nobody', 7 FROM runs_run LIMIT 1"""
_ENTRY = """
    INSERT INTO ledger_ledgerentry (run_id, seq, slot, attempt, fact, tool, replay_class, actor, at)
    SELECT id, 1, %s, 0, 'committed', 'order', 'pure', 'test', now() FROM runs_run LIMIT 1"""


def _add_entry() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_ENTRY, ["soon"])


def test_metrics_equal_what_the_database_holds(client: Any, scenario: Scenario) -> None:
    collect()
    Wait.objects.filter(resolved_at__isnull=True).update(opened_at=now() - timedelta(hours=2))
    collect()
    found = scraped(client)

    assert found.by("runs", "state", "agent") == _rows("SELECT state, agent, count(*) FROM runs_run GROUP BY 1, 2")
    assert found.by("runs_created_total", "agent") == _rows("SELECT agent, count(*) FROM runs_run GROUP BY 1")
    assert found.by("runs_ended_total", "agent", "state") == _rows(_ENDS)
    assert found.by("run_seconds_count", "agent", "state") == _rows(_ENDS)
    assert sum(found.by("run_seconds_sum", "state").values()) > 0
    resolved = f"SELECT kind, {_QUEUE}, count(*) FROM runs_wait WHERE resolved_at IS NOT NULL GROUP BY 1, 2"
    assert found.by("wait_seconds_count", "kind", "queue") == _rows(resolved)
    still = f"SELECT kind, {_QUEUE}, count(*) FROM runs_wait WHERE resolved_at IS NULL GROUP BY 1, 2"
    assert found.by("waits", "kind", "queue") == _rows(still) and ("reconcile", "") in found.by(
        "waits", "kind", "queue"
    )
    assert all(7200 <= age < 7300 for age in found.by("wait_oldest_seconds", "kind", "queue").values())
    assert found.by("recoveries_total", "cause") == _rows("SELECT cause, count(*) FROM runs_incident GROUP BY 1")
    assert sum(found.by("recoveries_settled_total", "outcome").values()) + found.value("recoveries_open") == (
        Incident.objects.count()
    )
    assert found.by("recoveries_settled_total", "outcome")["resumed"] >= 1
    assert found.by("effects_total", "tool") == _rows(_EFFECTS)
    assert found.value("calls_repeated_total") == _events("ToolRedispatched") > 0
    assert found.value("unknown_outcomes_total") == _events("ToolOutcomeUnknown") > 0
    assert found.value("commit_seconds_count") > 0
    assert found.value("metrics_age_seconds") < 10 and found.value("metrics_backlog") == 0


def test_model_requests_tokens_and_money_equal_the_heads(client: Any, stage: Stage, tools: Toolbox) -> None:
    priced()
    for _ in range(2):
        start(thinking(tools, turns=2))
        assert stage.drive() == "completed"
    collect()
    found = scraped(client)
    tokens_in, tokens_out, usd_micro, calls = Head.objects.aggregate(*map(Sum, _SPENT)).values()
    assert found.by("tokens_total", "direction") == {"in": tokens_in, "out": tokens_out}
    assert found.by("model_requests_total", "model") == {"scripted:mind": calls}
    assert sum(found.by("cost_usd_total", "model").values()) == pytest.approx(usd_micro / 1_000_000) and usd_micro


def test_a_fact_is_counted_once_by_several_workers_kills_and_late_commits(client: Any, scenario: Scenario) -> None:
    ended = _events("RunCompleted", "RunFailed", "RunCancelled")
    waiting = Fact.objects.count()
    # Killed halfway: nothing is counted, nothing is lost.
    with transaction.atomic():
        assert collecting._count_facts(counting.Increments()) == waiting
        transaction.set_rollback(True)
    assert Fact.objects.count() == waiting and not Counter.objects.exists()
    # A transaction that began earlier commits later, after others whose numbers are higher.
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_FACT)
            cursor.execute(_ENTRY, ["late"])
        in_thread(_add_entry)
        for _ in range(3):
            in_thread(collecting.collect)
    collect()
    found = scraped(client)
    assert sum(found.by("runs_ended_total", "state").values()) == ended
    assert found.value("wait_seconds_count", kind="timer", queue="nobody") == 1
    assert found.by("effects_total", "tool") == _rows(_EFFECTS)
    # While another process collects, this one does nothing.
    before = Snapshot.objects.get().at
    with transaction.atomic():
        assert collecting._has_lock()
        in_thread(collecting.collect)
    assert Snapshot.objects.get().at == before


def test_totals_outlive_the_rows_and_clock_steps(client: Any, scenario: Scenario) -> None:
    collect()
    before = scraped(client)
    # Retention removes runs; the clock was an hour ahead.
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("DELETE FROM runs_run")
        cursor.execute("DELETE FROM ledger_ledgerentry")
        cursor.execute("SET session_replication_role = DEFAULT")
    Snapshot.objects.update(at=now() + timedelta(hours=1), ended_at=now() + timedelta(hours=1))
    assert scraped(client).value("metrics_age_seconds") == 0
    assert _is_due()
    collect()
    assert not _is_due()
    after = scraped(client)
    for name in ("runs_created_total", "runs_ended_total", "effects_total", "wait_seconds_count", "recoveries_total"):
        assert after.by(name) == before.by(name), name
    assert after.by("runs", "state") == {} and before.by("runs", "state")
    Snapshot.objects.update(at=now() - timedelta(minutes=5))
    assert 300 <= scraped(client).value("metrics_age_seconds") < 400 and _is_due()


def _is_due() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {collecting.IS_DUE}")
        return bool(cursor.fetchone()[0])


def test_labels_are_bounded(client: Any, db: Any) -> None:
    for n in range(3):
        more = counting.Increments()
        for m in range(counting.MAX_LABELS):
            more.add("effects", f"tool-{n}-{m}" + "x" * 1000)
        more.store()
    found = scraped(client).by("effects_total", "tool")
    assert len(found) == counting.MAX_LABELS + 1 and found[counting.OTHER] == 2 * counting.MAX_LABELS
    assert max(map(len, found)) == 200


def test_who_may_scrape(client: Any, settings: Any) -> None:
    def status(**headers: str) -> int:
        return int(client.get("/metrics", headers=headers).status_code)

    assert status() == 401 == status(Authorization="Bearer wrong") == status(Authorization="Bearer ")
    assert scraped(client).value("workers") == 0
    assert client.post("/metrics").status_code in (401, 403, 405)
    open_to_loopback = {"metrics_token": "", "metrics_open_to": "loopback"}
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update=open_to_loopback)
    assert status() == 200
    assert status(**{"X-Forwarded-For": "203.0.113.9"}) == 401
    assert client.get("/metrics", REMOTE_ADDR="203.0.113.9").status_code == 401
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"metrics_open_to": "nobody"})
    assert status() == 401 == status(Authorization="Bearer ")


def test_a_failing_or_slow_source_is_named_and_hides_nothing_else(
    client: Any, monkeypatch: pytest.MonkeyPatch, db: Any
) -> None:
    def fails() -> Any:
        raise ValueError("no such witness")

    def hangs() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")

    monkeypatch.setattr(scraping, "STATEMENT_SECONDS", 1)
    for name, read in (("broken", fails), ("hanging", hangs)):
        monkeypatch.setitem(features.installed, name, features.Feature(name=name, metrics=(read,)))
    found = scraped(client)
    assert found.by("metrics_source_up", "source").get("broken") is None
    assert found.value("metrics_source_up", source="broken") == 0 == found.value("metrics_source_up", source="hanging")
    assert ("metrics_source_up", (("source", "hanging"),)) in found.samples
    assert ("workers", ()) in found.samples


def test_an_outage_is_answered_soon_and_by_name(
    client: Any, monkeypatch: pytest.MonkeyPatch, db: Any, settings: Any
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"rate_limit": 60})
    assert client.get("/metrics", headers=headers).status_code == 200
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        patch.setitem(connection.settings_dict, "PORT", "1")
        answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 503, answer.content
    assert answer.json()["type"].endswith("metrics-unavailable") and b"Traceback" not in answer.content
    # A database that neither answers nor refuses: concurrent scrapes wait for one reading.
    release, begun = Event(), []

    def hang(_: Any) -> bytes:
        begun.append(1)
        release.wait(10)
        return b""

    monkeypatch.setattr(scraping, "SCRAPE_SECONDS", 0.2)
    monkeypatch.setattr(scraping, "generate_latest", hang)
    began = monotonic()
    for _ in range(20):
        answer = client.get("/metrics", headers=headers)
        assert answer.status_code == 503 and "longer than" in answer.json()["detail"]
    assert monotonic() - began < 5 and len(begun) == 1
    release.set()
