"""Calendars, deadlines and absences over HTTP: administrators set them, what is wrong is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals.models import Calendar, Timing
from ledger.models import ActRecord
from tests.cases import each_case
from tests.integration.api.conftest import Api

pytestmark = pytest.mark.django_db
WHY = "as agreed with the works council"
WEEK = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-12:00, 13:00-18:00")
DE = {"name": "DE", "zone": "Europe/Berlin", "week": WEEK, "justification": WHY}


@pytest.fixture
def admin(caller: Callable[[Any], Api]) -> Api:
    return caller("superuser")


def wrong(answer: Any) -> set[str]:
    assert answer.status_code == 422, answer.content
    return {each["field"].partition(".")[0] for each in answer.json()["errors"]}


def test_a_calendar_is_set_shown_set_anew_and_removed(admin: Api) -> None:
    body = DE | {"holidays": [{"day": "2026-12-25", "name": "Christmas Day"}]}
    made = admin.post("calendars", body)
    assert made.status_code == 201 and made.json()["version"] == 1
    shown = admin.get("calendars/DE").json()
    assert shown["week"]["mon"] == WEEK["mon"] and shown["week"]["sun"] == "" and shown["is_genuine"]
    assert {"on a Friday afternoon", "at a weekend"} <= {each["what"] for each in shown["preview"]}
    friday = next(each for each in shown["preview"] if each["what"] == "on a Friday afternoon")
    assert friday["asked"][11:16] == "16:00" and friday["due"] > friday["asked"]
    assert admin.get("calendars/DE?hours=0").status_code == 400
    assert "week" in wrong(admin.post("calendars", body)), "nothing in it is new"
    assert admin.post("calendars", body | {"zone": "Europe/Vienna"}).json()["version"] == 2
    assert admin.post("queues/legal/timing", {"calendar": "DE", "justification": WHY}).status_code == 200
    assert admin.post("calendars/DE/remove", {"justification": WHY}).json()["code"] == "calendar-in-use"
    assert admin.get("calendars").json()["results"][0]["used_by"] == ["legal"]
    admin.post("queues/legal/timing", {"justification": WHY, "remind": [50]})
    assert admin.post("calendars/DE/remove", {"justification": WHY}).status_code == 200
    assert admin.get("calendars/DE").status_code == 404 and admin.get("calendars").json()["results"] == []
    assert admin.post("calendars", body).json()["version"] == 4
    acts = list(ActRecord.objects.order_by("id").values_list("action", flat=True))
    assert acts == ["calendar"] * 2 + ["queue_timing"] * 2 + ["calendar_remove", "calendar"]
    assert all(row.is_genuine for row in [*Calendar.objects.all(), *Timing.objects.all()])


@each_case(
    ("changed", "field"),
    [
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"zone": "../etc/passwd"}, "zone"),
        ({"week": {}}, "week"),
        ({"week": {"mon": "18:00-09:00"}}, "week"),
        ({"week": {"mon": "09:00-25:00"}}, "week"),
        ({"week": {"mon": "09:00-12:00, 11:00-13:00"}}, "week"),
        ({"week": {"mon": "always"}}, "week"),
        ({"week": {"mon": "00:00-00:30"}}, "week"),
        ({"week": {"someday": "09:00-17:00"}}, "week"),
        ({"name": "a b"}, "name"),
        ({"name": "x" * 41}, "name"),
        ({"name": "../x"}, "name"),
        ({"holidays": [{"day": "2026-02-30", "name": "never"}]}, "holidays"),
        ({"holidays": [{"day": "2026-12-25", "name": "one"}, {"day": "2026-12-25", "name": "two"}]}, "holidays"),
        ({"holidays": [{"day": "1026-12-25", "name": "old"}]}, "holidays"),
        ({"holidays": [{"day": "2026-12-25", "name": "\u202ehidden"}]}, "holidays"),
        ({"holidays": [{"day": "2026-12-25", "name": "x"}] * 401}, "holidays"),
    ],
)
def test_a_calendar_that_makes_no_sense_is_refused_by_its_field(admin: Api, changed: Any, field: str) -> None:
    assert field in wrong(admin.post("calendars", DE | changed))
    assert not Calendar.objects.exists() and not ActRecord.objects.exists()


@each_case(
    ("said", "field"),
    [
        ({"calendar": "XX"}, "calendar"),
        ({"on_timeout": "approve"}, "on_timeout"),
        ({"on_timeout": "escalate"}, "steps"),
        ({"steps": [{"to": "legal", "hours": 8}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "finance_po", "hours": 8}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "nowhere", "hours": 8}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "legal", "hours": 8}] * 2}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "legal", "hours": 0.001}]}, "steps"),
        ({"on_timeout": "escalate", "steps": [{"to": "legal", "hours": -1}]}, "steps"),
        ({"remind": [0]}, "remind"),
        ({"remind": [100]}, "remind"),
        ({"remind": [50, 50]}, "remind"),
        ({"remind": [10, 20, 30, 40, 50, 60]}, "remind"),
        ({"every_hours": 4}, "every_hours"),
        ({"at_once_if_away": True}, "at_once_if_away"),
    ],
)
def test_deadlines_that_make_no_sense_are_refused_by_their_field(admin: Api, said: Any, field: str) -> None:
    assert field in wrong(admin.post("queues/finance_po/timing", said | {"justification": WHY}))
    assert not Timing.objects.exists()


def test_one_says_for_oneself_that_one_is_away_and_an_administrator_for_anybody(
    admin: Api, caller: Callable[[Any], Api]
) -> None:
    approver = caller("approver_legal")
    name = User.objects.get(groups__name="approver_legal").username
    body = {"ends_at": (timezone.now() + timedelta(days=2)).isoformat(), "justification": WHY}
    made = approver.post("absences", body)
    assert made.status_code == 201 and made.json()["name"] == name
    assert admin.get("queues/legal/timing").json()["is_deserted"] is True
    assert caller("operator").post("absences", body | {"person": name}).status_code == 403
    assert caller("operator").post(f"absences/{made.json()['id']}/end", {"justification": WHY}).status_code == 403
    assert approver.post(f"absences/{made.json()['id']}/end", {"justification": WHY}).status_code == 200
    assert approver.post(f"absences/{made.json()['id']}/end", {"justification": WHY}).status_code == 409
    assert admin.get("queues/legal/timing").json()["is_deserted"] is False
    assert admin.post("absences", body | {"person": name}).status_code == 201
    assert "person" in wrong(caller("operator").post("absences", body)), "who decides nothing is not missed"
    assert "ends_at" in wrong(approver.post("absences", body | {"ends_at": "2020-01-01T00:00:00Z"}))
