"""What nodes say for people, over HTTP and on the run's page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from runs.api.schemas import LogPage
from runs.models import LogLine, Telling
from tests.integration.api.conftest import Api, is_problem
from tests.integration.console.conftest import Reader, reader, text_of  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db
AT = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "https://here.example/api/v1/callbacks/secret-token-of-a-call"


def says(run_id: str, *texts: str, level: str = "info") -> None:
    LogLine.objects.bulk_create(LogLine(run_id=UUID(run_id), at=AT, level=level, text=text) for text in texts)


def telling(run_id: str, **more: Any) -> None:
    given = {"lines": 3, "lost": 2, "seen": {}, "note": "", **more}
    Telling.objects.create(run_id=UUID(run_id), **given)


@pytest.fixture
def run(start: Callable[..., dict[str, Any]]) -> str:
    return str(start()["id"])


def test_a_runs_lines_are_listed_newest_first_and_page_by_page(run: str, auditor: Api) -> None:
    assert auditor.get(f"runs/{run}/log").json() == {"results": [], "next": None}
    says(run, *(f"line {n}" for n in range(7)))
    says(run, "it broke", level="error")
    seen, page = [], auditor.get(f"runs/{run}/log", limit=3).json()
    while True:
        assert LogPage.model_validate(page)
        seen += [row["text"] for row in page["results"]]
        if page["next"] is None:
            break
        page = auditor.client.get(page["next"], headers=auditor.headers).json()
    assert seen == ["it broke", *(f"line {n}" for n in reversed(range(7)))]
    assert [row["text"] for row in auditor.get(f"runs/{run}/log", level="error").json()["results"]] == ["it broke"]


def test_a_callbacks_token_is_shown_to_nobody(run: str, auditor: Api, reader: Callable[..., Reader]) -> None:  # noqa: F811
    says(run, f"sent to {TOKEN}")
    telling(run, note=TOKEN, done=1, at=AT)
    page = reader("auditor").get(f"/runs/{run}").content.decode()
    for said in (auditor.get(f"runs/{run}/log").content.decode(), auditor.get(f"runs/{run}").content.decode(), page):
        assert "callbacks/" in said and "secret-token" not in said


def test_who_may_not_read_runs_reads_no_lines(run: str, caller: Callable[[str | None], Api], auditor: Api) -> None:
    says(run, "secret")
    for who, status in ((None, 401), ("nobody", 403)):
        assert is_problem(caller(who).get(f"runs/{run}/log"), status)
    assert is_problem(auditor.get(f"runs/{uuid4()}/log"), 404)
    assert is_problem(auditor.get(f"runs/{run}/log", level="loud"), 400)
    assert is_problem(auditor.get(f"runs/{run}/log", before="-1"), 400)
