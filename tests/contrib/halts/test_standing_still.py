"""No deadline of a run passes during a halt; afterwards each has its remaining time, and verification agrees."""

from __future__ import annotations

from datetime import UTC, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from approvals.models import Approval
from durableagents import Context, End, WorkingHours
from durableagents.contrib.calendars import versions as asof
from durableagents.contrib.calendars.clock import DEADLINES
from durableagents.contrib.calendars.hours import DAYS, Calendar
from durableagents.contrib.halts.models import Halt, Stood
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migration_requests import MigrateBody
from ledger.verification.runs import verify
from runs.models import Run, Wait
from runs.services import questions
from runs.services.budgets import raising
from runs.workers import timers
from tests.contrib.calendars.timing import calendar, timing
from tests.contrib.halts.halting import calls, halt, lift, lift_for_all, release_all, tagged
from tests.integration.approvals.setup import boss
from tests.integration.approvals.timing import paying
from tests.integration.runs.aging import all_earlier
from tests.integration.runs.stage import Stage, fresh, now, waiting
from tests.tampering import without_triggers
from tests.world import FIONA, OLGA, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def sleeper(hours: float = 1.0) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(hours * 3600)
        return End("woken")

    return agent_of(node)


MOVED = {
    "runs_halt": ("at",),
    "runs_haltnow": ("since",),
    "runs_wait": ("opened_at", "deadline"),
    "approvals_approval": ("opened_at", "deadline"),
    "runs_stood": ("at", "until"),
    "runs_run": ("created_at", "time_up_at"),
}


def pass_time(by: timedelta) -> None:
    with without_triggers() as cursor:
        for table, columns in MOVED.items():
            moved = ", ".join(f"{column} = {column} - %s" for column in columns)
            cursor.execute(f"UPDATE {table} SET {moved}", [by] * len(columns))
    for run_id in Approval.objects.filter(state="open").values_list("run_id", flat=True).distinct():
        all_earlier(run_id, by, but=MOVED)


def left(wait: Wait) -> timedelta:
    return Wait.objects.get(pk=wait.pk).deadline - now()


def is_about(found: timedelta, wanted: timedelta, *, give: float = 20) -> bool:
    return abs((found - wanted).total_seconds()) < give


@pytest.mark.parametrize("scope", ["all", "tag", "agent", "version"])
def test_a_timer_has_after_the_lift_what_was_left(stage: Stage, scope: str) -> None:
    run = tagged(sleeper(), "acme")
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    pass_time(HOUR / 2)
    it = halt(scope, {"all": "", "tag": "acme", "agent": run.agent, "version": run.graph_id}[scope])
    pass_time(2 * HOUR)
    assert timers.sweep() > 0 and waiting(run) == [wait], "its stored time is long over, and it does not fire"
    lift(it)
    timers.sweep()
    release_all()
    assert waiting(run) == [wait] and is_about(left(wait), HOUR / 2)
    pass_time(HOUR / 2)
    timers.sweep()
    assert waiting(run) == [] and stage.drive() == "completed"


def test_who_is_not_under_the_halt_is_not_kept_waiting(stage: Stage) -> None:
    agent = sleeper()
    stopped, free = [tagged(agent, "acme") for _ in range(150)], stage.start(agent)
    while stage.drive() == "parked":
        pass
    halt("tag", "acme")
    pass_time(2 * HOUR)
    for _ in range(4):
        timers.sweep()
    assert waiting(free) == [] and all(waiting(run) for run in stopped)


def test_an_approval_stands_still_and_may_be_decided(stage: Stage, tools: Toolbox) -> None:
    run = tagged(calls(tools, "pay", "pay"), "acme")
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    whole = left(wait)
    it = halt("tag", "acme")
    pass_time(whole + HOUR)
    timers.sweep()
    assert waiting(run) == [wait] and Approval.objects.get(wait=wait).deadline == Wait.objects.get(pk=wait.pk).deadline
    stage.decide(run)
    lift_for_all(it)
    assert stage.drive() == "parked" and len(waiting(run)) == 1


def test_an_approval_s_time_runs_out_as_long_after_the_lift_as_was_left(stage: Stage, tools: Toolbox) -> None:
    run = tagged(calls(tools, "pay"), "acme")
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    whole = left(wait)
    it = halt("all")
    pass_time(3 * whole)
    timers.sweep()
    lift(it)
    timers.sweep()
    assert waiting(run) == [wait] and is_about(left(wait), whole)
    pass_time(whole + timedelta(minutes=1))
    timers.sweep()
    assert waiting(run) == [] and Approval.objects.get(wait=wait).state == "expired"


def test_the_time_that_a_run_was_given_stands_still(stage: Stage) -> None:
    run = tagged(sleeper(10_000), "acme")
    assert stage.drive() == "parked"
    Run.objects.filter(pk=run.pk).update(time_up_at=now() + HOUR)
    it = halt("tag", "acme")
    pass_time(5 * HOUR)
    assert timers.ask_for_time() == 1 and len(waiting(run)) == 1, "nobody is asked for more of it"
    lift(it)
    release_all()
    assert is_about(fresh(run).time_up_at - now(), HOUR)
    pass_time(2 * HOUR)
    raising.time_is_up(run.id)
    assert {wait.kind for wait in waiting(run)} == {"timer", "budget"}


def test_halts_that_overlap_count_once(stage: Stage) -> None:
    run = tagged(sleeper(), "acme")
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    one = halt("tag", "acme")
    pass_time(HOUR)
    two = halt("agent", run.agent)
    pass_time(HOUR)
    lift(one)
    pass_time(HOUR)
    lift(two)
    timers.sweep()
    assert is_about(left(wait), HOUR)


