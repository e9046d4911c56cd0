"""What is refused is said in the page's own words, and leads to the field that it is about."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.queues.labels import FIELDS
from tests.integration.console.conftest import Reader
from tests.integration.console.test_refused_forms import CALENDAR, QUEUE, RULE

pytestmark = pytest.mark.django_db
WHY = "because it is so"
PAGES = {
    QUEUE: (
        "QueueLimits",
        "QueueLifts",
        "QueueProofs",
        "QueueChanges",
        "QueueClosings",
        "QueueRemovals",
        "QueueReasons",
        "QueueGrants",
        "QueueTimings",
    ),
    "/queues": ("add_queue", "absence", "deputy"),
    "/queues/calendars": ("add_calendar",),
    "/queues/calendars/of/DE": ("CalendarChanges", "CalendarRemovals"),
    "/policies": ("add",),
    "/policies/of/dear": ("change", "retire"),
}
MADE = CALENDAR | {"name": "DE", "holidays": "2026-12-25 Christmas Day", "justification": WHY}


@pytest.fixture
def boss(db: None) -> Reader:
    reader = Reader(User.objects.create_superuser("boss"))
    assert reader.post("/queues/calendars/new", **MADE).status_code == 302
    assert reader.post("/policies/new", **RULE, name="dear", justification=WHY).status_code == 302
    return reader


def labels(page: str) -> dict[str, str]:
    """What each field of a page is called, by its id."""
    told = {at: text_in(words) for at, words in re.findall(r'<label[^>]* for="([^"]+)"[^>]*>(.*?)</label>', page, re.S)}
    boxes = re.findall(r'<label class="row"><input id="([^"]+)"[^>]*>(.*?)</label>', page, re.S)
    return told | {at: text_in(words) for at, words in boxes}


def text_in(words: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", words))).strip()


def alert(answer: Any) -> str:
    """The note that a screen reader is told, and that has the focus."""
    found = re.search(r"<(div|p)[^>]*data-alert>(.*?)</\1>", answer.content.decode(), re.S)
    assert found is not None
    return found[2]


def test_every_field_that_is_named_stands_on_its_page_under_that_name(boss: Reader) -> None:
    for path, acts in PAGES.items():
        page = boss.get(path).content.decode()
        shown = labels(page)
        for act in acts:
            for name, (at, label) in FIELDS[act].items():
                if name not in ("confirm", "week"):  # which is asked for when it is needed; of which there are seven
                    assert shown[at].startswith(label), (act, name, shown.get(at))
    assert {act for acts in PAGES.values() for act in acts} == FIELDS.keys() - {"QueueOpenings", "try", "restore"}


def test_what_is_refused_leads_to_its_field_by_the_name_that_it_has_there(boss: Reader) -> None:
    answer = boss.post(f"{QUEUE}/proofs", above="100", risk="", minutes="-5", type_amount="on", justification=WHY)
    note = alert(answer)
    assert answer.status_code == 422 and "minutes</a>: " in note and "does not fit" not in note
    assert '<a href="#p-minutes">Its person has shown who they are within, in minutes</a>' in note
    answer = boss.post(f"{QUEUE}/changes", title="T", role="nope", currency="USD", justification="")
    assert '<a href="#c-why">Why</a>' in alert(answer)
    stray = boss.post(f"{QUEUE}/changes", title="T", role="nope", currency="USD", justification=WHY, more="x")
    assert stray.status_code == 422 and "does not have" in alert(stray) and "#" not in alert(stray)
