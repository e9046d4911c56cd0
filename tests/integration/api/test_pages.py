"""Lists: every row once, in order, while rows are added; and exact filters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from django.utils import timezone

from durableagents.identity.auth import issue_key
from runs.models import Wait
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem, person

pytestmark = pytest.mark.django_db


def follow(api: Api, address: str) -> list[Any]:
    rows: list[Any] = []
    following: str | None = address
    while following:
        page = api.get(following).json()
        assert set(page) == {"results", "next"}
        rows += page["results"]
        following = page["next"]
        assert following is None or following.startswith("http://testserver/api/v1/")
    return rows


def test_runs_come_newest_first_and_none_twice(auditor: Api, start: Callable[..., Any]) -> None:
    ids = [start()["id"] for _ in range(7)]
    for limit in (1, 3, 7, 8):
        assert [row["id"] for row in follow(auditor, f"runs?limit={limit}")] == ids[::-1]


def test_a_run_that_starts_meanwhile_shifts_no_page(auditor: Api, start: Callable[..., Any]) -> None:
    ids = [start()["id"] for _ in range(4)]
    page = auditor.get("runs?limit=2").json()
    start()
    rest = auditor.get(page["next"]).json()["results"]
    assert [row["id"] for row in page["results"] + rest] == ids[::-1]


def test_filters_survive_into_the_next_page(auditor: Api, start: Callable[..., Any]) -> None:
    old = [start(agent="order@1.0.0")["id"] for _ in range(3)]
    new = [start(agent="order")["id"] for _ in range(2)]
    assert [row["id"] for row in follow(auditor, "runs?agent=order@1.0.0&state=pending&limit=2")] == old[::-1]
    assert [row["id"] for row in follow(auditor, "runs?agent=order@1.1.0")] == new[::-1]
    assert len(follow(auditor, "runs?agent=order")) == 5
    assert follow(auditor, "runs?agent=unknown") == []
    assert follow(auditor, "runs?state=completed") == []
    assert len(follow(auditor, "runs?state=&agent=")) == 5


def test_events_go_on_after_a_seq(auditor: Api, operator: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    for act in ("pause", "resume", "pause"):
        assert operator.post(f"runs/{run}/{act}", {"justification": "because"}).status_code == 200
    every = follow(auditor, f"runs/{run}/events?limit=1")
    assert [row["seq"] for row in every] == list(range(1, len(every) + 1)) and len(every) >= 4
    later = auditor.get(f"runs/{run}/events?after=2").json()["results"]
    assert [row["seq"] for row in later] == [row["seq"] for row in every[2:]]
    assert auditor.get(f"runs/{run}/events?after=9999").json() == {"results": [], "next": None}
    for before, after in pairwise(every):
        assert after["prev_hash"] == before["hash"]


@each_case("limit", ["0", "-1", "1001", "x", "1.5", "1e2", "٣", " 5", "+5", "%00", "9" * 30])
@each_case("address", ["runs", "approvals", "agents"])
def test_a_limit_that_is_none_is_refused(auditor: Api, address: str, limit: str) -> None:
    assert is_problem(auditor.get(f"{address}?limit={limit}"), 400, "malformed")


@each_case(
    "query",
    [
        "state=nonsense",
        "stat=failed",
        "state=failed&state=pending",
        "agent=%00",
        "agent=" + "a" * 501,
        "cursor=x",
        "cursor=AAAA",
        "cursor=" + "A" * 32,
        "cursor=__________________________________________8=",
        "cursor=ü",
    ],
)
def test_a_query_that_means_nothing_is_refused(auditor: Api, query: str) -> None:
    assert is_problem(auditor.get(f"runs?{query}"), 400, "malformed")


def test_list_queries_are_constant(auditor: Api, start: Callable[..., Any], django_assert_max_num_queries: Any) -> None:
    auditor.get("runs")  # notes the use of the key
    for _ in range(5):
        start()
    with django_assert_max_num_queries(8):
        assert len(auditor.get("runs").json()["results"]) == 5


def test_a_page_of_large_events_is_cut_short_and_goes_on(
    auditor: Api, operator: Api, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()["id"]
    for act in ("pause", "resume", "pause"):
        operator.post(f"runs/{run}/{act}", {"justification": "because " * 100})
    monkeypatch.setattr("ledger.api.views.PAGE_BYTES", 1)
    page = auditor.get(f"runs/{run}/events").json()
    assert len(page["results"]) == 1 and page["next"]
    assert [row["seq"] for row in follow(auditor, f"runs/{run}/events")] == [1, 2, 3, 4]


@pytest.mark.needs
def test_a_cursor_belongs_to_its_list_and_its_filters(integrator: Api, start: Callable[..., Any]) -> None:
    for _ in range(3):
        start()
    following = integrator.get("runs?limit=1&state=pending").json()["next"]
    cursor = parse_qs(urlsplit(following).query)["cursor"][0]
    assert len(integrator.get("runs", state="pending", limit=5, cursor=cursor).json()["results"]) == 2
    for path, query in (("runs", {}), ("runs", {"state": "failed"}), ("approvals", {}), ("bulk", {})):
        refused = integrator.get(path, **query, cursor=cursor)
        assert is_problem(refused, 400) and "'cursor'" in refused.json()["detail"]


@pytest.mark.needs("search")
def test_runs_are_filtered_by_state_age_tag_and_waits(
    operator: Api, integrator: Api, start: Callable[..., Any]
) -> None:
    old, paused, waiting = (start(tags=tags)["id"] for tags in (["case:7"], [], ["case:8"]))
    operator.post(f"runs/{paused}/pause", {"justification": "test"})
    stranger, now = Api(issue_key(person("stranger", "integrator"), "test")), timezone.now()
    for run_id, days, name in ((old, 3, "timer"), (waiting, 1, "signal")):
        Wait.objects.create(
            id=uuid4(), run_id=run_id, slot="0/1", kind=name, opened_at=now - timedelta(days=days), deadline=now
        )
    Wait.objects.filter(run_id=waiting).update(deadline=now + timedelta(days=1), also=["legal"])

    def found(api: Api = integrator, **query: Any) -> list[str]:
        answer = api.get("runs", fields="id,state", **query)
        assert answer.status_code == 200, answer.content
        assert all(row.keys() == {"id", "state"} for row in answer.json()["results"])
        return [row["id"] for row in answer.json()["results"]]

    since = (now - timedelta(days=2)).isoformat()
    assert found(state="pending,paused") == [waiting, paused, old] and found(state="paused,failed") == [paused]
    assert found(tag="case:7") == [old] and found(tag="case") == []
    assert found(created_from=since) == [waiting, paused, old] and found(created_before=since) == []
    assert found(wait="any") == [waiting, old] and found(wait="overdue") == [old]
    assert found(wait="escalated") == [waiting] and found(waiting_before=since) == [old]
    assert found(sort="waiting_since") == [old, waiting] and found(sort="waiting_since", q="case:8") == [waiting]
    assert found(business_key="none", agent="order") == []
    first = integrator.get("runs?sort=waiting_since&limit=1").json()
    rest = integrator.get(first["next"]).json()
    assert [row["id"] for row in first["results"] + rest["results"]] == [old, waiting] and rest["next"] is None
    for query in ({"wait": "any"}, {"sort": "waiting_since"}, {"tag": "case:7"}):
        assert found(stranger, **query) == []
    for name, value in (
        ("state", "pending,"),
        ("wait", "soon"),
        ("created_from", "yesterday"),
        ("created_before", "2026-01-01T00:00:00"),
        ("waiting_before", "\x00"),
        ("tag", "a\x00"),
        ("business_key", "x"),
        ("trace_id", "0A"),
        ("older", "9d"),
        ("parent", "me"),
        ("total", "yes"),
        ("fields", "id,nope"),
        ("sort", "nope"),
    ):
        refused = integrator.get("runs", **{name: value})
        assert is_problem(refused, 400), (name, refused.content)
    assert is_problem(integrator.get("runs?tag=x&where=amount > 1"), 400, "bad-search")


@pytest.mark.needs("bulk")
def test_a_list_is_filtered_by_trace_and_counted_and_bulk_jobs_have_its_filters(
    integrator: Api, start: Callable[..., Any]
) -> None:
    old, paused, _ = (start(tags=tags)["id"] for tags in (["case:7"], [], ["case:8"]))
    integrator.post(f"runs/{paused}/pause", {"justification": "test"})
    stranger, now = Api(issue_key(person("stranger", "integrator"), "test")), timezone.now()
    Wait.objects.create(
        id=uuid4(), run_id=old, slot="0/1", kind="timer", opened_at=now - timedelta(days=3), deadline=now
    )
    since = (now - timedelta(days=2)).isoformat()

    def found(**query: Any) -> list[str]:
        return [row["id"] for row in integrator.get("runs", **query).json()["results"]]

    trace = integrator.get(f"runs/{old}").json()["trace_id"]
    assert found(trace_id=trace) == [old] and found(trace_id=trace, wait="any", older="1d", q="case:7") == [old]
    assert found(trace_id=trace, state="paused") == [] and found(trace_id="0" * 32) == []
    for api, total, query in (
        (integrator, 3, {}),
        (integrator, 1, {"state": "paused", "limit": "1"}),
        (integrator, 1, {"trace_id": trace}),
        (integrator, 1, {"q": "case:8"}),
        (integrator, 1, {"sort": "waiting_since"}),
        (stranger, 0, {}),
    ):
        page = api.get("runs", total="true", **query).json()
        assert (page["total"], page["total_is_more"]) == (total, False), query
    body = {"action": "cancel", "start": False, "justification": "Left over."}
    wanted = {"trace_id": trace, "waiting_before": since, "older": "1d", "tag": "case:7", "wait": "overdue"}
    batch = integrator.post("bulk", body | {"filter": wanted}).json()
    items = integrator.get(f"bulk/{batch['id']}/items").json()["results"]
    assert [item["run"] for item in items] == [old], batch
    assert integrator.get("bulk/zz").json()["detail"].startswith("No batch 'zz' exists")
    for name, value in (("business_key", "x"), ("trace_id", "X" * 32), ("older", "9d"), ("created_from", 5)):
        answer = integrator.post("bulk", body | {"filter": {name: value}})
        assert answer.status_code == 422 and f"filter.{name}" in answer.content.decode(), answer.content
