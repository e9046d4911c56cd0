from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.utils import timezone
from pydantic import ValidationError

from durableagents.contrib.releases import services
from durableagents.contrib.releases.choosing import place_of
from durableagents.contrib.releases.models import Ramp, RampStart, VersionGate
from durableagents.contrib.releases.services import NotInThisState, RaiseBody, RampBody, RampMoved, StartsUnderWay
from durableagents.contrib.schedules.models import Firing, Schedule
from durableagents.contrib.schedules.services import ScheduleBody
from durableagents.contrib.schedules.services import create as set_schedule
from durableagents.contrib.schedules.starting import start_next_due
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from runs import features
from runs.api.starting import begin
from runs.engine.agents import registry
from runs.engine.errors import UnknownVersion
from runs.models import Process, Run, Served
from runs.queries.families import heads
from runs.services import lifecycle
from runs.services.bodies import StartBody
from runs.services.version_choice import Key, VersionClosed
from tests.contrib.releases.releasing import WHY, raised, ramp, seen, told
from tests.integration.runs.stage import Stage, at_once, events, fresh, kinds, problems
from tests.integration.runs.two_versions import NAME, served, start, versions
from tests.rewriting import rewrite
from tests.world import OLGA, SHOP, agent_of, ends_with

# --- closed -----------------------------------------------------------------------------------------------------------


def test_a_start_by_name_gets_the_newest_open_version_and_one_by_version_is_refused(stage: Stage) -> None:
    old, new = versions()
    assert start().version == "2.0.0"
    services.close_version(NAME, "2.0.0", by=OLGA, justification=WHY)
    assert start().version == "1.0.0"
    with pytest.raises(VersionClosed) as refused:
        start(agent=new.graph_id)
    assert (refused.value.status, refused.value.code, refused.value.extra["open"]) == (409, "version-closed", ["1.0.0"])
    assert Run.objects.count() == 2
    services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)
    with pytest.raises(VersionClosed):
        start()
    services.open_version(NAME, "2.0.0", by=OLGA, justification=WHY)
    assert start(agent=new.graph_id).version == start().version == "2.0.0"
    assert old.graph_id not in set(Run.objects.filter(created_at__gt=timezone.now()).values_list("graph_id", flat=True))


def test_who_is_under_way_goes_on_when_its_version_is_closed(stage: Stage) -> None:
    old, new = versions()
    runs = [start(agent=old.graph_id), start(agent=new.graph_id)]
    services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)
    services.close_version(NAME, "2.0.0", by=OLGA, justification=WHY)
    assert {stage.drive(), stage.drive()} == {"completed"}
    assert all(problems(run) == [] for run in runs)


@pytest.mark.parametrize(
    ("agent", "version", "error"),
    [
        ("nobody", "1.0.0", NotFound),
        (NAME, "1", InvalidInput),
        (NAME, "1.0.0; drop table", InvalidInput),
        (NAME, "01.0.0", InvalidInput),
        (NAME, "", InvalidInput),
        (NAME, "1.0." + "9" * 30, InvalidInput),
    ],
)
def test_unknown_version_is_refused(stage: Stage, agent: str, version: str, error: type[Exception]) -> None:
    versions()
    with pytest.raises(error):
        services.close_version(agent, version, by=OLGA, justification=WHY)
    assert not VersionGate.objects.exists() and not ActRecord.objects.filter(action="version_close").exists()


def test_closing_twice_without_a_word_or_without_the_role_is_refused(stage: Stage) -> None:
    versions()
    with pytest.raises(JustificationRequired):
        services.close_version(NAME, "1.0.0", by=OLGA, justification=" ")
    with pytest.raises(Forbidden):
        services.close_version(NAME, "1.0.0", by=SHOP, justification=WHY)
    with pytest.raises(NotInThisState):
        services.open_version(NAME, "1.0.0", by=OLGA, justification=WHY)
    services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)
    with pytest.raises(NotInThisState):
        services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)
    rows = ActRecord.objects.filter(subject=f"version {NAME}@1.0.0")
    assert [(one.action, one.by, one.after) for one in rows] == [("version_close", OLGA.ref, {"is_closed": True})]
    assert all(not one.problems for one in verify_registers())


