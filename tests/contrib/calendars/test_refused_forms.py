"""Refused forms and concurrent edits: nothing typed is lost or overwritten unseen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals.models import Queue
from approvals.queue_models import Deputy
from durableagents.contrib.calendars.models import Absence, Calendar, Timing
from ledger.models import ActRecord
from tests.contrib.calendars.test_queues_console import WEEK
from tests.integration.console.conftest import Forms, Reader, agent, reader, text_of  # noqa: F401 (fixtures)
from tests.integration.console.test_queues import DE
from tests.integration.console.test_refused_forms import DE_PAGE, PAGE, WHY, form, refused_and_given_back

pytestmark = pytest.mark.django_db


# What the first person sets by each form of a queue's page, and what the second one does.
SET = {
    "changes": ({"title": "Orders"}, {"currency": "EUR"}),
    "proofs": ({"minutes": "5"}, {"type_amount": "on"}),
    "reasons": ({"reasons": "A good price"}, {"reasons": "Cheap"}),
    "grants": ({"times": "3", "days": "3"}, {"times": "5", "days": "1"}),
    "timings": ({"remind": "50"}, {"remind": "80"}),
}


@pytest.fixture
def boss(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


@pytest.fixture
def bert(db: None) -> Reader:
    return Reader(User.objects.create_superuser("bert"))


@pytest.fixture
def anna(db: None) -> Reader:
    return Reader(User.objects.create_superuser("anna"))


def test_a_refused_end_of_a_time_keeps_its_reason(boss: Reader, reader: Callable[..., Reader]) -> None:
    ann = reader("approver_legal", name="ann")
    reader("operator", name="bob")
    until = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    times = {"starts_at": "", "ends_at": until, "justification": WHY}
    assert ann.post("/queues/deputies", deputy="bob", queue="", **times).status_code == 302
    assert ann.post("/queues/absences", deputy="", **times).status_code == 302
    for row, act in ((Deputy.objects.get(), "deputies/{}/revocations"), (Absence.objects.get(), "absences/{}/endings")):
        refused_and_given_back(ann, "/queues", f"/queues/{act.format(row.pk)}", {"justification": "x" * 5000})


def stored() -> list[Any]:
    return [*Queue.objects.order_by("pk").values(), *Timing.objects.values(), *Calendar.objects.values()]


@pytest.mark.parametrize("act", SET)
def test_who_comes_second_to_a_queues_form_is_told_and_may_say_it_again(anna: Reader, bert: Reader, act: str) -> None:
    first, second = SET[act]
    at = f"{PAGE}/{act}"
    stale = form(bert, PAGE, at) | second
    assert anna.post(at, **form(anna, PAGE, at) | first).status_code == 302
    before = stored()
    answer = bert.post(at, **stale)
    assert answer.status_code == 409 and "was changed by user:anna meanwhile" in text_of(answer)
    assert stored() == before and ActRecord.objects.count() == 1
    entry = Forms(answer).sent[at]
    assert entry["seen"] != stale["seen"] and {**entry, "seen": ""} == {**stale, "seen": ""}, "the words are kept"
    assert bert.post(at, **entry).status_code == 302, "who has been told may say it again"
    assert ActRecord.objects.count() == 2


def test_a_calendar_is_added_over_none_and_changed_over_what_was_seen(anna: Reader, bert: Reader) -> None:
    assert anna.post("/queues/calendars/new", **DE | WEEK).status_code == 302
    answer = bert.post("/queues/calendars/new", **DE | WEEK | {"tue": ""})
    assert answer.status_code == 422 and "is that of the calendar DE" in text_of(answer)
    at = f"{DE_PAGE}/changes"
    stale = form(bert, DE_PAGE, at) | {"fri": ""}
    assert anna.post(at, **form(anna, DE_PAGE, at) | {"sat": "10:00-12:00"}).status_code == 302
    answer = bert.post(at, **stale)
    assert answer.status_code == 409 and "was changed by user:anna meanwhile" in text_of(answer)
    assert Calendar.objects.count() == 2
    entry = Forms(answer).sent[at] | {"justification": WHY}
    assert bert.post(at, **entry).status_code == 302 and Calendar.objects.count() == 3
    stale = form(bert, DE_PAGE, at) | {"mon": ""}
    assert anna.post(f"{DE_PAGE}/removals", justification=WHY).status_code == 302
    assert bert.post(at, **stale).status_code == 404
    assert anna.post("/queues/calendars/new", **DE | WEEK).status_code == 302, "one that was removed is none"
