"""Calendars and the timing of queues over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents.contrib.calendars.models import Calendar, Timing
from ledger.models import ActRecord
from tests.cases import each_case
from tests.integration.api.conftest import Api, auditor, caller, integrator, is_problem, operator, order_agent  # noqa: F401 (fixtures)
from tests.integration.api.test_queues import (
    REASON,
    WEEK,
    admin,  # noqa: F401 (fixtures)
    wrong,
)

pytestmark = pytest.mark.django_db


DE = {"name": "DE", "zone": "Europe/Berlin", "week": WEEK, "justification": REASON}


def test_a_calendar_is_set_shown_set_again_and_removed(admin: Api) -> None:
    body = DE | {"holidays": [{"day": "2026-12-25", "name": "Christmas Day"}]}
    made = admin.post("calendars", body)
    assert made.status_code == 201 and made.json()["version"] == 1
    visible = admin.get("calendars/DE").json()
    assert visible["week"]["mon"] == WEEK["mon"] and visible["week"]["sun"] == "" and visible["is_authentic"]
    assert {"on a Friday afternoon", "at a weekend"} <= {each["what"] for each in visible["preview"]}
    friday = next(each for each in visible["preview"] if each["what"] == "on a Friday afternoon")
    assert friday["asked"][11:16] == "16:00" and friday["due"] > friday["asked"]
    assert admin.get("calendars/DE?hours=0").status_code == 400
    seen = {"headers": {"If-Match": admin.get("calendars/DE?hours=5")["ETag"]}}
    assert admin.post("calendars", body | {"zone": "Europe/Paris"}, **seen).status_code == 201
    for address, late in (
        ("calendars", body),
        ("calendars", body | {"name": "FR"}),
        ("calendars/DE/remove", {"justification": REASON}),
    ):
        assert is_problem(admin.post(address, late, **seen), 412, "changed"), address
    assert admin.get("calendars/FR").status_code == 404
    assert admin.post("calendars", body).json()["version"] == 3
    assert "week" in wrong(admin.post("calendars", body)), "nothing in it is new"
    assert admin.post("calendars", body | {"zone": "Europe/Vienna"}).json()["version"] == 4
    assert admin.post("queues/legal/timing", {"calendar": "DE", "justification": REASON}).status_code == 200
    assert admin.post("calendars/DE/remove", {"justification": REASON}).json()["code"] == "calendar-in-use"
    assert admin.get("calendars").json()["results"][0]["used_by"] == ["legal"]
    admin.post("queues/legal/timing", {"justification": REASON, "remind": [50]})
    assert admin.post("calendars/DE/remove", {"justification": REASON}).status_code == 200
    assert admin.get("calendars/DE").status_code == 404 and admin.get("calendars").json()["results"] == []
    assert admin.post("calendars", body).json()["version"] == 6
    acts = list(ActRecord.objects.order_by("id").values_list("action", flat=True))
    assert acts == ["calendar"] * 4 + ["queue_timing"] * 2 + ["calendar_remove", "calendar"]
    assert all(row.is_authentic for row in [*Calendar.objects.all(), *Timing.objects.all()])


@each_case(
    ("changed", "field"),
    [
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"week": {"mon": "09:00-25:00"}}, "week"),
        ({"week": {"mon": "always"}}, "week"),
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
    assert field in wrong(admin.post("queues/finance_po/timing", said | {"justification": REASON}))
    assert not Timing.objects.exists()
