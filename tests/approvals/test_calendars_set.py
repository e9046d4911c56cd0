"""What a calendar and a queue's deadlines may be set to."""

from __future__ import annotations

from datetime import date, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from approvals.calendars.asof import calendar_of
from approvals.deadlines import acts
from approvals.deadlines.bodies import Holiday, TimingBody
from approvals.deadlines.forms import CalendarForm, TimingForm
from approvals.models import Calendar
from ledger.errors import InvalidInput
from runs.engine.gate.calendars import zones
from runs.journal import wait_hooks
from tests.approvals.setup import WHY, boss
from tests.approvals.timing import OFFICE, calendar, timing
from tests.runs.stage import Stage, at_once

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(
    "zone",
    [
        "localtime",
        "posixrules",
        "Factory",
        "right/Europe/Berlin",
        "posix/Europe/Berlin",
        "europe/berlin",
        "zone.tab",
        "Europe/Berlin ",
    ],
)
def test_a_zone_that_is_another_one_on_another_machine_is_none(zone: str) -> None:
    with pytest.raises(InvalidInput, match="zone"):
        calendar(boss(), zone=zone)
    assert {"Europe/Berlin", "UTC", "America/New_York", "Asia/Kathmandu"} <= zones()


@pytest.mark.usefixtures("db")
def test_a_calendar_that_was_set_to_such_a_zone_before_works_on() -> None:
    row = Calendar(
        name="old",
        version=1,
        zone="Factory",
        week=[[[0, 1440]]] * 7,
        set_by="user:boss",
        set_at=datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
    )
    row.seal()
    row.save()
    assert calendar_of(acts.find("old")).is_open(datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("UTC")))


@pytest.mark.usefixtures("db")
def test_a_name_that_differs_by_small_and_capital_letters_alone_is_anothers() -> None:
    admin = boss()
    calendar(admin, "DE")
    for name in ("de", "De"):
        with pytest.raises(InvalidInput, match="that of the calendar DE"):
            calendar(admin, name)
    assert calendar(admin, "DE", zone="UTC").version == 2
    acts.remove_calendar("DE", by=admin, justification=WHY)
    assert calendar(admin, "de").version == 1
    with pytest.raises(InvalidInput, match="that of the calendar de"):
        calendar(admin, "DE")


def test_of_two_names_alike_at_once_one_is_added(stage: Stage) -> None:
    admin = boss()
    told = at_once(*(partial(calendar, admin, name) for name in ("DE", "de", "De", "dE") * 4))
    assert sum(isinstance(each, Calendar) and each.version == 1 for each in told) == 1
    assert len(set(Calendar.objects.values_list("name", flat=True))) == 1


@pytest.mark.parametrize(
    "given", [{"every_hours": True}, {"clock_stops_hours": False}, {"steps": [{"to": "legal", "hours": True}]}]
)
def test_true_is_no_hour(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="valid number"):
        TimingBody.model_validate(given | {"justification": WHY})
    assert TimingBody.model_validate({"every_hours": 1, "justification": WHY}).every_hours == 1


@pytest.mark.parametrize("day", [1766620800, "1766620800", "2026-12-24T00:00", "24.12.2026", True])
def test_a_day_is_written_as_one(day: Any) -> None:
    with pytest.raises(ValidationError, match="write the day as 2026-12-24"):
        Holiday.model_validate({"day": day, "name": "Christmas"})
    assert Holiday.model_validate({"day": "2026-12-24", "name": "Christmas"}).day == date(2026, 12, 24)


def refusals(form: TimingForm | CalendarForm) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as error:
        form.as_body()
    assert not any(character.isdigit() for character in error.value.detail), "no place that nobody sees"
    return [(each["field"], each["problem"]) for each in error.value.extra["errors"]]


def test_what_is_wrong_with_a_form_is_told_of_the_field_that_is_seen() -> None:
    form = TimingForm(
        on_timeout="escalate", to2="legal", hours2="many", to3="board", remind="50, half, 120%", justification=WHY
    )
    told = refusals(form)
    assert [field for field, _ in told] == ["steps", "steps", "remind", "remind"]
    begins = ("hours they have (2): ", "hours they have (3): ", "half: ", "120: ")
    assert all(problem.startswith(begin) for (_, problem), begin in zip(told, begins, strict=True))
    lines = "2026-12-25 Christmas Day\n\nsoon the fair"
    (found,) = refusals(CalendarForm(name="DE", zone="UTC", holidays=lines, justification=WHY, **OFFICE))
    assert found[0] == "holidays" and found[1].startswith("line 3: ")


def test_a_calendar_that_was_removed_is_told_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """However it came that a queue works by one: its people have other hours than its administrator thinks."""
    admin = boss()
    calendar(admin)
    timing(admin, calendar="DE")
    gone = Calendar(
        name="DE",
        version=2,
        is_removed=True,
        zone="UTC",
        week=[[]] * 7,
        set_by="user:boss",
        set_at=datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
    )
    gone.seal()
    gone.save()
    wait_hooks.queues.read()
    assert "the queue finance_po: its calendar DE was removed: it works around the clock" in caplog.text
