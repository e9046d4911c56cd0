"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest

from approvals.models import Approval
from approvals.queue_models import Deputy
from approvals.queues import acts
from approvals.queues.acts import QueueChangeBody
from approvals.versions import next_version
from durableagents.contrib.calendars import absences, deputies
from durableagents.contrib.calendars import services as deadline_acts
from durableagents.contrib.calendars.models import Absence, Calendar, Timing
from durableagents.contrib.calendars.versions import current_calendars
from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.verification.registers import protected_rows
from tests.contrib.calendars.timing import away, calendar, timing
from tests.contrib.casework.test_forged_decisions import TO_LEGAL, over_api
from tests.integration.approvals.setup import WHY, asked, boss, limited, signed_in, somebody
from tests.integration.approvals.test_forged_decisions import (
    HUGE,
    PAGES,
    forge,
    forge_absence,
    forge_calendar,
    forge_deputy,
    forge_timing,
    statuses,
)
from tests.integration.approvals.test_stages import FINANCE
from tests.integration.runs.stage import Stage
from tests.tampering import run_sql
from tests.world import Toolbox

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@pytest.fixture
def lena() -> Actor:
    return somebody("lena", "approver_legal")


@pytest.fixture
def ira() -> Actor:
    return somebody("ira", "integrator")