def test_of_two_who_close_at_once_one_is_told_that_it_is_done(stage: Stage) -> None:
    versions()
    answers = at_once(*[lambda: services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)] * 4)
    assert sum(isinstance(answer, VersionGate) for answer in answers) == 1
    assert sum(isinstance(answer, NotInThisState) for answer in answers) == 3


def test_a_closing_waits_for_a_start_under_way_and_none_begins_after_it(stage: Stage) -> None:
    versions()
    with transaction.atomic():
        run = lifecycle.start(f"{NAME}@2.0.0", {}, by=SHOP)
        (answer,) = at_once(lambda: services.close_version(NAME, "2.0.0", by=OLGA, justification=WHY))
        assert isinstance(answer, StartsUnderWay) and answer.status == 503
    assert fresh(run).version == "2.0.0" and not VersionGate.objects.exists()
    services.close_version(NAME, "2.0.0", by=OLGA, justification=WHY)
    with transaction.atomic():
        services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)
        (later,) = at_once(lambda: start(agent="another"))  # other agents' starts wait for nobody
        assert isinstance(later, Exception) and "unknown" in type(later).__name__.lower()


def test_a_schedule_of_a_closed_version_notes_it_and_goes_on_when_it_is_opened(stage: Stage) -> None:
    versions()
    person = User.objects.create_user("planner", password="a long enough one")
    person.groups.set([Group.objects.get_or_create(name="integrator")[0]])
    by = Actor("user", "planner", role="integrator", auth="session", person=person.pk)
    body = {"name": "nightly", "agent": f"{NAME}@1.0.0", "input": {}, "cron": "* * * * *", "overlap": "allow"}
    one = set_schedule(ScheduleBody.model_validate(body), by=by)
    services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)
    for expected in (["refused"], ["refused", "started"]):
        if expected[-1] == "started":
            services.open_version(NAME, "1.0.0", by=OLGA, justification=WHY)
        # Two planned times; missed ones are skipped.
        due = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=2 - len(expected))
        rewrite(Schedule.objects.all(), next_at=due, missed="once")
        assert start_next_due(one.pk)
        assert list(Firing.objects.order_by("id").values_list("outcome", flat=True)) == expected
        assert not Schedule.objects.get().stopped and Schedule.objects.get().next_at is not None
    assert "is closed to new starts" in Firing.objects.order_by("id")[0].why


# --- a ramp -----------------------------------------------------------------------------------------------------------


def test_a_key_stays_on_its_side_and_a_raise_moves_starts_one_way_only(stage: Stage) -> None:
    served(stage, *versions())
    one = ramp(30)
    names = [f"customer-{n}" for n in range(60)]
    before = {name: start(name).version for name in names}
    assert {start(name).version == before[name] for name in names} == {True}, "the same customer, the same side"
    on_new = {name for name, version in before.items() if version == "2.0.0"}
    assert 5 <= len(on_new) <= 35
    assert on_new == {name for name in names if place_of(one.pk, Key("business_key", name)) < 3000}
    raised(one, "60.5")
    after = {name for name in names if start(name).version == "2.0.0"}
    assert on_new < after and len(after) < 60
    raised(one, 100)
    assert {start(name).version for name in names} == {"2.0.0"}


def test_the_assignment_is_on_record_with_the_start_and_in_the_ramps_own_rows(stage: Stage) -> None:
    served(stage, *versions())
    one = ramp(50)
    run = start("harbor")
    answer = told(run)
    assert (answer.ramp, answer.from_version, answer.to_version, answer.share, answer.key) == (
        one.pk,
        "1.0.0",
        "2.0.0",
        5000,
        "business_key",
    )
    assert answer.is_new is (answer.place < 5000) is (run.version == "2.0.0") and answer.why == "share"
    row = RampStart.objects.get(run_id=run.pk)
    assert (row.ramp_id, row.is_new, row.why, row.place) == (one.pk, answer.is_new, "share", answer.place)
    assert stage.drive() == "completed" and problems(run) == []
    assert events(run, e.RunClaimed)[0].cause == "start"
    exact = start(agent=f"{NAME}@1.0.0")
    assert exact.version == "1.0.0" and not events(exact, e.VersionAssigned), "who names a version gets that"


