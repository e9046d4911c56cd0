"""A transcript through the API, page by page: the same rows however it is cut, each page read for what it shows."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.story import folded
from runs.story.conversation import transcript
from tests.integration.console.conftest import agent  # noqa: F401 (fixtures)
from tests.integration.scale.test_page import long_run, scanned

pytestmark = pytest.mark.django_db


def test_a_transcript_in_pages_is_the_transcript() -> None:
    run = long_run(700)
    whole = transcript(run.id, most=10_000)
    assert len(whole) > 300 and [row.shown["seq"] for row in whole] == sorted(row.shown["seq"] for row in whole)
    numbers: dict[str, int] = {}
    for row in whole:
        assert row.shown["idx"] == numbers.get(row.shown["conversation"], 0)
        numbers[row.shown["conversation"]] = row.shown["idx"] + 1
    for size in (1, 7, 100):
        place, rows = (0, 0), []
        while some := transcript(run.id, most=size, since=place):
            rows += some
            place = some[-1].following
            if size == 1 and len(rows) > 60:
                break
            folded.forget_all() if len(rows) % 3 == 0 else None
        assert [row.shown for row in rows] == [row.shown for row in whole[: len(rows)]] and (
            size == 1 or len(rows) == len(whole)
        )
    assert [row.shown for row in transcript(run.id, most=5, skip=100)] == [row.shown for row in whole[100:105]]


@pytest.mark.timeout(300)
def test_a_page_of_a_transcript_reads_what_it_shows() -> None:
    run = long_run(3_000)
    transcript(run.id, most=10)
    for place in ((0, 0), (2_500, 0)):
        with CaptureQueriesContext(connection) as found:
            rows = transcript(run.id, most=10, since=place)
        asked = [query["sql"] for query in found.captured_queries if "xmin" not in query["sql"]]
        assert len(rows) == 10 and sum(map(scanned, asked)) <= 100, place
