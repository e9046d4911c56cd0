"""What nodes say for people, over HTTP and on the run's page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from runs.api.schemas import LogPage, RunRow
from runs.models import LogLine, Telling
from tests.api.conftest import Api, is_problem
from tests.console.conftest import Reader, reader, text_of  # noqa: F401 (fixture)

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


def test_a_run_tells_how_far_it_has_come(run: str, auditor: Api) -> None:
    told = auditor.get(f"runs/{run}").json()
    assert (told["progress"], told["log"]) == (None, {"kept": 0, "lost": 0}) and told["last_durable_at"] is None
    telling(run, done=20, total=80, at=AT, since_epoch=1, since_at=AT - timedelta(seconds=30), since_done=10)
    told = auditor.get(f"runs/{run}").json()
    assert RunRow.model_validate(told) and told["log"] == {"kept": 3, "lost": 2}
    assert {**told["progress"], "at": None} == {"done": 20, "total": 80, "note": "", "at": None, "left_seconds": 180}
    Telling.objects.update(total=None)
    assert auditor.get("runs").json()["results"][0]["progress"]["left_seconds"] is None


def test_the_first_answer_of_a_run_is_the_one_that_a_look_gives(
    start: Callable[..., dict[str, Any]], auditor: Api
) -> None:
    first = start()
    again = auditor.get(f"runs/{first['id']}").json()
    assert first["log"] == again["log"] and first["progress"] is None and first["last_durable_at"] is None


def test_a_callbacks_token_is_shown_to_nobody(run: str, auditor: Api, reader: Callable[..., Reader]) -> None:  # noqa: F811
    says(run, f"sent to {TOKEN}")
    telling(run, note=TOKEN, done=1, at=AT)
    page = reader("auditor").get(f"/runs/{run}").content.decode()
    for said in (auditor.get(f"runs/{run}/log").content.decode(), auditor.get(f"runs/{run}").content.decode(), page):
        assert "callbacks/" in said and "secret-token" not in said


def test_the_page_shows_progress_and_the_newest_lines_as_text(run: str, reader: Callable[..., Reader]) -> None:  # noqa: F811
    person = reader("operator")
    assert 'id="log"' not in person.get(f"/runs/{run}").content.decode()
    says(run, "<script>alert(1)</script>", *(f"line {n}" for n in range(40)), "\u202etxt.exe")
    telling(
        run,
        lines=42,
        done=20,
        total=80,
        at=AT,
        note="<b>pallets</b>",
        since_epoch=1,
        since_at=AT - timedelta(seconds=30),
        since_done=10,
    )
    answer = person.get(f"/runs/{run}")
    page, text = answer.content.decode(), text_of(answer)
    assert "20 of 80" in text and "left: about 3 m 00 s of work" in text and 'value="25"' in page
    assert "42 lines kept, 2 not" in text and "line 39" in text and "line 5 " not in text
    assert "<script>alert" not in page and "<b>pallets" not in page and "\u202e" not in page
    Telling.objects.update(total=None)
    assert "left: –" in text_of(person.get(f"/runs/{run}"))


def test_who_may_not_read_runs_reads_no_lines(run: str, caller: Callable[[str | None], Api], auditor: Api) -> None:
    says(run, "secret")
    for who, status in ((None, 401), ("nobody", 403)):
        assert is_problem(caller(who).get(f"runs/{run}/log"), status)
    assert is_problem(auditor.get(f"runs/{uuid4()}/log"), 404)
    assert is_problem(auditor.get(f"runs/{run}/log", level="loud"), 400)
    assert is_problem(auditor.get(f"runs/{run}/log", before="-1"), 400)


def test_a_long_log_is_read_by_its_index(run: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_logline (run_id, at, level, text) SELECT gen_random_uuid(), now(), 'info', 'x' "
            "FROM generate_series(1, 20000)"
        )
        cursor.execute("ANALYZE runs_logline")
        cursor.execute("EXPLAIN SELECT * FROM runs_logline WHERE run_id = %s ORDER BY id DESC LIMIT 30", [run])
        assert "runs_logline_by_run" in "".join(row[0] for row in cursor.fetchall())
