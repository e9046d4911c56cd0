"""Planned times start exactly one run each, with the rights of the schedule's owner."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableagents import Context, End
from durableagents.contrib.schedules import services, starting
from durableagents.contrib.schedules.models import PROTECTED, Firing, Schedule
from durableagents.contrib.schedules.services import IllegalScheduleState, ScheduleBody
from durableagents.contrib.schedules.starting import start_all_due, start_all_due_of, start_next_due
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import NotFound
from ledger.models import ActRecord, RowCode
from ledger.protected import is_authentic_row
from runs.models import Run
from tests.integration.runs.stage import Stage, at_once, events, now, problems
from tests.rewriting import rewrite
from tests.tampering import tamper
from tests.world import Notes, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stage")]
WHY = "the test says so"
EACH_MINUTE = "* * * * *"


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Skip pytest-django's flush: the stage cleans up."""


@pytest.fixture
def name(tools: Toolbox) -> str:
    async def node(state: Notes, ctx: Context) -> End:
        if state.asked.text == "wait":
            return End(str(await ctx.signal("go")))
        return End(state.asked.text)

    return agent_of(node).graph_id


@pytest.fixture
def olga() -> Actor:
    return person("olga")


def person(called: str, role: str = "integrator") -> Actor:
    user = User.objects.create_user(called)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return Actor("user", called, role=role, auth="session", person=user.pk)


def body(name: str, **more: Any) -> ScheduleBody:
    """Return a schedule half an hour from now, so that no planned time comes during a test."""
    cron = f"{(now().minute + 30) % 60} * * * *"
    return ScheduleBody.model_validate({"name": "nightly", "agent": name, "input": {"text": "a"}, "cron": cron} | more)


def schedule(name: str, by: Actor, **more: Any) -> Schedule:
    return services.create(body(name, **more), by=by)


def came(one: Schedule, ago: timedelta = timedelta(0)) -> datetime:
    at = (now() - ago).replace(second=0, microsecond=0)
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=at)
    return at


def again(one: Schedule) -> Schedule:
    return Schedule.objects.get(pk=one.pk)


def outcomes(one: Schedule) -> list[str]:
    return [str(row.outcome) for row in one.firings.order_by("planned_at")]


def test_planned_time_starts_a_run_with_the_rights_of_the_owner(name: str, olga: Actor, stage: Stage) -> None:
    one = schedule(name, olga, tags=["night"], budget={"steps": 9})
    following, at = one.next_at, came(one)
    assert start_all_due_of(one.id) == 1
    run = Run.objects.get()
    (row,) = one.firings.all()
    assert (row.planned_at, row.outcome, row.run_id) == (at, "started", run.id)
    assert (run.created_by, run.creator, run.tags) == (olga.ref, olga.person, ["night"])
    (found,) = events(run, e.StartPlanned)
    assert (found.schedule, found.planned_at) == (str(one.id), at.isoformat())
    assert following is not None and again(one).next_at == following and start_all_due_of(one.id) == 0
    act = ActRecord.objects.get(run_id=run.id)
    assert (act.action, act.by, act.auth, act.role) == ("start", olga.ref, "schedule", "integrator")
    assert problems(run) == [] and stage.drive() == "completed" and problems(run) == []


def test_start_renews_the_code_of_its_schedule_in_few_statements(name: str, olga: Actor) -> None:
    one = schedule(name, olga, overlap="allow", cron=EACH_MINUTE, missed="all")
    came(one, timedelta(minutes=9))
    for _ in range(5):
        with CaptureQueriesContext(connection) as found:
            assert start_next_due(one.pk)
        assert sum("'runs_schedule'" in each["sql"] for each in found) == 3  # to check, to read and to renew the code
    assert RowCode.objects.filter(table_name="runs_schedule").count() == 1
    assert is_authentic_row(PROTECTED, one.pk) and one.firings.count() == 5


