"""Schedules by API and page: who may do what, bad input, forms sent twice, and rows changed outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from durableagents.contrib.schedules import starting
from durableagents.contrib.schedules.models import Schedule
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from runs.models import Run
from tests.integration.api.conftest import START, Api, is_problem
from tests.integration.api.test_roads import intruder
from tests.integration.console.conftest import Reader, text_of
from tests.rewriting import rewrite

pytestmark = pytest.mark.django_db
Callers = Callable[[str | None], Api]
Readers = Callable[..., Reader]
NIGHTLY = START | {"name": "Nightly", "cron": "30 6 * * mon-fri", "zone": "Europe/Berlin"}
WHY = {"justification": "for the test"}


def create(api: Api, **changed: Any) -> dict[str, Any]:
    answer = api.post("schedules", NIGHTLY | changed)
    assert answer.status_code == 201, answer.content
    return answer.json()


def save(reader: Reader, **changed: str) -> Any:
    given = {
        "name": "Nightly",
        "agent": "buyer@1.0.0",
        "cron": "30 6 * * mon-fri",
        "zone": "Europe/Berlin",
        "missed": "once",
        "overlap": "queue",
        "input": '{"item": "chairs"}',
        "token": hidden(reader, "token"),
    }
    return reader.client.post("/schedules/new", given | changed)


def hidden(reader: Reader, name: str, address: str = "/schedules") -> str:
    found = re.search(rf'name="{name}" value="([^"]+)"', reader.client.get(address).content.decode())
    assert found is not None
    return found[1]


def test_api_creates_changes_pauses_resumes_and_deletes(caller: Callers) -> None:
    integrator, auditor = caller("integrator"), caller("auditor")
    one = create(integrator)
    assert len(one["next"]) == 3 and one["last"] == [] and one["missed"] == one["overlap"] == "skip"
    where = f"schedules/{one['id']}"
    assert auditor.get(where).json() == one and auditor.get("schedules").json()["results"] == [one]
    changed = integrator.post(where, NIGHTLY | {"cron": "@daily", "overlap": "queue"}).json()
    assert (changed["cron"], changed["overlap"], changed["id"]) == ("@daily", "queue", one["id"])
    paused = integrator.post(f"{where}/pause", WHY).json()
    assert paused["is_paused"] and paused["next"] == []
    assert is_problem(integrator.post(f"{where}/pause", WHY), 409, "illegal-state")
    assert is_problem(integrator.post(f"{where}/resume", {}), 422, "justification-required")
    assert len(integrator.post(f"{where}/resume", WHY).json()["next"]) == 3
    assert integrator.post(f"{where}/delete", WHY).status_code == 200
    assert is_problem(integrator.get(where), 404) and auditor.get("schedules").json()["results"] == []
    first, again = (integrator.post("schedules", NIGHTLY, headers={"Idempotency-Key": "s"}) for _ in range(2))
    assert first.content == again.content and Schedule.objects.filter(deleted_at=None).count() == 1


def test_bad_schedules_are_refused_by_field(caller: Callers) -> None:
    integrator = caller("integrator")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": 5}, "cron"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"overlap": "debounce"}, "overlap"),
        ({"input": {"item": ""}}, "input.item"),
        ({"input": None}, "input"),
        ({"name": "x" * 101}, "name"),
        ({"start_at": "soon"}, "start_at"),
    ]
    for changed, field in wrong:
        answer = integrator.post("schedules", NIGHTLY | changed)
        assert is_problem(answer, 422, "invalid-input"), answer.json()
        assert field in [each["field"] for each in answer.json()["errors"]], (changed, answer.json())
    assert not Schedule.objects.exists()


def test_integrators_reach_their_own_schedules_and_operators_all(caller: Callers) -> None:
    integrator, operator = caller("integrator"), caller("operator")
    where = f"schedules/{create(operator)['id']}"
    assert is_problem(integrator.get(where), 404) and integrator.get("schedules").json()["results"] == []
    for path in (where, f"{where}/pause", f"{where}/delete"):
        for body in ({}, NIGHTLY | WHY):
            assert is_problem(integrator.post(path, body), 404, "not-found"), "hidden, whatever the body"
    assert operator.post(f"schedules/{create(integrator)['id']}/pause", WHY).status_code == 200


def test_page_saves_pauses_resumes_and_deletes_on_record(reader: Readers) -> None:
    integrator = reader("integrator")
    assert save(integrator).status_code == 302
    one = Schedule.objects.get()
    page = integrator.read("/schedules")
    assert "Nightly" in page and "30 6 * * mon-fri" in page and "Europe/Berlin" in page
    auditor = reader("auditor").client.get("/schedules").content.decode()
    assert "Nightly" in auditor and "Pause…" not in auditor and "Add schedule" not in auditor
    for act, word in (("pauses", "paused"), ("resumptions", "on"), ("deletions", "")):
        answer = integrator.client.post(f"/schedules/{one.id}/{act}", WHY)
        assert answer.status_code == 302
        assert word in integrator.read("/schedules")
    assert "Nightly" not in integrator.read("/schedules")
    acts = ActRecord.objects.filter(subject=f"schedule {one.id}").order_by("id").values_list("action", flat=True)
    assert list(acts) == ["schedule", "schedule_pause", "schedule_resume", "schedule_delete"]


def test_form_sent_twice_creates_one_schedule(reader: Readers) -> None:
    integrator = reader("integrator")
    token = hidden(integrator, "token")
    assert [save(integrator, token=token).status_code for _ in range(2)] == [302, 302]
    assert Schedule.objects.count() == 1
    other = save(integrator, token=token, name="Daily")
    assert other.status_code == 409 and "already used" in other.content.decode() and "Daily" in other.content.decode()
    for wrong in ("", "x" * 9000, hidden(reader("operator"), "token"), token[:-1]):
        answer = save(integrator, token=wrong, name="Never")
        assert answer.status_code == 422 and "identifier is missing" in answer.content.decode()
    for cron, why in (("every night", "has 2 fields instead of five"), ("", "cron")):
        page = text_of(save(integrator, cron=cron, input="{broken"))
        assert "Not valid JSON: " in page and "(line 1, column 2); such as {}" in page and why in page, cron
    assert Schedule.objects.count() == 1


def test_form_keeps_what_it_has_no_field_for(reader: Readers) -> None:
    integrator = reader("integrator")
    caps = {"budget.usd": "2.50", "budget.wall_seconds": "0.0278", "tags": "night, tenant:acme"}
    assert save(integrator, **caps).status_code == 302
    one = Schedule.objects.get()
    assert one.budget == {"usd": "2.50", "wall_seconds": 101} and one.tags == ["night", "tenant:acme"]
    one.budget = {**one.budget, "steps": 40, "wall_seconds": 100}
    one.save()
    page = integrator.client.get("/schedules").content.decode()
    for text in ("start one run", "start after it", "chairs", "40", "$2.50", "tenant:acme", "Change…"):
        assert text in page
    address = f"/schedules?change={one.id}"
    form = integrator.client.get(address).content.decode()
    assert "Change Nightly" in re.sub("<[^>]+>", "", form) and "0.0278" in form and "night, tenant:acme" in form
    sent = {"cron": "0 7 * * *", "budget.usd": "3", "budget.wall_seconds": "0.0278", "tags": "night"}
    sent |= {"name": "Nightly", "agent": "buyer@1.0.0", "zone": "UTC", "missed": "all", "overlap": "skip"}
    sent |= {"input": '{"item": "desks"}', "token": hidden(integrator, "token", address)}
    sent["seen"] = hidden(integrator, "seen", address)
    answers = [integrator.client.post(f"/schedules/{one.id}/changes", sent).status_code for _ in range(2)]
    assert answers == [302, 302]
    now = Schedule.objects.get()
    assert (now.cron, now.zone, now.missed, now.overlap, now.tags) == ("0 7 * * *", "UTC", "all", "skip", ["night"])
    assert now.budget == {"usd": "3", "wall_seconds": 100, "steps": 40} and now.input["item"] == "desks"
    (act,) = ActRecord.objects.filter(action="schedule_change")
    assert act.before["cron"] == "30 6 * * mon-fri" and act.after["cron"] == "0 7 * * *"
    sent["token"] = hidden(integrator, "token", address)
    stale = integrator.client.post(f"/schedules/{one.id}/changes", sent | {"cron": "0 9 * * *"})
    assert stale.status_code == 409 and "after you read it" in stale.content.decode()
    assert "0 9 * * *" in stale.content.decode() and Schedule.objects.get().cron == "0 7 * * *"


def test_schedule_changed_by_sql_starts_nothing(caller: Callers) -> None:
    """Neither as another actor, nor at an unplanned time."""
    one = Schedule.objects.get(pk=create(caller("integrator"), cron="* * * * *")["id"])
    minute = timezone.now().replace(second=0, microsecond=0)
    before = minute - timedelta(minutes=1)
    rewrite(Schedule.objects.all(), next_at=before)
    for column, forged, authentic in (("owner", one.owner + 1, one.owner), ("next_at", minute, before)):
        with intruder() as cursor:
            cursor.execute(f"UPDATE runs_schedule SET {column} = %s", [forged])
        assert not starting.start_next_due(one.pk) and not Run.objects.exists()
        problems = [problem for listed in verify_registers() for problem in listed.problems]
        assert "outside the application" in Schedule.objects.get().trouble
        assert any("schedule 'Nightly'" in problem for problem in problems)
        with intruder() as cursor:
            cursor.execute(f"UPDATE runs_schedule SET {column} = %s", [authentic])
    assert starting.start_next_due(one.pk) and Run.objects.get().creator == one.owner, "restored: it starts again"
