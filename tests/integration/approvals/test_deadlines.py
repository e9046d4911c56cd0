"""What time brings to a question: reminders, a further queue, waiting for ever, an end of its own. Never a yes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from approvals.calendars.asof import calendar_of
from approvals.deadlines import away, due
from approvals.deadlines.bodies import AbsenceBody
from approvals.models import Approval, Decision, Escalation, Queue, Timing
from approvals.queues import acts as queue_acts
from approvals.services import AlreadyDecided, decide
from approvals.timing.course import read
from durableagents import WorkingHours
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.verification.runs import verify
from runs.engine.gate.timing import QueueTiming, Step, Time, settle
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.approvals.setup import WHY, boss, say, somebody
from tests.integration.approvals.timing import SOON, at_once, calendar, make_late, paying, sweep, timing
from tests.integration.runs import stage as threads
from tests.integration.runs.stage import Stage, events, kinds, output
from tests.world import FIONA, LENA, OLGA, Outside, Toolbox

pytestmark = pytest.mark.django_db
TO_LOOK_AT = due._TO_LOOK_AT


def problems(run: Run) -> list[str]:
    """What verification says of its whole record, deadlines too."""
    return verify(run.id).problems


def put(stage: Stage, tools: Toolbox, **gate: Any) -> Approval:
    """An open question to finance."""
    stage.start(paying(tools, **gate))
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


def yes(approval: Approval, by: Actor, verdict: str = "approve") -> Approval:
    return decide(approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification="as quoted", by=by)


# --- by the calendar ------------------------------------------------------------------------------------------------


def test_working_hours_count_in_the_queues_calendar_as_of_then(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    row = calendar(admin)
    timing(admin, calendar="DE", remind=[50])
    asked = put(stage, tools, within=WorkingHours(8))
    (timed,) = events(asked.run, e.ApprovalTimed)
    assert (timed.calendar, timed.calendar_version, timed.on_timeout) == ("DE", 1, "reject")
    assert timed.payload == asked.timing
    de = calendar_of(row)
    assert de.between(asked.opened_at, asked.deadline) <= timedelta(hours=8)
    assert timedelta(hours=8) - de.between(asked.opened_at, asked.deadline) < timedelta(seconds=5)
    assert asked.look_at is not None and de.between(asked.opened_at, asked.look_at) < timedelta(hours=4, seconds=5)
    calendar(admin, week={"sun": "00:00-24:00"})  # what is set anew moves nothing that is open
    assert Approval.objects.get().deadline == asked.deadline and problems(asked.run) == []
    say(asked, FIONA)
    assert stage.drive() == "completed" and problems(asked.run) == []


def test_a_queue_without_a_word_asks_as_it_always_did(stage: Stage, tools: Toolbox) -> None:
    asked = put(stage, tools)
    assert asked.timing is None and asked.look_at is None and "ApprovalTimed" not in kinds(asked.run)
    other = put_plain(stage, tools)
    assert other.timing is not None and other.timing["calendar"] is None
    assert abs(other.deadline - other.opened_at - timedelta(hours=2)) < timedelta(seconds=5), "around the clock"


def put_plain(stage: Stage, tools: Toolbox) -> Approval:
    run = stage.start(paying(tools, within=WorkingHours(2)))
    assert stage.drive() == "parked"
    return Approval.objects.get(run=run)


def test_what_time_says_is_no_part_of_what_is_approved(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The plan has the bytes that it had before there were calendars."""
    at_once("finance_po", "legal")
    asked = put(stage, tools, within=SOON)
    before = bytes(asked.plan), asked.plan_hash
    sweep()
    now = Approval.objects.get()
    assert now.escalated_to == ["legal"] and (bytes(now.plan), now.plan_hash) == before
    assert not {"timing", "deadline", "on_timeout", "calendar"} & set(events(asked.run, e.ApprovalRequested)[0].payload)


# --- whose word counts ------------------------------------------------------------------------------------------------


@each_case(
    ("queue", "gate", "word"),
    [
        (None, None, "reject"),
        ("remind", None, "remind"),
        (None, "remind", "remind"),
        ("remind", "reject", "reject"),
        ("reject", "remind", "reject"),
        ("escalate", "remind", "escalate"),
        ("remind", "escalate", "escalate"),
        ("escalate", "reject", "reject"),
        ("reject", "escalate", "reject"),
    ],
)
def test_the_stricter_word_wins(queue: Any, gate: Any, word: str) -> None:
    steps = (Step("cfo", 60),) if queue == "escalate" else ()
    terms = settle(
        datetime(2026, 1, 1, tzinfo=UTC),
        Time(timedelta(hours=1), gate, "board" if gate == "escalate" else ""),
        queue=QueueTiming(1, None, queue, steps),
    )
    assert terms.said is not None and terms.said["on_timeout"] == word
    assert bool(terms.said["steps"]) is (word == "escalate")


