"""Schedules: each planned time at most once, and not never; as their owner, and only while that one may."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ
from django_q.models import Schedule as Bell

from durableagents import Context, End
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import InvalidInput, NotFound
from ledger.models import ActRecord, RowCode
from ledger.protected import is_authentic_row
from runs.models import Firing, Run, Schedule
from runs.protected import SCHEDULE
from runs.services.bodies import ScheduleBody
from runs.services.schedules import acts, firing
from runs.workers import starts, worker_process
from runs.workers.q2_broker import DoorbellBroker
from tests.integration.runs.stage import Stage, at_once, events, in_thread, now, problems
from tests.rewriting import rewrite
from tests.tampering import tamper
from tests.world import Notes, Toolbox, agent_of

pytestmark = pytest.mark.usefixtures("stage")
WHY = "the test says so"
EACH_MINUTE = "* * * * *"


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
    return acts.create(body(name, **more), by=by)


def came(one: Schedule, ago: timedelta = timedelta(0)) -> datetime:
    at = (now() - ago).replace(second=0, microsecond=0)
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=at)
    return at


def again(one: Schedule) -> Schedule:
    return Schedule.objects.get(pk=one.pk)


def outcomes(one: Schedule) -> list[str]:
    return [str(row.outcome) for row in one.firings.order_by("planned_at")]


def test_a_planned_time_starts_a_run_as_whoever_set_the_schedule(name: str, olga: Actor, stage: Stage) -> None:
    one = schedule(name, olga, tags=["night"], budget={"steps": 9})
    following, at = one.next_at, came(one)
    assert starts.fire([one.id]) == 1
    run = Run.objects.get()
    (row,) = one.firings.all()
    assert (row.planned_at, row.outcome, row.run_id) == (at, "started", run.id)
    assert (run.created_by, run.creator, run.tags) == (olga.ref, olga.person, ["night"])
    (told,) = events(run, e.StartPlanned)
    assert (told.schedule, told.planned_at) == (str(one.id), at.isoformat())
    assert following is not None and again(one).next_at == following and starts.fire([one.id]) == 0
    act = ActRecord.objects.get(run_id=run.id)
    assert (act.action, act.by, act.auth, act.role) == ("start", olga.ref, "schedule", "integrator")
    assert problems(run) == [] and stage.drive() == "completed" and problems(run) == []


def test_firing_renews_the_code_of_its_schedule_in_few_statements(name: str, olga: Actor) -> None:
    one = schedule(name, olga, overlap="allow", cron=EACH_MINUTE, missed="all")
    came(one, timedelta(minutes=9))
    for _ in range(5):
        with CaptureQueriesContext(connection) as found:
            assert firing.fire(one.pk)
        assert sum("'runs_schedule'" in each["sql"] for each in found) == 3  # to check, to read and to renew the code
    assert RowCode.objects.filter(table_name="runs_schedule").count() == 1
    assert is_authentic_row(SCHEDULE, one.pk) and one.firings.count() == 5


def test_django_q2_rings_and_the_message_starts_it(name: str, olga: Actor) -> None:
    one = schedule(name, olga)
    bell = Bell.objects.get(name=str(one.id))
    assert bell.next_run == one.next_at and bell.func == "runs.workers.worker_process.fire"
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=now() - timedelta(seconds=1))
    Bell.objects.update(next_run=now() - timedelta(seconds=1))
    starts.sweep()
    (message,) = OrmQ.objects.all()
    assert message.payload == f"fire:{one.id}" and not Run.objects.exists(), (
        "only rung for: nothing has waited long yet"
    )
    assert not Bell.objects.exists()
    broker = DoorbellBroker()
    packages = broker.dequeue()
    assert packages is not None and len(packages) == 1
    in_thread(lambda: worker_process.fire(str(one.id)))
    assert Run.objects.count() == 1 and Bell.objects.get().next_run == again(one).next_at
    broker._disconnect()


def test_a_ring_that_is_lost_or_comes_often_changes_nothing(name: str, olga: Actor) -> None:
    one = schedule(name, olga, overlap="allow", cron=EACH_MINUTE)
    Bell.objects.all().delete()
    came(one, timedelta(minutes=1))
    starts.sweep()
    assert Run.objects.count() >= 1 and Bell.objects.count() == 1
    for _ in range(5):
        starts.fire([one.id])
        starts.sweep()
    assert Run.objects.count() == Firing.objects.count() and len(set(Firing.objects.values_list("planned_at"))) == (
        Firing.objects.count()
    )


def test_many_who_look_at_once_start_each_planned_time_once(name: str, olga: Actor) -> None:
    several = [schedule(name, olga, overlap="allow", missed="all", cron=EACH_MINUTE) for _ in range(3)]
    for one in several:
        came(one, timedelta(minutes=20))
    answers = at_once(*(partial(starts.fire, [one.id for one in several]) for _ in range(12)))
    assert [a for a in answers if isinstance(a, Exception)] == []
    starts.fire([one.id for one in several])
    starts.fire([one.id for one in several])
    planned = list(Firing.objects.values_list("schedule_id", "planned_at"))
    assert len(planned) == len(set(planned)) == Run.objects.count() >= 3 * 20
    told = [(x.schedule, x.planned_at) for run in Run.objects.all() for x in events(run, e.StartPlanned)]
    assert len(told) == len(set(told)) == len(planned)


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("where", ["before the note", "after the note", "before the next time", "before the bell"])
def test_crash_leaves_it_due_once(name: str, olga: Actor, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = schedule(name, olga)
    at = came(one)

    def die(*_: Any, **__: Any) -> None:
        raise Died

    target: dict[str, tuple[Any, str]] = {
        "before the note": (firing, "_note"),
        "after the note": (firing, "seal"),
        "before the next time": (firing, "hang"),
        "before the bell": (Bell.objects, "update_or_create"),
    }
    monkeypatch.setattr(*target[where], die)
    with pytest.raises(Died):
        firing.fire(one.id)
    assert not Run.objects.exists() and not Firing.objects.exists() and again(one).next_at == at
    monkeypatch.undo()
    assert starts.fire([one.id]) == 1 and Run.objects.count() == 1


def test_a_clock_that_went_back_starts_nothing_twice(name: str, olga: Actor) -> None:
    one = schedule(name, olga)
    at = came(one)
    starts.fire([one.id])
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=at)
    assert starts.fire([one.id]) == 1 and Run.objects.count() == 1
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
def test_what_happens_while_the_run_before_lives_its_rule_says(
    name: str, olga: Actor, stage: Stage, overlap: str, expected: list[str], states: list[str]
) -> None:
    one = schedule(name, olga, overlap=overlap, input={"text": "wait"})
    came(one, timedelta(minutes=1))
    assert firing.fire(one.id) and stage.drive() == "parked"
    came(one)
    assert firing.fire(one.id)
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
def test_what_becomes_of_missed_ones_its_rule_says(name: str, olga: Actor, rule: str, expected: dict[str, int]) -> None:
    last = (now() - timedelta(minutes=30)).replace(second=0, microsecond=0)
    one = schedule(name, olga, cron=f"{last.minute} * * * *", missed=rule, overlap="allow")
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=last - timedelta(hours=2))
    while starts.fire([one.id]):
        pass
    found = outcomes(one)
    assert {kind: found.count(kind) for kind in set(found)} == expected
    following = again(one).next_at
    assert following is not None and following > now() and Run.objects.count() == expected.get("started", 0)
    # A planned time comes again, as from a restored row: it is recorded once.
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=last - timedelta(hours=2))
    while starts.fire([one.id]):
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
    assert starts.fire([one.id]) == 1 and not Run.objects.exists()
    stopped = again(one)
    assert "may start no runs" in stopped.stopped and stopped.next_at is None and outcomes(one) == ["refused"]
    assert not Bell.objects.exists() and starts.sweep() == 0
    boss = person("boss", "operator")
    acts.change(one.id, body(name), by=boss)
    changed = again(one)
    assert changed.owner == boss.person and changed.stopped == "" and changed.next_at is not None
    rewrite(Schedule.objects.filter(pk=one.pk), next_at=now())
    assert starts.fire([one.id]) == 1 and Run.objects.get().creator == boss.person


@pytest.mark.parametrize("what", ["input", "agent"])
def test_whoever_says_with_what_is_started_has_started_it(name: str, olga: Actor, what: str) -> None:
    boss, one = person("boss", "operator"), schedule(name, olga)
    more: dict[str, Any] = {"input": {"text": "b"}} if what == "input" else {"agent": name.partition("@")[0]}
    acts.change(one.id, body(name, **more), by=boss)
    assert (again(one).owner, again(one).set_by) == (boss.person, "user:boss")
    told = ActRecord.objects.get(action="schedule_change")
    assert (told.before["set_by"], told.after["set_by"]) == ("user:olga", "user:boss")


def test_each_act_is_on_record_and_what_is_paused_or_gone_starts_nothing(name: str, olga: Actor) -> None:
    one = schedule(name, olga)
    before = one.cron
    acts.change(one.id, body(name, cron="@daily"), by=olga)
    acts.pause(one.id, by=olga, justification=WHY)
    assert again(one).next_at is None and not Bell.objects.exists()
    with pytest.raises(acts.NotInThisState):
        acts.pause(one.id, by=olga, justification=WHY)
    acts.change(one.id, body(name), by=olga)
    assert again(one).is_paused and again(one).next_at is None, "a change lets nothing go on"
    resumed = acts.resume(one.id, by=olga, justification=WHY)
    assert resumed.next_at is not None and resumed.next_at > now()
    acts.delete(one.id, by=olga, justification=WHY)
    assert not Bell.objects.exists() and firing.waiting() == []
    with pytest.raises(NotFound):
        acts.resume(one.id, by=olga, justification=WHY)
    told = list(ActRecord.objects.filter(subject=f"schedule {one.id}").order_by("id"))
    assert [row.action for row in told] == [
        "schedule",
        "schedule_change",
        "schedule_pause",
        "schedule_change",
        "schedule_resume",
        "schedule_delete",
    ]
    assert told[1].before["cron"] == before and told[1].after["cron"] == "@daily"


def test_a_pause_that_crosses_a_planned_time_is_before_it_or_after(name: str, olga: Actor) -> None:
    for _ in range(8):
        one = schedule(name, olga, overlap="allow")
        came(one)
        at_once(partial(starts.fire, [one.id]), partial(acts.pause, one.id, by=olga, justification=WHY))
        assert again(one).next_at is None and again(one).is_paused
        assert one.firings.count() == Run.objects.filter(id__in=one.firings.values("run_id")).count() <= 1


# --- invalid schedules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "often"}, "cron"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"input": {"text": 7}}, "input.text"),
        ({"input": None}, "input"),
        ({"budget": {"usd": "5"}}, None),
    ],
)
def test_useless_schedule_is_refused(name: str, olga: Actor, wrong: dict[str, Any], field: str | None) -> None:
    if field is None:
        schedule(name, olga, **wrong)
        return
    with pytest.raises(InvalidInput) as refused:
        schedule(name, olga, **wrong)
    assert refused.value.extra["errors"][0]["field"] == field and not Schedule.objects.exists()
    assert not Bell.objects.exists()


def test_a_run_that_no_note_names_is_found(name: str, olga: Actor) -> None:
    one = schedule(name, olga)
    came(one)
    starts.fire([one.id])
    run = Run.objects.get()
    tamper("UPDATE runs_firing SET run_id = %s", one.id)
    assert any("does not name this run" in found for found in problems(run))