def test_workers_look_for_due_schedules_and_pass_over_failed_ones(
    name: str, olga: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = schedule(name, olga, overlap="allow"), schedule(name, olga, overlap="allow")
    came(bad, timedelta(minutes=2))
    came(good)
    is_due = f"SELECT {starting.IS_DUE}"
    with connection.cursor() as cursor:
        cursor.execute(is_due)
        assert cursor.fetchone() == (True,)
    start_next = starting.start_next_due

    def fail(schedule_id: Any) -> bool:
        if schedule_id == bad.pk:
            raise ValueError("no such thing")
        return start_next(schedule_id)

    monkeypatch.setattr(starting, "start_next_due", fail)
    start_all_due()
    assert Run.objects.count() == 1 and outcomes(good) == ["started"] and "no such thing" in again(bad).trouble
    monkeypatch.undo()
    start_all_due()
    assert Run.objects.count() == 1, "it is tried again later"
    starting._failed.clear()
    for _ in range(3):
        start_all_due()
    assert Run.objects.count() == 2 and outcomes(bad) == ["started"] and again(bad).trouble == ""
    with connection.cursor() as cursor:
        cursor.execute(is_due)
        assert cursor.fetchone() == (False,)


def test_concurrent_workers_start_each_planned_time_once(name: str, olga: Actor) -> None:
    several = [schedule(name, olga, overlap="allow", missed="all", cron=EACH_MINUTE) for _ in range(3)]
    for one in several:
        came(one, timedelta(minutes=20))
    answers = at_once(*(start_all_due for _ in range(12)))
    assert [a for a in answers if isinstance(a, Exception)] == []
    [start_all_due_of(one.id) for one in several]
    [start_all_due_of(one.id) for one in several]
    planned = list(Firing.objects.values_list("schedule_id", "planned_at"))
    assert len(planned) == len(set(planned)) == Run.objects.count() >= 3 * 20
    items = [(x.schedule, x.planned_at) for run in Run.objects.all() for x in events(run, e.StartPlanned)]
    assert len(items) == len(set(items)) == len(planned)


class Died(BaseException):
    """The process ends here."""


def test_crash_leaves_it_due_once(name: str, olga: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    one = schedule(name, olga)
    at = came(one)

    def die(*_: Any, **__: Any) -> None:
        raise Died

    for step in ("_record", "seal"):
        monkeypatch.setattr(starting, step, die)
        with pytest.raises(Died):
            start_next_due(one.id)
        assert not Run.objects.exists() and not Firing.objects.exists() and again(one).next_at == at
        monkeypatch.undo()
    assert start_all_due_of(one.id) == 1 and Run.objects.count() == 1


def test_clock_that_went_back_starts_nothing_twice(name: str, olga: Actor) -> None:
    one = schedule(name, olga)
    at = came(one)
    start_all_due_of(one.id)
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=at)
    assert start_all_due_of(one.id) == 1 and Run.objects.count() == 1
    following = again(one).next_at
    assert following is not None and following > at


@pytest.mark.parametrize(
    ("overlap", "expected", "states"),
    [
        ("skip", ["started", "skipped"], ["waiting_event"]),
        ("allow", ["started", "started"], ["waiting_event", "pending"]),
        ("queue", ["started", "started"], ["waiting_event", "pending"]),
        ("replace", ["started", "started"], ["cancelled", "pending"]),
    ],
)
def test_overlap_rule_decides_while_the_previous_run_is_active(
    name: str, olga: Actor, stage: Stage, overlap: str, expected: list[str], states: list[str]
) -> None:
    one = schedule(name, olga, overlap=overlap, input={"text": "wait"})
    came(one, timedelta(minutes=1))
    assert start_next_due(one.id) and stage.drive() == "parked"
    came(one)
    assert start_next_due(one.id)
    runs = list(Run.objects.order_by("created_at"))
    assert outcomes(one) == expected and [str(run.state) for run in runs] == states
    assert [run.is_queued for run in runs] == [False, overlap == "queue"][: len(runs)]
    if overlap == "skip":
        assert one.firings.get(outcome="skipped").run_id == runs[0].id
    for run in runs:
        assert problems(run) == []


@pytest.mark.parametrize(
    ("rule", "expected"), [("skip", {"missed": 1}), ("once", {"missed": 1, "started": 1}), ("all", {"started": 3})]
)
def test_missed_rule_decides_about_missed_times(name: str, olga: Actor, rule: str, expected: dict[str, int]) -> None:
    last = (now() - timedelta(minutes=30)).replace(second=0, microsecond=0)
    one = schedule(name, olga, cron=f"{last.minute} * * * *", missed=rule, overlap="allow")
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=last - timedelta(hours=2))
    while start_all_due_of(one.id):
        pass
    found = outcomes(one)
    assert {kind: found.count(kind) for kind in set(found)} == expected
    following = again(one).next_at
    assert following is not None and following > now() and Run.objects.count() == expected.get("started", 0)
    # A planned time comes again, as from a restored row: it is recorded once.
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=last - timedelta(hours=2))
    while start_all_due_of(one.id):
        pass
    assert sorted(outcomes(one)) == sorted(found) and (again(one).trouble, again(one).next_at) == ("", following)


