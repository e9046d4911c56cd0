"""Runs that go on as others, on the console: marked, linked both ways, and acted on where they are now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runs.models import Run
from runs.services import lifecycle, signals
from runs.services.succession import chain
from tests.integration.api.going import going_on
from tests.integration.console.conftest import SHOP, Reader
from tests.integration.console.stage import settled, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def old() -> Iterator[Run]:
    """A keeper that has been renewed once."""
    with going_on(), working():
        run = settled(lifecycle.start("keeper", {"letters": "", "title": "<b>Shop"}, by=SHOP), "waiting_event")
        signals.signal(run.pk, "go", "a", by=SHOP)
        until(lambda: Run.objects.filter(came_from=run.pk, state="waiting_event").exists(), "its heir")
        yield run


def test_each_page_leads_to_the_other(old: Run, operator: Reader) -> None:
    new = chain.newest(old.pk)
    page, text = operator.get(f"/runs/{old.pk}").content.decode(), operator.read(f"/runs/{old.pk}")
    assert (
        "renewed" in text and f'href="/runs/{new.pk}"' in page and "What is sent to this one reaches that one" in text
    )
    assert "/pauses" not in page and "/retries" not in page, "what has gone on is not steered here"
    page, text = operator.get(f"/runs/{new.pk}").content.decode(), operator.read(f"/runs/{new.pk}")
    assert f'href="/runs/{old.pk}"' in page and "Goes on from run" in text and "1 went before it" in text
    journal = operator.read(f"/runs/{new.pk}", tab="journal")
    assert "renewal of" in journal and "<b>Shop" not in page


def test_the_list_marks_what_has_gone_on(old: Run, operator: Reader) -> None:
    for letter in "bc":
        signals.signal(old.pk, "go", letter, by=SHOP)
    until(lambda: Run.objects.filter(agent="desk", state="completed").exists(), "the desk")
    text = operator.read("/runs", state="done")
    assert text.count("goes on as") == 3 and "handed off" in text and text.count("renewed") >= 2
