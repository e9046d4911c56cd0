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
from approvals.timing.words import hours_of, hours_typed, time_of
from tests.console.conftest import Reader, text_of

pytestmark = pytest.mark.django_db
WHY = "as agreed"
WEEK = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-17:00") | {"sat": "", "sun": ""}
DE = {"name": "DE", "zone": "Europe/Berlin", "holidays": "2026-12-25 Christmas Day\n2027-01-01", "justification": WHY}


@pytest.fixture
def boss(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def test_hours_that_nobody_could_mean_are_told_and_not_taken_for_others(
    boss: Reader, reader: Callable[..., Reader]
) -> None:
    boss.post("/queues/calendars/new", **DE | WEEK)
    client = reader("auditor").client
    for typed in ("nan", "inf", "0", "-1", "2001", "eight", "1" * 400):
        page = text_of(client.get("/queues/calendars/of/DE", {"hours": typed}))
        assert "Not a number of hours from 0 to 2000: below stands what it makes of 8" in page, typed
    for typed, shown in (("", "8"), ("2000", "2000"), ("0.5", "0.5"), ("8\x00", "8")):
        page = client.get("/queues/calendars/of/DE", {"hours": typed}).content.decode()
        assert "Not a number" not in page and f'value="{shown}"' in page, typed


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


def test_what_was_emptied_stays_so_where_something_else_is_refused(boss: Reader) -> None:
    boss.post("/queues/calendars/new", **DE | WEEK)
    sent = {key: value for key, value in (DE | WEEK).items() if key != "name"}
    answer = boss.post("/queues/calendars/of/DE/changes", **sent | {"holidays": "", "zone": "", "mon": "always"})
    page = answer.content.decode()
    assert answer.status_code == 422 and re.search(r'<textarea[^>]* name="holidays"[^>]*></textarea>', page)
    assert re.search(r'name="zone"[^>]* value=""', page)


def test_an_act_beside_that_is_refused_empties_no_form(boss: Reader) -> None:
    boss.post("/queues/calendars/new", **DE | WEEK)
    page = boss.post("/queues/calendars/of/DE/removals", justification="").content.decode()
    assert "2026-12-25 Christmas Day\n2027-01-01" in page and re.search(r'name="zone"[^>]* value="Europe/Berlin"', page)
    proofs = {"above": "5000", "risk": "", "minutes": "5", "justification": WHY}
    assert boss.post("/queues/of/finance_po/proofs", **proofs).status_code == 302
    page = boss.post("/queues/of/finance_po/removals", justification="").content.decode()
    assert re.search(r'name="above"[^>]* value="5000"', page) and re.search(r'name="minutes"[^>]* value="5"', page)
    emptied = {"above": "", "risk": "", "minutes": "", "justification": ""}
    page = boss.post("/queues/of/finance_po/proofs", **emptied).content.decode()
    assert re.search(r'name="above"[^>]* value=""', page) and re.search(r'name="minutes"[^>]* value=""', page)


def wrong_at(page: str) -> list[str]:
    """The ids of the fields at which something is said to be wrong."""
    return re.findall(r'<span class="error" id="([^"]*)_error">', page)


def test_what_is_wrong_stands_at_the_form_that_was_refused_and_at_no_other(boss: Reader) -> None:
    boss.post("/queues/calendars/new", **DE | WEEK)
    refused = {
        "/queues/absences": ["o-deputy", "o-until", "o-why"],
        "/queues/deputies": ["d-deputy", "d-until", "d-why"],
        "/queues/new": ["q-name", "q-title", "q-role", "q-why"],
        "/queues/calendars/of/DE/removals": ["x-why"],
        "/queues/of/finance_po/removals": [],
    }
    for path, fields in refused.items():
        more = {"deputy": "nobody at all", "ends_at": ""} if "o-deputy" in fields or "d-deputy" in fields else {}
        answer = boss.post(path, **more, justification="")
        found = wrong_at(answer.content.decode())
        assert answer.status_code == 422 and set(found) <= set(fields), (path, found)
        assert bool(found) is bool(fields), path


@pytest.mark.parametrize("minutes", [1, 7, 20, 61, 480, 1234567])
def test_deadlines_as_they_are_shown_are_no_change(boss: Reader, minutes: int) -> None:
    sent = {
        "calendar": "",
        "on_timeout": "escalate",
        "to1": "legal",
        "hours1": hours_typed(minutes),
        "to2": "",
        "hours2": "",
        "to3": "",
        "hours3": "",
        "remind": "",
        "every_hours": "",
        "at_once_if_away": "off",
        "clock_stops_hours": hours_typed(minutes),
        "justification": WHY,
    }
    if minutes < 100_000:  # else longer than a deadline may be
        assert boss.post("/queues/of/finance_po/timings", **sent).status_code == 302
        row = Timing.objects.get()
        assert row.steps == [["legal", minutes]] and row.clock_stops == minutes
        page = boss.client.get("/queues/of/finance_po").content.decode()
        shown = dict(re.findall(r'name="(hours1|clock_stops_hours)"[^>]* value="([^"]*)"', page))
        assert shown == {name: hours_typed(minutes) for name in ("hours1", "clock_stops_hours")}
    assert round(float(hours_typed(minutes)) * 60, 6) == minutes and "e+" not in hours_of(minutes)


def test_hours_are_told_to_the_minute() -> None:
    told = {1: "1 minute", 59: "59 minutes", 60: "1 hour", 61: "1 hour 1 minute", 90: "1.5 hours", 480: "8 hours"}
    assert {minutes: hours_of(minutes) for minutes in told} == told and hours_of(0) == hours_of("8") == ""


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


def test_a_refused_form_of_deadlines_keeps_what_was_typed(boss: Reader) -> None:
    sent = {"on_timeout": "escalate", "to1": "legal", "hours1": "soon", "remind": "half", "at_once_if_away": "on"}
    answer = boss.post("/queues/of/finance_po/timings", calendar="", justification="because it is so", **sent)
    page = answer.content.decode()
    form = page[page.index('id="timing-form"') :]
    assert answer.status_code == 422 and not Timing.objects.exists()
    for kept in (
        "<option selected>legal",
        'value="soon"',
        'value="half"',
        'value="escalate" selected',
        'value="because it is so"',
        'type="checkbox" checked',
    ):
        assert kept in form, kept


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


@pytest.mark.parametrize(
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