def test_a_gate_that_says_escalate_with_nobody_to_ask_is_a_no() -> None:
    terms = settle(datetime(2026, 1, 1, tzinfo=UTC), Time(timedelta(hours=1), "escalate"))
    assert terms.said is not None and terms.said["on_timeout"] == "reject"


def test_whoever_is_asked_next_has_at_least_a_minute_and_so_have_reminders() -> None:
    board = settle(datetime(2026, 1, 1, tzinfo=UTC), Time(SOON, "escalate", "board"))
    for_ever = settle(datetime(2026, 1, 1, tzinfo=UTC), Time(SOON, "remind"))
    assert board.said is not None and board.said["steps"] == [{"to": "board", "minutes": 1}]
    assert for_ever.said is not None and for_ever.said["every"] == 1


# --- a further queue --------------------------------------------------------------------------------------------------


@pytest.fixture
def escalated(stage: Stage, tools: Toolbox) -> Approval:
    """A question to finance that nobody answered, open at legal besides."""
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], remind=[50])
    put(stage, tools, within=SOON)
    sweep()
    return Approval.objects.get(state="open")


def test_what_nobody_answered_is_put_to_a_further_queue_with_a_time_of_its_own(
    stage: Stage, escalated: Approval
) -> None:
    run, wait = escalated.run, escalated.wait
    (event,) = events(run, e.ApprovalEscalated)
    assert (event.to, event.cause, event.n) == ("legal", "timeout", 0)
    assert escalated.escalated_to == ["legal"] and escalated.deadline == wait.deadline
    assert datetime.fromisoformat(event.deadline) == escalated.deadline > timezone.now() + timedelta(hours=3)
    (row,) = Escalation.objects.all()
    assert row.is_genuine and (row.queue, row.cause, row.deadline) == ("legal", "timeout", escalated.deadline)
    assert run.state == "waiting_human" and problems(run) == []
    sweep()
    assert len(events(run, e.ApprovalEscalated)) == 1


@pytest.mark.parametrize(("by", "where"), [(FIONA, None), (LENA, "legal")])
def test_both_may_decide_it_and_the_record_says_where(
    stage: Stage, escalated: Approval, by: Actor, where: str | None, outside: Outside
) -> None:
    yes(escalated, by)
    decision = Decision.objects.get()
    assert decision.role == by.role and (decision.standing or {}).get("queue") == where
    assert stage.drive() == "completed" and len(outside.requests) == 1
    assert problems(escalated.run) == []


