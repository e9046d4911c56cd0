"""The pages of queues, policies, calendars and deadlines: administrators set them up, everybody else reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from durableagents.contrib.calendars.models import Absence, Calendar, Timing
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.integration.console.test_queues import DE, WHY

pytestmark = pytest.mark.django_db


WEEK = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-17:00") | {"sat": "", "sun": ""}


@pytest.fixture
def admin(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def test_a_calendar_is_added_tried_set_again_and_removed(admin: Reader, reader: Callable[..., Reader]) -> None:
    assert admin.post("/queues/calendars/new", **DE | WEEK).status_code == 302
    page = reader("auditor").client.get("/queues/calendars/of/DE?hours=8").content.decode()
    assert re.search(r"<b>Fri [^<]* 16:00</b> <span[^>]*>on a Friday afternoon", page), "by the clock there"
    assert re.search(r"<b>Mon [^<]* 16:00</b>", page) and "Christmas Day" in page and "calendar-form" not in page
    sent = {key: value for key, value in (DE | WEEK).items() if key != "name"}
    again = admin.post("/queues/calendars/of/DE/changes", **sent)
    assert again.status_code == 422 and "Nothing would change." in again.content.decode()
    assert admin.post("/queues/calendars/of/DE/changes", **sent | {"sat": "10:00-12:00"}).status_code == 302
    assert list(Calendar.objects.values_list("version", flat=True).order_by("version")) == [1, 2]
    assert admin.post("/queues/calendars/of/DE/removals", justification=WHY).status_code == 302
    assert admin.client.get("/queues/calendars/of/DE").status_code == 404


def test_a_queues_deadlines_are_set_and_shown(admin: Reader, reader: Callable[..., Reader]) -> None:
    admin.post("/queues/calendars/new", **DE | WEEK)
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
    assert admin.post("/queues/of/finance_po/timings", **sent).status_code == 302
    row = Timing.objects.get()
    assert (row.calendar, row.steps, row.remind, row.at_once_if_away) == ("DE", [["legal", 240]], [50, 80], True)
    page = reader("auditor").client.get("/queues/of/finance_po").content.decode()
    assert (
        "escalates to" in page
        and "after 50 % and 80 % of the time" in page
        and "rejected; escalates at once" in page
        and "timing-form" not in page
    )
    for wrong in ({"hours1": "soon"}, {"remind": "half"}, {"on_timeout": "approve"}, {"to1": "finance_po"}):
        assert admin.post("/queues/of/finance_po/timings", **sent | wrong).status_code == 422
    assert Timing.objects.count() == 1
    assert admin.post("/queues/of/finance_po/timings", **sent | {"at_once_if_away": "off"}).status_code == 302
    assert "then rejected" in reader("auditor").read("/queues/of/finance_po")


def test_somebody_is_away_and_the_queue_says_that_nobody_is_there(admin: Reader, reader: Callable[..., Reader]) -> None:
    ann = reader("approver_legal", name="ann")
    until = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    sent = {"deputy": "", "starts_at": "", "ends_at": until, "justification": WHY}
    assert ann.post("/queues/absences", **sent).status_code == 302
    page = admin.client.get("/queues/of/legal").content.decode()
    assert "Everyone is away" in page and 'data-label="away"><b>ann</b>' in page, "a phone shows no heads of tables"
    row = Absence.objects.get()
    assert f"absence-{row.pk}" in ann.client.get("/queues").content.decode()
    assert reader("operator").post(f"/queues/absences/{row.pk}/endings", justification=WHY).status_code == 403
    assert ann.post(f"/queues/absences/{row.pk}/endings", justification=WHY).status_code == 302
    assert "Everyone is away" not in admin.client.get("/queues/of/legal").content.decode()
    ann.post("/queues/absences", **sent | {"justification": "<script>alert(1)</script>"})
    assert "<script>alert" not in ann.client.get("/queues").content.decode()