def test_a_request_that_is_repeated_under_its_key_is_on_the_same_side(stage: Stage) -> None:
    served(stage, *versions())
    ramp(50)
    sides: dict[str, set[str]] = {}
    for key in [f"order-{n}" for n in range(12)] * 2:
        with transaction.atomic():
            _, row = begin(StartBody(agent=NAME, input={}), by=SHOP, most=None, key=key)
        sides.setdefault(key, set()).add(row.version)
        assert told(Run.objects.get(pk=row.id)).key == "idempotency_key"
    assert {len(side) for side in sides.values()} == {1} and len(set.union(*sides.values())) == 2


def test_where_no_living_worker_begins_the_newer_one_the_older_is_taken_and_it_is_said(stage: Stage) -> None:
    old, new = versions()
    served(stage, old)
    ramp(100)
    assert (told(start()).why, start().version) == ("unserved", "1.0.0")
    served(stage, new)
    assert start().version == "2.0.0"
    Served.objects.filter(graph_id=new.graph_id).update(is_draining=True)
    assert told(start()).why == "unserved", "who only drains it begins none"
    Served.objects.update(is_draining=False, is_quarantined=True)
    assert told(start()).why == "unserved"
    Served.objects.update(is_quarantined=False)
    Process.objects.update(last_heartbeat_at=timezone.now() - timedelta(hours=1))
    assert told(start()).why == "unserved"


def test_while_it_is_halted_nothing_goes_to_the_newer_one_and_that_is_said(stage: Stage) -> None:
    old, new = versions()
    served(stage, old, new)
    one = ramp(100)
    Ramp.objects.filter(pk=one.pk).update(state="halted")
    run = start("k")
    assert (run.version, told(run).why, told(run).is_new) == ("1.0.0", "halted", False)
    registry.remove(old.graph_id)
    with pytest.raises(UnknownVersion):
        start("k2")


def test_a_rollback_closes_the_newer_one_and_runs_stay_where_they_are(stage: Stage) -> None:
    served(stage, *versions())
    one = ramp(100)
    run = start()
    services.roll_back_ramp(one.pk, seen(one), by=OLGA)
    one.refresh_from_db()
    assert (one.state, one.share) == ("rolled_back", 0) and one.ended_at
    assert start().version == "1.0.0" and fresh(run).version == "2.0.0"
    with pytest.raises(VersionClosed):
        start(agent=f"{NAME}@2.0.0")
    assert stage.drive() == stage.drive() == "completed"
    with pytest.raises(NotInThisState):
        services.roll_back_ramp(one.pk, seen(one), by=OLGA)
    with pytest.raises(NotInThisState):
        raised(one, 100)
    again = ramp(10)  # which opens it
    assert not VersionGate.objects.get(version="2.0.0").is_closed and again.pk != one.pk


def test_a_finished_ramp_is_the_newer_version_for_all(stage: Stage) -> None:
    served(stage, *versions())
    one = ramp(10)
    with pytest.raises(NotInThisState) as refused:
        services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)
    assert "Finish it" in refused.value.detail
    agent_of(ends_with("done"), name=NAME, version="3.0.0")
    with pytest.raises(NotInThisState) as newer:
        services.finish_ramp(one.pk, seen(one), by=OLGA)
    assert "3.0.0" in newer.value.detail
    services.close_version(NAME, "3.0.0", by=OLGA, justification=WHY)
    services.finish_ramp(one.pk, seen(one), by=OLGA)
    run = start()
    assert run.version == "2.0.0" and not events(run, e.VersionAssigned)
    services.close_version(NAME, "1.0.0", by=OLGA, justification=WHY)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"share": 0}, "share"),
        ({"share": -1}, "share"),
        ({"share": 101}, "share"),
        ({"share": "NaN"}, "share"),
        ({"share": "0.001"}, "share"),
        ({"share": "much"}, "share"),
        ({"share": None}, "share"),
        ({"tags": []}, "tags"),
        ({"tags": [" x"]}, "tags"),
        ({"tags": ["a\u202eb"]}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"agent": "nobody"}, "agent"),
        ({"from_version": "9.0.0"}, "from_version"),
        ({"to_version": "9.0.0"}, "to_version"),
        ({"to_version": "1.0.0"}, "to_version"),
        ({"failed": 0}, "failed"),
        ({"failed": 101}, "failed"),
        ({"rejected": "x"}, "rejected"),
        ({"stopped": 2.5}, "stopped"),
        ({"at_least": 0}, "at_least"),
        ({"at_least": 10**6}, "at_least"),
        ({"edited": 5}, "edited"),
    ],
    ids=str,
)
def test_no_such_ramp_can_be_and_nothing_is_half_done(stage: Stage, wrong: dict[str, Any], field: str) -> None:
    versions()
    with pytest.raises((InvalidInput, ValidationError)) as refused:
        ramp(**{"share": 10, **wrong})
    assert field in str(getattr(refused.value, "extra", refused.value))
    assert not Ramp.objects.exists() and not VersionGate.objects.exists() and not ActRecord.objects.exists()