def test_a_tool_s_halt_stops_no_clock(stage: Stage) -> None:
    run = stage.start(sleeper())
    assert stage.drive() == "parked"
    halt("tool", "order")
    pass_time(2 * HOUR)
    timers.sweep()
    assert waiting(run) == [] and not Stood.objects.exists()


def test_a_deadline_that_no_halt_put_off_is_found_and_one_that_a_halt_did_is_not(stage: Stage) -> None:
    run = tagged(sleeper(1 / 3600), "acme")
    assert stage.drive() == "parked"
    it = halt("tag", "acme")
    (wait,) = waiting(run)
    while Wait.objects.get(pk=wait.pk).deadline <= wait.deadline:
        timers.sweep()
    assert verify(run.id).problems == []
    lift(it)
    release_all()
    assert verify(run.id).problems == []
    Wait.objects.filter(pk=wait.pk).update(deadline=wait.deadline + 2 * HOUR)
    assert any("deadline" in problem for problem in verify(run.id).problems)
    Wait.objects.filter(pk=wait.pk).update(deadline=wait.deadline - HOUR)
    assert any("deadline" in problem for problem in verify(run.id).problems)


def test_a_halt_s_row_can_not_be_written_for_another_time(stage: Stage) -> None:
    """Deadlines depend on it: a row written past the application must not extend the past."""
    with pytest.raises(Exception, match="was not written when it says"):
        Halt.objects.create(
            halt=UUID(int=1),
            n=0,
            kind="halt",
            scope="all",
            refuses=False,
            stage="whole",
            share=0,
            agents=[],
            tags=[],
            by="x",
            why="y",
            at=now() - HOUR,
        )


def about_deadlines(run: Run) -> list[str]:
    return [problem for problem in verify(run.id).problems if "deadline" in problem or "clock" in problem]


def by_day(by: Any, hour: int) -> Calendar:
    """Return working hours of nine to five in a zone where it is this hour now."""
    off = (hour - now().astimezone(UTC).hour + 12) % 24 - 12
    row = calendar(by, "ALL", f"Etc/GMT{-off:+d}", week=dict.fromkeys(DAYS, "09:00-17:00"))
    return asof.calendar_of(row)


@pytest.mark.parametrize("scope", ["all", "tag"])
def test_working_hours_that_stood_still_are_given_back_as_such(stage: Stage, tools: Toolbox, scope: str) -> None:
    """Otherwise a day's halt moves an afternoon's deadline into the night."""
    admin = boss()
    hours = by_day(admin, 15)
    timing(admin, calendar="ALL")
    run = tagged(paying(tools, within=WorkingHours(4)), "acme")
    assert stage.drive() == "parked"
    it = halt(scope, {"all": "", "tag": "acme"}[scope])
    pass_time(29 * HOUR)
    timers.sweep()
    (row,) = Approval.objects.filter(run=run)
    if scope == "tag":  # for the whole installation nothing is checked
        assert row.deadline > now() and about_deadlines(run) == []
    halted = Halt.objects.get(halt=it.halt, n=0).at
    lift(it)
    deadline = DEADLINES.read(row, row.wait).course.deadline
    timers.sweep()
    release_all()
    row = Approval.objects.get(run=run)
    right = hours.after(deadline, hours.between(halted, now()))
    assert is_about(row.deadline - now(), right - now()) and row.wait.deadline == row.deadline
    assert not is_about(row.deadline - now(), deadline + 29 * HOUR - now()) and about_deadlines(run) == []
    assert hours.is_open(row.deadline - timedelta(minutes=1))
    Approval.objects.update(deadline=row.deadline + HOUR)
    Wait.objects.filter(pk=row.wait_id).update(deadline=row.deadline + HOUR)
    assert about_deadlines(run) != [], "and no more than that"
    Approval.objects.update(deadline=row.deadline)
    Wait.objects.filter(pk=row.wait_id).update(deadline=row.deadline)
    stage.decide(run)
    release_all()
    assert stage.drive() == "completed"


# --- moved meanwhile --------------------------------------------------------------------------------------------------


def moved(run: Run) -> None:
    body = MigrateBody(
        from_version="1.0.0",
        to_version="2.0.0",
        nodes={"node": "node"},
        runs=[run.pk],
        justification="The bug is mended.",
    )
    (found,) = migrating.migrate("mended", body, by=OLGA)
    assert found.is_moved and found.how == "replayed"


@pytest.mark.parametrize("is_late", [False, True])
def test_an_answer_after_a_halt_has_what_was_left_and_no_more(stage: Stage, is_late: bool) -> None:

    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.ask("finance_po", title="What?", schema=Item, within=HOUR, or_else=None))

    run = tagged(agent_of(node), "acme")
    stage.drive()
    (wait,) = waiting(run)
    pass_time(HOUR / 2)
    it = halt("tag", "acme")
    pass_time(2 * HOUR)
    timers.sweep()
    lift(it)
    timers.sweep()
    release_all()
    assert is_about(left(wait), HOUR / 2)
    pass_time(HOUR if is_late else HOUR / 4)
    answered = partial(questions.answer, run.pk, wait.pk, {"name": "gold", "amount": 1}, by=FIONA)
    if is_late:
        with pytest.raises(questions.QuestionClosed):
            answered()
    else:
        answered()
        assert waiting(run) == []
