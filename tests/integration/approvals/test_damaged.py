"""Rows that none of our processes wrote, and that nobody can read: they give nothing, and break nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from approvals.calendars.asof import all_of_them, next_version
from approvals.deadlines import acts
from approvals.models import Approval, Calendar, Timing
from approvals.queue_models import Limit, Queue
from approvals.queues import acts as queue_acts
from approvals.queues.bodies import QueueChangeBody
from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.verification.registers import verify_registers
from runs.journal import wait_hooks
from tests.cases import each_case
from tests.integration.approvals.setup import WHY, asked, away, boss, limited, say, somebody
from tests.integration.approvals.timing import calendar, timing
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
PAGES = ("/queues", "/queues/of/finance_po", "/queues/calendars", "/inbox", "/policies")
READS = ("/queues", "/queues/finance_po", "/queues/finance_po/timing", "/calendars")
NEVER = ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC")
HUGE = "9" * 5000  # more digits than Python reads


def forge(statement: str, *values: Any) -> None:
    """As somebody with the application's rights in the database does it."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
    wait_hooks.queues.forget()


def forge_timing(
    version: int = 1, set_at: str = "now", steps: str = "[]", code: bytes | None = None, queue: str = "finance_po"
) -> None:
    forge(
        "INSERT INTO approvals_timing (queue_id, version, calendar, on_timeout, steps, remind, every, at_once_if_away,"
        " set_by, set_at, code) SELECT id, %s, '', 'escalate', %s, '[]', 0, false, 'user:admin', %s, %s"
        " FROM approvals_queue WHERE name = %s",
        version,
        steps,
        set_at,
        code,
        queue,
    )


def forge_calendar(
    name: str, version: int = 1, zone: str = "UTC", week: str = "[]", holidays: str = "[]", is_removed: bool = False
) -> None:
    forge(
        "INSERT INTO approvals_calendar (name, version, zone, week, holidays, is_removed, set_by, set_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, 'x', now())",
        name,
        version,
        zone,
        week,
        holidays,
        is_removed,
    )


def forge_deputy(principal: int | None, deputy: int | None, until: str = "infinity") -> None:
    forge(
        "INSERT INTO approvals_deputy (principal, deputy, starts_at, ends_at, reason, set_by, made_at, revoked_by,"
        " code) VALUES (%s, %s, '2020-01-01', %s, 'x', 'user:ann', %s, '', %s)",
        principal,
        deputy,
        until,
        until,
        bytes(33),
    )


def client_of(by: Actor) -> Client:
    found = Client()
    found.force_login(User.objects.get(pk=by.person))
    return found


def statuses(by: Actor, paths: Sequence[str] = PAGES, reads: Sequence[str] = READS) -> dict[str, int]:
    """What somebody is answered, where it is not simply the page."""
    client = client_of(by)
    told = {path: client.get(path).status_code for path in [*paths, *(f"/api/v1{each}" for each in reads)]}
    return {path: status for path, status in told.items() if status not in (200, 403)}


# --- what a queue says of time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("set_at", NEVER)
def test_a_forged_time_that_no_calendar_of_ours_has_stops_no_run(stage: Stage, tools: Toolbox, set_at: str) -> None:
    admin = boss()
    forge_timing(set_at=set_at, queue="legal")
    forge_timing(set_at=set_at, code=bytes(33))
    approval = asked(stage, tools)
    assert approval.timing is None
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed" and statuses(admin, reads=()) == {}


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
    told = client_of(admin).get("/api/v1/queues/finance_po/timing").json()
    assert (told["on_timeout"], told["version"], told["is_genuine"]) == ("remind", 4, True)


@pytest.mark.usefixtures("db")
def test_more_forged_versions_than_are_looked_at_are_named_as_what_is_wrong() -> None:
    admin = boss()
    for n in range(5):
        forge_timing(2147483647 - n)
    with pytest.raises(InvalidInput, match="that were not put there by this installation"):
        timing(admin, on_timeout="remind")
    assert next_version([], 0) == 1 and next_version([1, 2, 9], 2) == 10
    assert next_version([1, 2, 2147483647], 1) == 3 and next_version([2147483646, 2147483647], 2147483645) is None


# --- calendars --------------------------------------------------------------------------------------------------------


BAD = {
    "a/b": {},
    "": {},
    "garb": {"zone": "Nowhere", "week": '{"a": 1}', "holidays": '{"b": 2}'},
    "garb2": {"week": '"x"', "holidays": '[["2026-99-99", "x"]]'},
    "garb3": {"week": "[[[0, 99999]], 1]"},
    "garb4": {"week": f"[{HUGE}]", "holidays": "[1e400]"},
    "\u202e": {},
}


@pytest.mark.usefixtures("db")
def test_forged_calendars_break_no_page_and_are_shown_as_what_they_are() -> None:
    admin = boss()
    for name, what in BAD.items():
        forge_calendar(name, **what)
    assert (
        statuses(
            admin,
            [*PAGES, "/queues/calendars/of/garb", "/queues/calendars/of/garb2"],
            [*READS, "/calendars/garb", "/calendars/garb4"],
        )
        == {}
    )
    page = client_of(admin).get("/queues/calendars").content.decode()
    assert page.count("not genuine: does not count") == len(BAD) and 'calendars/of/garb3"' in page
    assert "/of/a/b" not in page and "/of/a%2Fb" not in page


