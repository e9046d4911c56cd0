"""The page of what starts by the clock, and the start form's key and time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import ActRecord
from runs.models import Schedule
from tests.integration.console.conftest import Reader

pytestmark = pytest.mark.django_db


@pytest.fixture
def integrator(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator")


def set_one(somebody: Reader, **changed: str) -> Any:
    given = {
        "name": "Nightly",
        "agent": "buyer@1.0.0",
        "cron": "30 6 * * mon-fri",
        "zone": "Europe/Berlin",
        "missed": "once",
        "overlap": "queue",
        "input": '{"item": "chairs"}',
        "token": hidden(somebody, "token"),
    }
    return somebody.client.post("/schedules/new", given | changed)


def hidden(somebody: Reader, name: str, address: str = "/schedules") -> str:
    """What the form of a page carries besides what is typed."""
    found = re.search(rf'name="{name}" value="([^"]+)"', somebody.client.get(address).content.decode())
    assert found is not None
    return found[1]


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


def test_a_form_sent_twice_sets_one_and_one_without_its_mark_none(integrator: Reader, reader: Any) -> None:
    token = hidden(integrator, "token")
    assert [set_one(integrator, token=token).status_code for _ in range(2)] == [302, 302]
    assert Schedule.objects.count() == 1
    other = set_one(integrator, token=token, name="Daily")
    assert (
        other.status_code == 409 and "with other values" in other.content.decode() and "Daily" in other.content.decode()
    )
    assert set_one(integrator, token=hidden(integrator, "token"), name="Daily").status_code == 302
    for wrong in ("", "x" * 9000, hidden(reader("operator"), "token"), token[:-1]):
        answer = set_one(integrator, token=wrong, name="Never")
        assert answer.status_code == 422 and "without the mark" in answer.content.decode()
    assert Schedule.objects.count() == 2


def test_it_is_set_anew_from_what_the_page_shows_and_what_it_has_no_field_for_stays(integrator: Reader) -> None:
    caps = {"budget.usd": "2.50", "budget.wall_seconds": "0.0278", "tags": "night, tenant:acme"}
    assert set_one(integrator, **caps).status_code == 302
    one = Schedule.objects.get()
    assert one.budget == {"usd": "2.50", "wall_seconds": 101} and one.tags == ["night", "tenant:acme"]
    one.budget = {**one.budget, "steps": 40, "wall_seconds": 100}
    one.save()
    page = integrator.client.get("/schedules").content.decode()
    for told in ("start one run for all", "begin after it", "chairs", "40", "$2.50", "tenant:acme", "Change…"):
        assert told in page
    address = f"/schedules?change={one.id}"
    form = integrator.client.get(address).content.decode()
    assert "Set Nightly anew" in re.sub("<[^>]+>", "", form) and "0.0278" in form and "night, tenant:acme" in form
    sent = {"cron": "0 7 * * *", "budget.usd": "3", "budget.wall_seconds": "0.0278", "tags": "night"}
    sent |= {"name": "Nightly", "agent": "buyer@1.0.0", "zone": "UTC", "missed": "all", "overlap": "skip"}
    sent |= {"input": '{"item": "desks"}', "token": hidden(integrator, "token", address)}
    sent["seen"] = hidden(integrator, "seen", address)
    answers = [integrator.client.post(f"/schedules/{one.id}/changes", sent).status_code for _ in range(2)]
    assert answers == [302, 302]
    now = Schedule.objects.get()
    assert (now.cron, now.zone, now.missed, now.overlap, now.tags) == ("0 7 * * *", "UTC", "all", "skip", ["night"])
    assert now.budget == {"usd": "3", "wall_seconds": 100, "steps": 40} and now.input["item"] == "desks"
    (told_of,) = ActRecord.objects.filter(action="schedule_change")
    assert told_of.before["cron"] == "30 6 * * mon-fri" and told_of.after["cron"] == "0 7 * * *"
    sent["token"] = hidden(integrator, "token", address)
    stale = integrator.client.post(f"/schedules/{one.id}/changes", sent | {"cron": "0 9 * * *"})
    assert stale.status_code == 409 and "was changed since you looked" in stale.content.decode()
    assert "0 9 * * *" in stale.content.decode() and Schedule.objects.get().cron == "0 7 * * *"


def test_somebody_who_may_not_sees_no_buttons(integrator: Reader, reader: Callable[..., Reader]) -> None:
    set_one(integrator)
    page = reader("auditor").client.get("/schedules").content.decode()
    assert "Nightly" in page and "Pause…" not in page and "Set the schedule" not in page