def test_before_it_went_there_they_may_not(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    asked = put(stage, tools)
    with pytest.raises(Forbidden):
        yes(asked, LENA)


def test_between_the_deadline_and_the_sweep_whoever_was_asked_may_still_answer(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    asked = put(stage, tools, within=SOON)
    yes(asked, FIONA)
    sweep()
    assert "ApprovalEscalated" not in kinds(asked.run) and stage.drive() == "completed"


def test_after_the_last_queue_nobody_answered_is_told_and_is_no_rejection(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    at_once("finance_po", "legal")
    asked = put(stage, tools, within=SOON)
    sweep()
    with pytest.raises(AlreadyDecided):  # its time there is over too, before the sweeper says so
        yes(Approval.objects.get(), LENA)
    sweep()
    assert Approval.objects.get().state == "expired" and not Decision.objects.exists()
    assert stage.drive() == "completed" and output(asked.run) == "nobody answered: expired"
    assert outside.requests == [] and problems(asked.run) == []


def test_a_queue_that_was_closed_meanwhile_is_passed_over(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    asked = put(stage, tools, within=SOON)
    queue_acts.close("legal", by=admin, justification=WHY)
    sweep()
    assert Approval.objects.get().state == "expired" and problems(asked.run) == []


def test_a_gate_names_whom_it_goes_to_where_its_queue_names_nobody(stage: Stage, tools: Toolbox) -> None:
    put(stage, tools, within=timedelta(minutes=1), on_timeout="escalate", escalate_to="legal")
    asked = Approval.objects.get()
    make_late(asked)
    sweep()
    assert Approval.objects.get().escalated_to == ["legal"] and problems(asked.run) == []


# --- for ever ---------------------------------------------------------------------------------------------------------


def test_what_waits_for_ever_reminds_at_intervals_that_stretch(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="remind", every_hours=1)
    asked = put(stage, tools, within=SOON)
    left = []
    for n in range(6):
        if n:
            make_late(asked)
        sweep()
        now = Approval.objects.get()
        assert now.state == "open" and now.reminded == n + 1 and now.reminded_at is not None
        left.append(round((now.deadline - timezone.now()).total_seconds() / 3600))
        assert problems(asked.run) == []
    assert left == [1, 2, 4, 8, 8, 8]
    assert [x.cause for x in events(asked.run, e.ApprovalReminded)] == ["no_deadline"] * 6
    make_late(asked)
    yes(asked, FIONA)  # also while the next reminder is due
    assert stage.drive() == "completed"


# --- reminders --------------------------------------------------------------------------------------------------------


def soon_due(stage: Stage, tools: Toolbox) -> Approval:
    timing(boss(), remind=[50, 80])
    asked = put(stage, tools, within=timedelta(hours=1))
    assert asked.look_at is not None
    return asked


def look(asked: Approval, monkeypatch: pytest.MonkeyPatch, after: timedelta) -> None:
    """The sweeper as it comes so long after the question was put."""
    at = asked.opened_at + after
    monkeypatch.setattr(due, "database_now", lambda: at)
    monkeypatch.setattr(due, "_TO_LOOK_AT", TO_LOOK_AT.replace("statement_timestamp()", f"'{at.isoformat()}'"))
    due.look([], float("inf"))


def test_people_are_reminded_before_the_deadline_once_each(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = soon_due(stage, tools)
    for minutes, reminded in ((29, 0), (31, 1), (32, 1), (49, 2), (59, 2)):
        look(asked, monkeypatch, timedelta(minutes=minutes))
        assert Approval.objects.get().reminded == reminded
    assert {x.cause for x in events(asked.run, e.ApprovalReminded)} == {"before"}
    assert Approval.objects.get().deadline == asked.deadline


def test_who_swept_nothing_for_long_reminds_once(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = soon_due(stage, tools)
    look(asked, monkeypatch, timedelta(minutes=55))
    now = Approval.objects.get()
    assert now.reminded == 1 and now.look_at is None and read(now, now.wait).due == []


def test_sixteen_sweepers_remind_once(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = soon_due(stage, tools)
    at = asked.opened_at + timedelta(minutes=31)
    monkeypatch.setattr(due, "database_now", lambda: at)
    answers = threads.at_once(*[lambda: due._look_at(asked.id, asked.run_id)] * 16)
    assert not [x for x in answers if isinstance(x, Exception)]
    assert len(events(asked.run, e.ApprovalReminded)) == 1 == Approval.objects.get().reminded


def test_nobody_is_reminded_of_what_is_paused(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = soon_due(stage, tools)
    lifecycle.pause(asked.run_id, by=OLGA, justification="hold on")
    look(asked, monkeypatch, timedelta(minutes=31))
    due._look_at(asked.id, asked.run_id)  # by whoever found it before it was paused
    assert Approval.objects.get().reminded == 0
    lifecycle.resume(asked.run_id, by=OLGA, justification="go on")
    look(asked, monkeypatch, timedelta(minutes=33))
    assert Approval.objects.get().reminded == 1


def test_nobody_is_reminded_of_what_was_decided_withdrawn_or_is_over(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = soon_due(stage, tools)
    lifecycle.cancel(asked.run_id, by=OLGA, justification="no longer")
    look(asked, monkeypatch, timedelta(minutes=31))
    due._look_at(asked.id, asked.run_id)
    assert Approval.objects.get().reminded == 0 and problems(asked.run) == []


# --- who is there -----------------------------------------------------------------------------------------------------


def test_where_everybody_is_away_it_goes_further_at_once(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], at_once_if_away=True)
    fritz, fanny = somebody("fritz", "approver_finance"), somebody("fanny", "approver_finance")
    body = AbsenceBody(ends_at=timezone.now() + timedelta(days=2), justification=WHY)
    away.leave(body, by=fritz)
    asked = put(stage, tools)
    sweep()
    assert Approval.objects.get().escalated_to is None, "fanny is there"
    assert Approval.objects.get().look_at is None
    row = away.leave(body, by=fanny)
    stage.start(paying(tools))
    assert stage.drive() == "parked"
    sweep()
    second = Approval.objects.exclude(pk=asked.pk).get()
    assert second.escalated_to == ["legal"] and events(second.run, e.ApprovalEscalated)[0].cause == "away"
    away.come_back(row.pk, by=fanny, justification=WHY)
    assert not away.is_deserted("finance_po")
    with pytest.raises(away.AbsenceOver):
        away.come_back(row.pk, by=fanny, justification=WHY)
    assert problems(asked.run) == problems(second.run) == []


def test_who_has_a_deputy_is_not_away(stage: Stage, tools: Toolbox) -> None:
    fritz, dora = somebody("fritz", "approver_finance"), somebody("dora", "operator")
    until = timezone.now() + timedelta(days=2)
    away.leave(AbsenceBody(ends_at=until, deputy="dora", justification=WHY), by=fritz)
    assert not away.is_deserted("finance_po") and dora.person
    somebody("lisa", "approver_legal")
    assert not away.is_deserted("legal")


# --- attacks ----------------------------------------------------------------------------------------------------------


def test_sixty_four_at_the_moment_of_the_escalation_one_wins_and_nothing_is_lost(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    asked = put(stage, tools, within=SOON)
    people = [FIONA if n % 2 else replace(FIONA, name=f"f{n}") for n in range(32)]
    acts = [lambda by=by: yes(asked, by) for by in people] + [sweep] * 32  # type: ignore[misc]
    answers = threads.at_once(*acts)
    won = [x for x in answers if isinstance(x, Approval)]
    assert len(won) == 1 == Decision.objects.count()
    assert all(isinstance(x, AlreadyDecided) for x in answers[:32] if x not in won)
    assert len(events(asked.run, e.ApprovalEscalated)) <= 1
    while stage.drive() != "completed":
        pass
    assert len(outside.requests) == 1 and problems(asked.run) == []


def test_a_forged_escalation_lets_nobody_decide(stage: Stage, tools: Toolbox) -> None:
    asked = put(stage, tools)
    Approval.objects.update(escalated_to=["legal"])
    Escalation(
        approval=asked,
        n=1,
        run_id=asked.run_id,
        queue="legal",
        cause="timeout",
        deadline=asked.deadline,
        at=timezone.now(),
        code=b"\x01" * 33,
    ).save()
    with pytest.raises(Forbidden):
        yes(asked, LENA)
    found = " ".join(problems(asked.run))
    assert "has no event" in found and "escalated_to" in found


def test_a_deadline_that_somebody_moved_is_found_and_gives_no_more_time(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), remind=[50])
    asked = put(stage, tools, within=timedelta(milliseconds=60))
    later = timezone.now() + timedelta(days=3)
    Approval.objects.update(deadline=later, look_at=later)
    Wait.objects.update(deadline=later)
    while timezone.now() < asked.deadline:
        pass
    with pytest.raises(AlreadyDecided):
        yes(asked, FIONA)
    found = " ".join(problems(asked.run))
    assert "deadline" in found and "looked at" in found


def test_terms_that_none_of_our_processes_recorded_put_nothing_off(stage: Stage, tools: Toolbox) -> None:
    """The journal's row is there, and lacks the code."""
    asked = put(stage, tools, within=SOON, on_timeout="remind")
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE ledger_event SET code = NULL WHERE kind = 'ApprovalTimed'")
        cursor.execute("SET session_replication_role = origin")
    with pytest.raises(AlreadyDecided):
        yes(asked, FIONA)


def test_deadlines_that_were_forged_count_as_not_said(stage: Stage, tools: Toolbox) -> None:
    finance = Queue.objects.get(name="finance_po")
    row = Timing(queue=finance, version=1, on_timeout="remind", set_by="user:boss", set_at=timezone.now())
    row.code = bytes(33)
    row.save()
    asked = put(stage, tools, within=SOON)
    assert asked.timing is None
    sweep()
    assert Approval.objects.get().state == "expired"


def test_a_run_that_failed_and_is_retried_asks_on_under_its_terms(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    asked = put(stage, tools, within=SOON)
    sweep()
    run = Run.objects.get()
    lifecycle.pause(run.id, by=OLGA, justification="hold on")
    lifecycle.resume(run.id, by=OLGA, justification="go on")
    yes(Approval.objects.get(), LENA)
    assert stage.drive() == "completed" and problems(asked.run) == []