# --- permissions ------------------------------------------------------------------------------------------------------

LOSES: dict[str, Callable[[User], Any]] = {
    "is not active": lambda user: rewrite(User.objects.filter(pk=user.pk), is_active=False),
    "has no role": lambda user: user.groups.clear(),
    "is gone": lambda user: user.delete(),
    "only reads": lambda user: user.groups.set([Group.objects.get_or_create(name="auditor")[0]]),
}


@pytest.mark.parametrize("how", LOSES)
def test_schedules_stop_once_their_owner_may_start_nothing(name: str, olga: Actor, how: str) -> None:
    one = schedule(name, olga)
    came(one)
    LOSES[how](User.objects.get(pk=olga.person))
    assert start_all_due_of(one.id) == 1 and not Run.objects.exists()
    stopped = again(one)
    assert "may no longer start runs" in stopped.stopped and stopped.next_at is None and outcomes(one) == ["refused"]
    boss = person("boss", "operator")
    services.change(one.id, body(name), by=boss)
    changed = again(one)
    assert changed.owner == boss.person and changed.stopped == "" and changed.next_at is not None
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=now())
    assert start_all_due_of(one.id) == 1 and Run.objects.get().creator == boss.person


@pytest.mark.parametrize("what", ["input", "agent"])
def test_change_of_agent_or_input_makes_the_changer_the_owner(name: str, olga: Actor, what: str) -> None:
    boss, one = person("boss", "operator"), schedule(name, olga)
    more: dict[str, Any] = {"input": {"text": "b"}} if what == "input" else {"agent": name.partition("@")[0]}
    services.change(one.id, body(name, **more), by=boss)
    assert (again(one).owner, again(one).set_by) == (boss.person, "user:boss")
    row = ActRecord.objects.get(action="schedule_change")
    assert (row.before["set_by"], row.after["set_by"]) == ("user:olga", "user:boss")


def test_acts_are_on_record_and_paused_schedules_have_no_next_time(name: str, olga: Actor) -> None:
    one = schedule(name, olga)
    before = one.cron
    services.change(one.id, body(name, cron="@daily"), by=olga)
    services.pause(one.id, by=olga, justification=WHY)
    assert again(one).next_at is None
    with pytest.raises(IllegalScheduleState):
        services.pause(one.id, by=olga, justification=WHY)
    services.change(one.id, body(name), by=olga)
    assert again(one).is_paused and again(one).next_at is None, "a change lets nothing go on"
    resumed = services.resume(one.id, by=olga, justification=WHY)
    assert resumed.next_at is not None and resumed.next_at > now()
    services.delete(one.id, by=olga, justification=WHY)
    with pytest.raises(NotFound):
        services.resume(one.id, by=olga, justification=WHY)
    items = list(ActRecord.objects.filter(subject=f"schedule {one.id}").order_by("id"))
    assert [row.action for row in items] == [
        "schedule",
        "schedule_change",
        "schedule_pause",
        "schedule_change",
        "schedule_resume",
        "schedule_delete",
    ]
    assert items[1].before["cron"] == before and items[1].after["cron"] == "@daily"


def test_pause_at_a_planned_time_comes_before_or_after_the_start(name: str, olga: Actor) -> None:
    for _ in range(8):
        one = schedule(name, olga, overlap="allow")
        came(one)
        at_once(partial(start_all_due_of, one.id), partial(services.pause, one.id, by=olga, justification=WHY))
        assert again(one).next_at is None and again(one).is_paused
        assert one.firings.count() == Run.objects.filter(id__in=one.firings.values("run_id")).count() <= 1


def test_run_that_no_result_names_is_found(name: str, olga: Actor) -> None:
    one = schedule(name, olga)
    came(one)
    start_all_due_of(one.id)
    run = Run.objects.get()
    tamper("UPDATE runs_firing SET run_id = %s", one.id)
    assert any("does not name this run" in found for found in problems(run))