@pytest.mark.usefixtures("db")
def test_a_forged_calendar_can_be_set_anew_and_taken_away() -> None:
    admin = boss()
    for name in ("DE", "garb"):
        forge_calendar(name, week='"x"', zone="Nowhere", version=2147483647)
    assert calendar(admin).version == 1
    acts.remove_calendar("garb", by=admin, justification=WHY)
    assert [(row.name, row.version) for row in all_of_them()] == [("DE", 1)]
    forge_calendar("DE", 2, is_removed=True)
    assert acts.find("DE").version == 1 and calendar(admin, zone="UTC").version == 3
    assert client_of(admin).get("/api/v1/calendars/DE").json()["zone"] == "UTC"


@pytest.mark.usefixtures("db")
def test_a_queue_is_set_to_no_calendar_that_is_not_genuine() -> None:
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
    page = client_of(admin).get("/queues/of/finance_po").content.decode()
    assert "<option selected>DE</option>" in page, "a forged row takes it off no form"


# --- people -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", NEVER)
def test_a_forged_deputy_locks_nobody_out(stage: Stage, tools: Toolbox, until: str) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "approver_finance", "operator")
    approval = asked(stage, tools)
    forge_deputy(ann.person, bob.person, until)
    assert statuses(bob) == statuses(ann) == {}
    assert client_of(bob).get(f"/inbox/{approval.id}").status_code == 200
    say(approval, bob)
    assert stage.drive() == "completed"


def test_a_forged_deputy_is_shown_nothing(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "integrator")
    approval = asked(stage, tools)
    forge_deputy(ann.person, bob.person)
    over_api = f"/api/v1/approvals/{approval.id}"
    assert client_of(bob).get(over_api).status_code == 404
    away(ann, "bob")
    assert client_of(bob).get(over_api).status_code == 200


@pytest.mark.usefixtures("db")
@each_case("at", NEVER)
def test_a_forged_absence_breaks_no_page(at: str) -> None:
    ann = somebody("ann", "approver_finance")
    for ends_at in (at, "infinity"):
        forge(
            "INSERT INTO approvals_absence (person, starts_at, ends_at, reason, set_by, made_at, ended_by)"
            " VALUES (%s, '-infinity', %s, 'x', 'user:ann', clock_timestamp(), '')",
            ann.person,
            ends_at,
        )
    assert statuses(ann) == {}


# --- limits and queues ------------------------------------------------------------------------------------------------


def test_a_forged_limit_that_has_ended_leaves_room_for_one_that_is_set(stage: Stage, tools: Toolbox) -> None:
    admin, ann = boss(), somebody("ann", "approver_finance")
    approval = asked(stage, tools)
    forge(
        "INSERT INTO approvals_limit (queue_id, person, most, currency, set_by, set_at, ended_at, ended_by)"
        " SELECT id, %s, 'NaN', 'USD', 'x', 'infinity', 'infinity', 'x' FROM approvals_queue WHERE name = 'finance_po'",
        ann.person,
    )
    assert statuses(admin) == {}
    limited(admin, "9000", "ann")
    say(approval, ann)
    assert Approval.objects.get().state == "approved" and Limit.objects.count() == 2


@pytest.mark.parametrize("proof", [f'{{"above": {HUGE}}}', '{"above": 0.5}', '"x"', "[" * 3000 + "]" * 3000])
def test_a_queue_whose_proof_nobody_can_read_is_not_genuine(stage: Stage, tools: Toolbox, proof: str) -> None:
    admin, ann = boss(), somebody("ann", "approver_finance")
    approval = asked(stage, tools)
    forge("UPDATE approvals_queue SET proof = %s, changed_at = 'infinity' WHERE name = 'finance_po'", proof)
    assert statuses(admin) == statuses(ann) == {}
    with pytest.raises(Exception, match="changed past this installation"):
        say(approval, ann)
    forge("UPDATE approvals_queue SET proof = NULL WHERE name = 'finance_po'")
    queue_acts.change("finance_po", QueueChangeBody(role="approver_finance", justification=WHY), by=admin)
    say(approval, ann)


# --- verification -----------------------------------------------------------------------------------------------------


def set_up() -> list[str]:
    """What verification finds wrong with what is set up."""
    return [each for listed in verify_registers() if listed.name == "what is set up" for each in listed.problems]


def test_verification_names_each_row_that_was_forged(stage: Stage, tools: Toolbox) -> None:
    admin, ann = boss(), somebody("ann", "approver_finance")
    somebody("bob", "operator")
    assert [listed.name for listed in verify_registers()] == ["acts", "accounts"], "nobody has set anything up"
    calendar(admin)
    timing(admin, calendar="DE")
    limited(admin, "9000", "ann")
    away(ann, "bob")
    (listed,) = [each for each in verify_registers() if each.name == "what is set up"]
    assert listed.problems == [] and listed.records == 4 + Queue.objects.count()
    forge_timing(2)
    forge_calendar("DE", 2147483647, week="1")
    forge_calendar("garb", week=f"[{HUGE}]")
    forge_deputy(ann.person, admin.person)
    forge(
        "INSERT INTO approvals_absence (person, starts_at, ends_at, reason, set_by, made_at, ended_by)"
        " VALUES (%s, now(), 'infinity', 'x', 'user:ann', now(), '')",
        ann.person,
    )
    forge("UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'")
    forge("UPDATE approvals_limit SET ended_at = now()")
    found = " ".join(set_up())
    assert len(set_up()) == 7
    for what in (
        "queue finance_po",
        "limit ",
        "deputy ",
        "calendar 'DE', version 2147483647",
        "calendar 'garb'",
        "says of deadlines, version 2",
        "absence ",
    ):
        assert what in found
