"""The page of what starts by the clock, and the start form's key and time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from ledger.models import ActRecord
from runs.models import Firing, Schedule
from runs.workers import starts
from tests.console.conftest import Reader

pytestmark = pytest.mark.django_db
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture
def integrator(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator")


def set_one(somebody: Reader, **changed: str) -> Any:
    given = {"name": "Nightly", "agent": "buyer@1.0.0", "cron": "30 6 * * mon-fri", "zone": "Europe/Berlin",
             "missed": "once", "overlap": "queue", "input": '{"item": "chairs"}'}  # fmt: skip
    return somebody.client.post("/schedules/new", given | changed)


def test_a_schedule_is_set_paused_resumed_and_deleted_on_the_record(integrator: Reader) -> None:
    assert set_one(integrator).status_code == 302
    one = Schedule.objects.get()
    page = integrator.read("/schedules")
    assert "Nightly" in page and "30 6 * * mon-fri" in page and "Europe/Berlin" in page
    for act, word in (("pauses", "paused"), ("resumptions", "on"), ("deletions", "")):
        answer = integrator.client.post(f"/schedules/{one.id}/{act}", {"justification": "for the test"})
        assert answer.status_code == 302
        assert word in integrator.read("/schedules")
    assert "Nightly" not in integrator.read("/schedules")
    told = ActRecord.objects.filter(subject=f"schedule {one.id}").order_by("id").values_list("action", flat=True)
    assert list(told) == ["schedule", "schedule_pause", "schedule_resume", "schedule_delete"]


@pytest.mark.parametrize(("wrong", "word"), [
    ({"cron": "0 0 30 2 *"}, "never comes"), ({"zone": "Berlin"}, "no time zone"), ({"input": "{"}, "input"),
    ({"input": "[]"}, "input"), ({"name": ""}, "missing"), ({"stray": "x"}, "does not have"),
])  # fmt: skip
def test_what_could_start_nothing_is_refused_and_what_was_typed_is_kept(
    integrator: Reader, wrong: dict[str, str], word: str
) -> None:
    answer = set_one(integrator, **wrong)
    text = answer.content.decode()
    assert answer.status_code == 422 and "Not set." in text and not Schedule.objects.exists()
    assert "Europe/Berlin" in text or "zone" in wrong
    assert word in text


def test_an_act_without_a_reason_is_refused_and_changes_nothing(integrator: Reader) -> None:
    set_one(integrator)
    one = Schedule.objects.get()
    answer = integrator.client.post(f"/schedules/{one.id}/pauses", {"justification": " "})
    assert answer.status_code == 422 and "Not done" in answer.content.decode()
    assert not Schedule.objects.get().is_paused


def test_what_became_of_it_stands_there_and_hostile_names_are_words(integrator: Reader) -> None:
    set_one(integrator, name=HOSTILE)
    Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=1))
    starts.fire([Schedule.objects.get().id])
    Schedule.objects.update(stopped=HOSTILE, next_at=None)
    page = integrator.client.get("/schedules").content.decode()
    assert "<img" not in page and "started" in page and f"/runs/{Firing.objects.get().run_id}" in page


def test_somebody_who_may_not_sees_no_buttons(integrator: Reader, reader: Callable[..., Reader]) -> None:
    set_one(integrator)
    page = reader("auditor").client.get("/schedules").content.decode()
    assert "Nightly" in page and "Pause…" not in page and "Set the schedule" not in page