@pytest.fixture
def case(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


def named(what: str) -> list[str]:
    return [problem for problem in protected_rows().problems if problem.startswith(what)]


def test_a_forged_deputy_who_is_ended_is_over_and_stays_forged(stage: Stage, tools: Toolbox) -> None:
    approval, ann, bob = asked(stage, tools), somebody("ann", FINANCE), somebody("bob", "operator")
    forge_deputy(ann.person, bob.person, "tomorrow")
    row = Deputy.objects.get()
    assert deputies.end_deputyship(row.pk, by=ann, justification=WHY).revoked_at is not None
    row.refresh_from_db()
    assert row.revoked_at is not None and not row.is_authentic and len(named(f"deputy '{row.pk}' ")) == 1
    ours = away(ann, "bob")
    deputies.end_deputyship(ours.pk, by=ann, justification=WHY)
    assert Deputy.objects.get(pk=ours.pk).is_authentic and named(f"deputy '{ours.pk}' ") == []
    assert approval.state == "open"


@pytest.mark.usefixtures("db")
def test_a_forged_absence_that_is_ended_is_over_and_stays_forged() -> None:
    ann = somebody("ann", FINANCE)
    forge_absence(ann.person, "tomorrow")
    row = Absence.objects.get()
    absences.end_absence(row.pk, by=ann, justification=WHY)
    row.refresh_from_db()
    assert row.ended_at is not None and not row.is_authentic and len(named(f"absence '{row.pk}' ")) == 1


def test_someone_who_is_put_in_charge_past_us_reads_nothing(case: Approval, lena: Actor, ira: Actor) -> None:
    """Neither they nor their deputy, nor the real owner until an administrator sets the queue again."""
    finn, admin = somebody("finn", "approver_finance"), boss()
    away(lena, "ira")
    assert over_api(case, lena) == (200, None) and over_api(case, finn)[1] and over_api(case, ira)[0] == 404
    run_sql(TO_LEGAL)
    assert over_api(case, lena) == (200, None) and over_api(case, ira)[0] == 404 and over_api(case, finn) == (200, None)
    (wait,) = signed_in(lena).get(f"/api/v1/runs/{case.run_id}").json()["waiting_for"]
    assert "headline" not in wait["detail"]
    assert str(case.pk) not in signed_in(ira).get("/inbox").content.decode()
    acts.change("finance_po", QueueChangeBody(role="approver_finance", justification="set right"), by=admin)
    assert over_api(case, finn)[1] and over_api(case, lena) == (200, None)


@pytest.mark.parametrize("steps", ['"x"', '{"a": 1}', "[[1, 2, 3]]", f"[{HUGE}]", "[" * 3000 + "]" * 3000, "[1e400]"])
def test_forged_steps_that_nobody_can_read_stop_no_run(stage: Stage, tools: Toolbox, steps: str) -> None:
    admin = boss()
    forge_timing(steps=steps, code=bytes(33))
    assert asked(stage, tools).timing is None
    assert statuses(admin, reads=()) == {}
    assert timing(admin, on_timeout="remind").version == 2


def test_a_forged_version_takes_nothing_away_and_can_be_followed(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    timing(admin, on_timeout="remind")
    for version in (2, 2147483647):
        forge_timing(version, code=bytes(33))
    approval = asked(stage, tools)
    assert approval.timing is not None and approval.timing["on_timeout"] == "remind"
    assert timing(admin, on_timeout="reject").version == 3
    assert timing(admin, on_timeout="remind").version == 4
    body = signed_in(admin).get("/api/v1/queues/finance_po/timing").json()
    assert (body["on_timeout"], body["version"], body["is_authentic"]) == ("remind", 4, True)


@pytest.mark.usefixtures("db")
def test_more_forged_versions_than_are_looked_at_are_named_as_what_is_wrong() -> None:
    admin = boss()
    for n in range(5):
        forge_timing(2147483647 - n)
    with pytest.raises(InvalidInput, match="that this installation did not write"):
        timing(admin, on_timeout="remind")
    assert next_version([], 0) == 1 and next_version([1, 2, 9], 2) == 10
    assert next_version([1, 2, 2147483647], 1) == 3 and next_version([2147483646, 2147483647], 2147483645) is None


@pytest.mark.usefixtures("db")
def test_a_forged_calendar_can_be_set_again_and_taken_away() -> None:
    admin = boss()
    for name in ("DE", "garb"):
        forge_calendar(name, week='"x"', zone="Nowhere", version=2147483647)
    assert calendar(admin).version == 1
    deadline_acts.remove_calendar("garb", by=admin, justification=WHY)
    assert [(row.name, row.version) for row in current_calendars()] == [("DE", 1)]
    forge_calendar("DE", 2, is_removed=True)
    assert deadline_acts.find_calendar("DE").version == 1 and calendar(admin, zone="UTC").version == 3
    assert signed_in(admin).get("/api/v1/calendars/DE").json()["zone"] == "UTC"


@pytest.mark.usefixtures("db")
def test_a_queue_is_set_to_no_calendar_that_is_not_authentic() -> None:
    admin = boss()
    forge_calendar("DE")
    with pytest.raises(InvalidInput, match="calendar"):
        timing(admin, calendar="DE")
    assert not Timing.objects.exists() and Calendar.objects.count() == 1


def test_a_queue_whose_calendar_was_forged_works_by_the_one_that_was_set(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    calendar(admin)
    timing(admin, calendar="DE")
    forge_calendar("DE", 2, zone="Nowhere", week="1")
    approval = asked(stage, tools)
    assert approval.timing is not None and approval.timing["calendar"]["version"] == 1
    assert statuses(admin, [*PAGES, "/queues/calendars/of/DE"]) == {}
    forge_calendar("DE", 3, is_removed=True)
    page = signed_in(admin).get("/queues/of/finance_po").content.decode()
    assert "<option selected>DE</option>" in page, "a forged row takes it off no form"


def test_a_forged_deputy_is_shown_nothing(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "integrator")
    approval = asked(stage, tools)
    forge_deputy(ann.person, bob.person)
    over_api = f"/api/v1/approvals/{approval.id}"
    assert signed_in(bob).get(over_api).status_code == 404
    away(ann, "bob")
    assert signed_in(bob).get(over_api).status_code == 200


def test_verification_names_each_row_that_was_forged(stage: Stage, tools: Toolbox) -> None:
    admin, ann = boss(), somebody("ann", "approver_finance")
    somebody("bob", "operator")
    calendar(admin)
    timing(admin, calendar="DE")
    limited(admin, "9000", "ann")
    away(ann, "bob")
    assert protected_rows().problems == []
    forge_timing(2)
    forge_calendar("DE", 2147483647, week="1")
    forge_calendar("garb", week=f"[{HUGE}]")
    forge_deputy(ann.person, admin.person)
    forge_absence(ann.person, "infinity")
    forge("UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'")
    forge("UPDATE approvals_limit SET ended_at = now()")
    found = sorted(each.partition(" (")[0].rstrip("'0123456789") for each in protected_rows().problems)
    assert found == sorted(
        [
            "absence ",
            "approval limit ",
            "calendar 'DE",
            "calendar 'garb",
            "deadlines of queue ",
            "deputy ",
            "queue 'finance_po",
        ]
    )