def test_of_an_agent_one_ramp_is_under_way_also_where_two_set_one_at_once(stage: Stage) -> None:
    versions()
    answers = at_once(*[lambda: ramp(10)] * 4)
    assert sum(isinstance(answer, Ramp) for answer in answers) == 1 == Ramp.objects.count()
    assert sum(isinstance(answer, NotInThisState) for answer in answers) == 3
    versions(name="another")
    ramp(10, agent="another")


def test_who_saw_another_ramp_changes_nothing_and_of_two_at_once_one_does(stage: Stage) -> None:
    versions()
    one = ramp(10)
    raised(one, 20)
    with pytest.raises(RampMoved):
        services.finish_ramp(one.pk, seen(one), by=OLGA)
    with pytest.raises(InvalidInput):
        raised(one, 20)
    with pytest.raises(InvalidInput):
        raised(one, 5)
    one.refresh_from_db()
    body = RaiseBody(share=50, revision=one.revision, justification=WHY)
    answers = at_once(
        lambda: services.raise_ramp(one.pk, body, by=OLGA), lambda: services.roll_back_ramp(one.pk, seen(one), by=OLGA)
    )
    assert sum(isinstance(answer, RampMoved) for answer in answers) == 1
    one.refresh_from_db()
    assert (one.state, one.share) in {("on", 5000), ("rolled_back", 0)} and one.revision == 3


def test_every_act_is_on_record_with_what_was_before_and_who_may_not_is_refused(stage: Stage) -> None:
    versions()
    one = ramp(10)
    raised(one, 20)
    services.finish_ramp(one.pk, seen(Ramp.objects.get()), by=OLGA)
    made, more, end = ActRecord.objects.filter(subject=f"ramp {one.pk}").order_by("n")
    assert [made.action, more.action, end.action] == ["ramp", "ramp_raise", "ramp_finish"]
    assert (more.before["share"], more.after["share"], end.after["state"]) == (1000, 2000, "done")
    assert end.after == services.recorded(Ramp.objects.get()) and end.justification == WHY and end.by == OLGA.ref
    with pytest.raises(Forbidden):
        services.create_ramp(
            RampBody(agent=NAME, from_version="1.0.0", to_version="2.0.0", share=1, justification=WHY), by=SHOP
        )
    with pytest.raises(NotFound):
        services.find_ramp(404)
    assert all(not listed.problems for listed in verify_registers())


def test_neither_a_ramp_nor_an_assignment_is_rewritten(stage: Stage) -> None:
    served(stage, *versions())
    ramp(50)
    start("k")
    for statement in ("UPDATE runs_rampstart SET is_new = NOT is_new", "DELETE FROM runs_rampstart"):
        with pytest.raises(Exception, match="Cannot update or delete"), transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(statement)
    assert RampStart.objects.count() == 1 and "VersionAssigned" in kinds(Run.objects.get())


# --- without the app --------------------------------------------------------------------------------------------------


def test_without_the_app_starts_get_the_newest_version(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the app left behind count for nothing."""
    served(stage, *versions())
    ramp(1)
    monkeypatch.delitem(features.installed, "releases")
    assert start("k").version == "2.0.0" and start(agent=f"{NAME}@1.0.0").version == "1.0.0"
    assert not RampStart.objects.exists() and stage.drive() == "completed"
    assert heads([run.pk for run in Run.objects.all()]).keys() == set(Run.objects.values_list("pk", flat=True))
