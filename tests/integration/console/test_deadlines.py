"""Calendars, deadlines and absences in the console, and what a case and its list say of time."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals.models import Absence, Approval, Calendar, Timing
from approvals.timing.words import time_of
from tests.cases import each_case
from tests.integration.console.conftest import Reader

pytestmark = pytest.mark.django_db
WHY = "as agreed"
WEEK = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-17:00") | {"sat": "", "sun": ""}
DE = {"name": "DE", "zone": "Europe/Berlin", "holidays": "2026-12-25 Christmas Day\n2027-01-01", "justification": WHY}


@pytest.fixture
def boss(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def test_a_calendar_is_added_tried_set_anew_and_removed(boss: Reader, reader: Callable[..., Reader]) -> None:
    assert boss.post("/queues/calendars/new", **DE | WEEK).status_code == 302
    page = reader("auditor").client.get("/queues/calendars/of/DE?hours=8").content.decode()
    assert re.search(r"<b>Fri [^<]* 16:00</b> <span[^>]*>on a Friday afternoon", page), "by the clock there"
    assert re.search(r"<b>Mon [^<]* 16:00</b>", page) and "Christmas Day" in page and "calendar-form" not in page
    sent = {key: value for key, value in (DE | WEEK).items() if key != "name"}
    again = boss.post("/queues/calendars/of/DE/changes", **sent)
    assert again.status_code == 422 and "is as it was" in again.content.decode()
    assert boss.post("/queues/calendars/of/DE/changes", **sent | {"sat": "10:00-12:00"}).status_code == 302
    assert list(Calendar.objects.values_list("version", flat=True).order_by("version")) == [1, 2]
    assert boss.post("/queues/calendars/of/DE/removals", justification=WHY).status_code == 302
    assert boss.client.get("/queues/calendars/of/DE").status_code == 404


def test_what_is_refused_is_said_at_its_field_and_kept(boss: Reader) -> None:
    answer = boss.post("/queues/calendars/new", **DE | WEEK | {"mon": "always <b>", "zone": "Mars"})
    page = answer.content.decode()
    assert answer.status_code == 422 and "always &lt;b&gt;" in page and "Mars" in page and not Calendar.objects.exists()
    assert boss.post("/queues/calendars/new", **DE | dict.fromkeys(WEEK, "")).status_code == 422


def test_a_queues_deadlines_are_set_and_shown(boss: Reader, reader: Callable[..., Reader]) -> None:
    boss.post("/queues/calendars/new", **DE | WEEK)
    sent = {
        "calendar": "DE",
        "on_timeout": "escalate",
        "to1": "legal",
        "hours1": "4",
        "to2": "",
        "hours2": "",
        "to3": "",
        "hours3": "",
        "remind": "50, 80",
        "every_hours": "",
        "at_once_if_away": "on",
        "justification": WHY,
    }
    assert boss.post("/queues/of/finance_po/timings", **sent).status_code == 302
    row = Timing.objects.get()
    assert (row.calendar, row.steps, row.remind, row.at_once_if_away) == ("DE", [["legal", 240]], [50, 80], True)
    page = reader("auditor").client.get("/queues/of/finance_po").content.decode()
    assert (
        "it goes to" in page
        and "after 50 % and 80 % of the time" in page
        and "after that; at once" in page
        and "timing-form" not in page
    )
    for wrong in ({"hours1": "soon"}, {"remind": "half"}, {"on_timeout": "approve"}, {"to1": "finance_po"}):
        assert boss.post("/queues/of/finance_po/timings", **sent | wrong).status_code == 422
    assert Timing.objects.count() == 1
    assert boss.post("/queues/of/finance_po/timings", **sent | {"at_once_if_away": "off"}).status_code == 302
    assert "and is denied after that. Nothing is ever" in reader("auditor").read("/queues/of/finance_po")


def test_somebody_is_away_and_the_queue_says_that_nobody_is_there(boss: Reader, reader: Callable[..., Reader]) -> None:
    ann = reader("approver_legal", name="ann")
    until = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    sent = {"deputy": "", "starts_at": "", "ends_at": until, "justification": WHY}
    assert ann.post("/queues/absences", **sent).status_code == 302
    page = boss.client.get("/queues/of/legal").content.decode()
    assert "Nobody is there" in page and 'data-label="away"><b>ann</b>' in page, "a phone shows no heads of tables"
    row = Absence.objects.get()
    assert f"absence-{row.pk}" in ann.client.get("/queues").content.decode()
    assert reader("operator").post(f"/queues/absences/{row.pk}/endings", justification=WHY).status_code == 403
    assert ann.post(f"/queues/absences/{row.pk}/endings", justification=WHY).status_code == 302
    assert "Nobody is there" not in boss.client.get("/queues/of/legal").content.decode()
    ann.post("/queues/absences", **sent | {"justification": "<script>alert(1)</script>"})
    assert "<script>alert" not in ann.client.get("/queues").content.decode()


TERMS = {
    "on_timeout": "escalate",
    "minutes": 480,
    "is_working": True,
    "every": 0,
    "remind": [],
    "remind_at": [],
    "calendar": {"name": "DE", "version": 2, "zone": "Europe/Berlin"},
    "steps": [{"to": "legal", "minutes": 60}],
}


@each_case(
    ("more", "says"),
    [
        ({"timing": None}, ["Nobody deciding by then denies it."]),
        ({"timing": TERMS}, ["8 working hours, calendar DE (version 2, Europe/Berlin)", "legal for 1 working hour"]),
        ({"timing": TERMS, "escalated_to": ["legal"]}, ["Nobody answered in time, so legal", "denies it"]),
        ({"timing": TERMS | {"on_timeout": "remind"}, "reminded": 3}, ["There is no deadline", "Reminded 3 times."]),
        ({"timing": None, "state": "expired"}, ["That is no rejection"]),
        ({"timing": {"on_timeout": 7, "steps": [None]}}, []),
    ],
)
def test_a_question_tells_its_time_in_plain_words(more: dict[str, Any], says: list[str]) -> None:
    told = time_of(Approval(**({"state": "open"} | more)))
    whole = " ".join([told.counted, told.then, told.so_far, told.ended])
    assert all(each in whole for each in says), whole
