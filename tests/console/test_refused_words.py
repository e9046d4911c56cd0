"""What is refused is said in the page's own words, and leads to the field that it is about."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.queues.labels import FIELDS
from tests.console.conftest import Reader, text_of
from tests.console.test_refused_forms import CALENDAR, QUEUE, RULE, Forms

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


def test_a_form_that_says_what_holds_already_is_told_that_nothing_would_change(boss: Reader) -> None:
    forms = (
        (QUEUE, f"{QUEUE}/changes"),
        (QUEUE, f"{QUEUE}/proofs"),
        (QUEUE, f"{QUEUE}/grants"),
        (QUEUE, f"{QUEUE}/reasons"),
        (QUEUE, f"{QUEUE}/timings"),
        ("/queues/calendars/of/DE", "/queues/calendars/of/DE/changes"),
        ("/policies/of/dear", "/policies/of/dear/versions"),
    )
    timed = {"remind": "50", "justification": WHY}
    assert boss.post(f"{QUEUE}/timings", **timed).status_code == 302
    for page, act in forms:
        answer = boss.post(act, **Forms(boss.get(page)).sent[act] | {"justification": WHY})
        assert answer.status_code == 422, act
        assert "Nothing would change: all is as it was." in text_of(answer), act
        assert "and all else" not in text_of(answer), act


def test_a_step_without_a_queue_is_told_as_one(boss: Reader) -> None:
    typed = {"on_timeout": "escalate", "to1": "", "hours1": "8", "justification": WHY}
    answer = boss.post(f"{QUEUE}/timings", **typed)
    assert answer.status_code == 422 and "have one without a queue" in text_of(answer)
    assert "which is no queue that is open" not in text_of(answer)


def test_an_invitation_that_is_refused_is_said_at_the_top(boss: Reader) -> None:
    sent = {"username": "ada", "email": "nowhere", "days": "7", "justification": WHY}
    answer = boss.post("/people/invitations", **sent)
    assert answer.status_code == 422 and '<a href="#id_email">E-mail</a>' in alert(answer)
    taken = boss.post("/people/invitations", **sent | {"username": "boss", "email": "ada@example.org"})
    assert taken.status_code == 409 and '<a href="#id_username">User name</a>' in alert(taken)
    assert "data-alert" not in boss.get("/people").content.decode()
