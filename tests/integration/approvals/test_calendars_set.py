"""What a calendar and a queue's deadlines may be set to."""

from __future__ import annotations

from functools import partial

import pytest

from approvals.deadlines.forms import CalendarForm, TimingForm
from approvals.models import Calendar
from ledger.errors import InvalidInput
from runs.engine.gate.calendars import zones
from tests.cases import each_case
from tests.integration.approvals.setup import WHY, boss
from tests.integration.approvals.timing import OFFICE, calendar
from tests.integration.runs.stage import Stage, at_once

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("db")
@each_case(
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


def test_of_two_names_alike_at_once_one_is_added(stage: Stage) -> None:
    admin = boss()
    told = at_once(*(partial(calendar, admin, name) for name in ("DE", "de", "De", "dE") * 4))
    assert sum(isinstance(each, Calendar) and each.version == 1 for each in told) == 1
    assert len(set(Calendar.objects.values_list("name", flat=True))) == 1


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
