"""Lists: every row once, in order, while rows are added; and exact filters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem

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
    answer = auditor.get(f"runs?{query}")
    # A valid cursor before the oldest row gives an empty page.
    assert (
        answer.status_code == 200 and not answer.json()["results"]
        if query.endswith("A" * 32)
        else is_problem(answer, 400, "malformed")
    )


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
