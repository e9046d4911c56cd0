"""Deadlines of approvals: reminders, escalation and expiry with stages, policies, grants and postponing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals.models import Approval, Decision, Escalation
from approvals.proofs import ProofNeeded
from approvals.queues import acts as queue_acts
from approvals.queues.acts import QueueBody
from approvals.services import AlreadyDecided, decide
from durableagents import Context, End, Expired, Gate, PolicyDenied, WorkingHours
from durableagents import Stage as Then
from durableagents.contrib.calendars import absences as away
from durableagents.contrib.calendars import due
from durableagents.contrib.calendars.clock import DEADLINES
from durableagents.contrib.calendars.services import AbsenceBody
from durableagents.contrib.calendars.terms import QueueTiming, Step, settle
from durableagents.contrib.calendars.versions import calendar_of
from durableagents.contrib.notifications import addressing, channels, delivering
from durableagents.contrib.notifications.channels import ChannelBody
from durableagents.contrib.notifications.models import Notice
from ledger import events as e
from ledger.actors import Actor
from ledger.codec import unpack
from ledger.errors import Forbidden
from ledger.models import Event
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.engine.gating.timing import Time
from runs.journal.asked.queues import QUEUES
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.contrib.calendars.timing import at_once, calendar, timing
from tests.contrib.change_control.test_rule_changes import anna, bert, guarded
from tests.contrib.halts.halting import halt, lift_for_all
from tests.contrib.halts.test_standing_still import HOUR, is_about, left, pass_time
from tests.contrib.notifications.mail_server import Postbox, postbox
from tests.contrib.step_up.test_stepup import fresh, rule
from tests.integration.approvals.setup import WHY, boss, say, somebody
from tests.integration.approvals.test_stages import TWO
from tests.integration.approvals.test_stages import buying as staged
from tests.integration.approvals.test_stages import say as say_at_stage
from tests.integration.approvals.timing import SOON, make_late, paying, sweep
from tests.integration.runs import stage as threads
from tests.integration.runs.aging import written_as
from tests.integration.runs.stage import Stage, events, kinds, output, waiting
from tests.tampering import tamper
from tests.waiting import eventually
from tests.world import FIONA, LENA, OLGA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
TO_LOOK_AT = due._DUE


def problems(run: Run) -> list[str]:
    return verify(run.id).problems


def put(stage: Stage, tools: Toolbox, **gate: Any) -> Approval:
    stage.start(paying(tools, **gate))
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


def yes(approval: Approval, by: Actor, verdict: str = "approve") -> Approval:
    return decide(approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification="as quoted", by=by)


def test_working_hours_count_in_the_queues_calendar_as_of_then(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    row = calendar(admin)
    timing(admin, calendar="DE", remind=[50])
    response = put(stage, tools, within=WorkingHours(8))
    (timed,) = events(response.run, e.ApprovalTimed)
    assert (timed.calendar, timed.calendar_version, timed.on_timeout) == ("DE", 1, "reject")
    assert timed.payload == response.timing
    de = calendar_of(row)
    assert de.between(response.opened_at, response.deadline) <= timedelta(hours=8)
    assert timedelta(hours=8) - de.between(response.opened_at, response.deadline) < timedelta(seconds=5)
    assert response.look_at is not None and de.between(response.opened_at, response.look_at) < timedelta(
        hours=4, seconds=5
    )
    calendar(admin, week={"sun": "00:00-24:00"})  # new settings don't move open questions
    assert Approval.objects.get().deadline == response.deadline and problems(response.run) == []
    say(response, FIONA)
    assert stage.drive() == "completed" and problems(response.run) == []


def test_a_queue_without_a_word_asks_as_it_always_did(stage: Stage, tools: Toolbox) -> None:
    response = put(stage, tools)
    assert response.timing is None and response.look_at is None and "ApprovalTimed" not in kinds(response.run)
    other = put_plain(stage, tools)
    assert other.timing is not None and other.timing["calendar"] is None
    assert abs(other.deadline - other.opened_at - timedelta(hours=2)) < timedelta(seconds=5), "around the clock"


def put_plain(stage: Stage, tools: Toolbox) -> Approval:
    run = stage.start(paying(tools, within=WorkingHours(2)))
    assert stage.drive() == "parked"
    return Approval.objects.get(run=run)


def test_what_time_says_is_no_part_of_what_is_approved(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The plan has the same bytes as before there were calendars."""
    at_once("finance_po", "legal")
    response = put(stage, tools, within=SOON)
    before = bytes(response.plan), response.plan_hash
    sweep()
    now = Approval.objects.get()
    assert now.escalated_to == ["legal"] and (bytes(now.plan), now.plan_hash) == before
    assert not {"timing", "deadline", "on_timeout", "calendar"} & set(
        events(response.run, e.ApprovalRequested)[0].payload
    )


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


def test_someone_who_is_asked_next_has_at_least_a_minute_and_so_have_reminders() -> None:
    board = settle(datetime(2026, 1, 1, tzinfo=UTC), Time(SOON, "escalate", "board"))
    forever = settle(datetime(2026, 1, 1, tzinfo=UTC), Time(SOON, "remind"))
    assert board.said is not None and board.said["steps"] == [{"to": "board", "minutes": 1}]
    assert forever.said is not None and forever.said["every"] == 1


@pytest.fixture
def escalated(stage: Stage, tools: Toolbox) -> Approval:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], remind=[50])
    put(stage, tools, within=SOON)
    sweep()
    return Approval.objects.get(state="open")


def test_an_unanswered_question_escalates_with_a_deadline_of_its_own(stage: Stage, escalated: Approval) -> None:
    run, wait = escalated.run, escalated.wait
    (event,) = events(run, e.ApprovalEscalated)
    assert (event.to, event.cause, event.n) == ("legal", "timeout", 0)
    assert escalated.escalated_to == ["legal"] and escalated.deadline == wait.deadline
    assert datetime.fromisoformat(event.deadline) == escalated.deadline > timezone.now() + timedelta(hours=3)
    (row,) = Escalation.objects.all()
    assert row.is_authentic and (row.queue, row.cause, row.deadline) == ("legal", "timeout", escalated.deadline)
    assert run.state == "waiting_human" and problems(run) == []
    sweep()
    assert len(events(run, e.ApprovalEscalated)) == 1


@pytest.mark.parametrize(("by", "where"), [(FIONA, None), (LENA, "legal")])
def test_both_queues_may_decide(
    stage: Stage, escalated: Approval, by: Actor, where: str | None, outside: Outside
) -> None:
    yes(escalated, by)
    decision = Decision.objects.get()
    assert decision.role == by.role and (decision.standing or {}).get("queue") == where
    assert stage.drive() == "completed" and len(outside.requests) == 1
    assert problems(escalated.run) == []


def test_between_the_deadline_and_the_sweep_anyone_who_was_asked_may_still_answer(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    response = put(stage, tools, within=SOON)
    yes(response, FIONA)
    sweep()
    assert "ApprovalEscalated" not in kinds(response.run) and stage.drive() == "completed"


def test_after_the_last_queue_it_expires_without_rejection(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    at_once("finance_po", "legal")
    response = put(stage, tools, within=SOON)
    sweep()
    with pytest.raises(AlreadyDecided):  # its time is over there too, before the sweeper runs
        yes(Approval.objects.get(), LENA)
    sweep()
    assert Approval.objects.get().state == "expired" and not Decision.objects.exists()
    assert stage.drive() == "completed" and output(response.run) == "nobody answered: expired"
    assert outside.requests == [] and problems(response.run) == []


def test_a_queue_that_was_closed_meanwhile_is_passed_over(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    response = put(stage, tools, within=SOON)
    queue_acts.close("legal", by=admin, justification=WHY)
    sweep()
    assert Approval.objects.get().state == "expired" and problems(response.run) == []


def test_a_gate_names_whom_it_goes_to_where_its_queue_names_nobody(stage: Stage, tools: Toolbox) -> None:
    put(stage, tools, within=timedelta(minutes=1), on_timeout="escalate", escalate_to="legal")
    row = Approval.objects.get()
    make_late(row)
    sweep()
    assert Approval.objects.get().escalated_to == ["legal"] and problems(row.run) == []


def test_what_waits_forever_reminds_at_intervals_that_stretch(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="remind", every_hours=1)
    response = put(stage, tools, within=SOON)
    left = []
    for n in range(6):
        if n:
            make_late(response)
        sweep()
        now = Approval.objects.get()
        assert now.state == "open" and now.reminded == n + 1 and now.reminded_at is not None
        left.append(round((now.deadline - timezone.now()).total_seconds() / 3600))
        assert problems(response.run) == []
    assert left == [1, 2, 4, 8, 8, 8]
    assert [x.cause for x in events(response.run, e.ApprovalReminded)] == ["no_deadline"] * 6
    make_late(response)
    yes(response, FIONA)  # also while the next reminder is due
    assert stage.drive() == "completed"


def soon_due(stage: Stage, tools: Toolbox) -> Approval:
    timing(boss(), remind=[50, 80])
    response = put(stage, tools, within=timedelta(hours=1))
    assert response.look_at is not None
    return response


def look(asked: Approval, monkeypatch: pytest.MonkeyPatch, after: timedelta) -> None:
    """Run the sweeper as it would run this long after the question was put."""
    at = asked.opened_at + after
    monkeypatch.setattr(due, "database_now", lambda: at)
    monkeypatch.setattr(due, "_DUE", TO_LOOK_AT.replace("statement_timestamp()", f"'{at.isoformat()}'"))
    due.act_on_due([], float("inf"))


def test_people_are_reminded_once_in_time(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    question = soon_due(stage, tools)
    for minutes, reminded in ((29, 0), (31, 1), (32, 1), (49, 2), (59, 2)):
        look(question, monkeypatch, timedelta(minutes=minutes))
        assert Approval.objects.get().reminded == reminded
    assert {x.cause for x in events(question.run, e.ApprovalReminded)} == {"before"}
    assert Approval.objects.get().deadline == question.deadline


def test_who_swept_nothing_for_long_reminds_once(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    question = soon_due(stage, tools)
    look(question, monkeypatch, timedelta(minutes=55))
    now = Approval.objects.get()
    assert now.reminded == 1 and now.look_at is None and DEADLINES.read(now, now.wait).due == []


def test_sixteen_sweepers_remind_once(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    question = soon_due(stage, tools)
    at = question.opened_at + timedelta(minutes=31)
    monkeypatch.setattr(due, "database_now", lambda: at)
    answers = threads.at_once(*[lambda: due._act_on(question.id, question.run_id)] * 16)
    assert not [x for x in answers if isinstance(x, Exception)]
    assert len(events(question.run, e.ApprovalReminded)) == 1 == Approval.objects.get().reminded


def test_nobody_is_reminded_of_what_is_paused(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    question = soon_due(stage, tools)
    lifecycle.pause(question.run_id, by=OLGA, justification="hold on")
    look(question, monkeypatch, timedelta(minutes=31))
    due._act_on(question.id, question.run_id)  # by a process that found it before the pause
    assert Approval.objects.get().reminded == 0
    lifecycle.resume(question.run_id, by=OLGA, justification="go on")
    look(question, monkeypatch, timedelta(minutes=33))
    assert Approval.objects.get().reminded == 1


def test_closed_questions_bring_no_reminder(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    question = soon_due(stage, tools)
    lifecycle.cancel(question.run_id, by=OLGA, justification="no longer")
    look(question, monkeypatch, timedelta(minutes=31))
    due._act_on(question.id, question.run_id)
    assert Approval.objects.get().reminded == 0 and problems(question.run) == []


def test_where_everybody_is_away_it_goes_further_at_once(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], at_once_if_away=True)
    fritz, fanny = somebody("fritz", "approver_finance"), somebody("fanny", "approver_finance")
    body = AbsenceBody(ends_at=timezone.now() + timedelta(days=2), justification=WHY)
    away.record_absence(body, by=fritz)
    response = put(stage, tools)
    sweep()
    assert Approval.objects.get().escalated_to is None, "fanny is there"
    assert Approval.objects.get().look_at is None
    row = away.record_absence(body, by=fanny)
    stage.start(paying(tools))
    assert stage.drive() == "parked"
    sweep()
    second = Approval.objects.exclude(pk=response.pk).get()
    assert second.escalated_to == ["legal"] and events(second.run, e.ApprovalEscalated)[0].cause == "away"
    away.end_absence(row.pk, by=fanny, justification=WHY)
    assert not away.is_deserted("finance_po")
    with pytest.raises(away.AbsenceOver):
        away.end_absence(row.pk, by=fanny, justification=WHY)
    assert problems(response.run) == problems(second.run) == []


def test_who_has_a_deputy_is_not_away(stage: Stage, tools: Toolbox) -> None:
    fritz, dora = somebody("fritz", "approver_finance"), somebody("dora", "operator")
    until = timezone.now() + timedelta(days=2)
    away.record_absence(AbsenceBody(ends_at=until, deputy="dora", justification=WHY), by=fritz)
    assert not away.is_deserted("finance_po") and dora.person
    somebody("lisa", "approver_legal")
    assert not away.is_deserted("legal")


def test_of_64_at_the_moment_of_escalation_one_wins(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    response = put(stage, tools, within=SOON)
    people = [FIONA if n % 2 else replace(FIONA, name=f"f{n}") for n in range(32)]
    acts = [lambda by=by: yes(response, by) for by in people] + [sweep] * 32  # type: ignore[misc]
    answers = threads.at_once(*acts)
    won = [x for x in answers if isinstance(x, Approval)]
    assert len(won) == 1 == Decision.objects.count()
    assert all(isinstance(x, AlreadyDecided) for x in answers[:32] if x not in won)
    assert len(events(response.run, e.ApprovalEscalated)) <= 1
    while stage.drive() != "completed":
        pass
    assert len(outside.requests) == 1 and problems(response.run) == []


def test_a_deadline_that_somebody_moved_is_found_and_gives_no_more_time(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), remind=[50])
    response = put(stage, tools, within=timedelta(milliseconds=60))
    later = timezone.now() + timedelta(days=3)
    Approval.objects.update(deadline=later, look_at=later)
    Wait.objects.update(deadline=later)
    eventually(lambda: timezone.now() > response.deadline, "the journal's deadline")
    with pytest.raises(AlreadyDecided):
        yes(response, FIONA)
    found = " ".join(problems(response.run))
    assert "deadline" in found and "next reminder" in found


def test_terms_that_none_of_our_processes_recorded_put_nothing_off(stage: Stage, tools: Toolbox) -> None:
    """The journal's row exists but lacks the authentication code."""
    response = put(stage, tools, within=SOON, on_timeout="remind")
    tamper("UPDATE ledger_event SET code = NULL WHERE kind = 'ApprovalTimed'")
    with pytest.raises(AlreadyDecided):
        yes(response, FIONA)


def test_a_run_that_failed_and_is_retried_asks_on_under_its_terms(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    response = put(stage, tools, within=SOON)
    sweep()
    run = Run.objects.get()
    lifecycle.pause(run.id, by=OLGA, justification="hold on")
    lifecycle.resume(run.id, by=OLGA, justification="go on")
    yes(Approval.objects.get(), LENA)
    assert stage.drive() == "completed" and problems(response.run) == []


__all__ = ["anna", "bert", "escalated", "guarded", "postbox"]  # fixtures
LEGAL = {"on_timeout": "escalate", "steps": [{"to": "legal", "hours": 4}]}


def deliver() -> None:
    addressing.address_all()
    delivering.deliver(delivering.BY_MAIL)


def board(by: Actor) -> None:
    queue_acts.create(QueueBody(name="board", title="Board", role="approver_legal", justification=WHY), by=by)
    QUEUES.forget()


def test_someone_who_may_decide_it_now_is_told_that_it_went_further(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    admin = boss()
    for name, role in (("fiona", "finance"), ("lena", "legal"), ("otto", "operations")):
        somebody(name, f"approver_{role}", email=f"{name}@example.org")
    for queue in ("legal", "finance_po"):
        body = ChannelBody(
            name=queue,
            queue=queue,
            form="mailbox",
            address=f"{queue}@example.org",
            kinds=["escalated"],
            justification=WHY,
        )
        channels.add(body, by=admin)
    timing(admin, **LEGAL)
    put(stage, tools, within=SOON)
    deliver()
    assert postbox.to == ["fiona@example.org"]
    sweep()
    deliver()
    items = ["fiona@example.org", "finance_po@example.org", "legal@example.org", "lena@example.org"]
    assert sorted(postbox.to[1:]) == sorted(items)
    assert postbox.mails[-1]["Subject"].startswith("Escalated: Pay")
    assert "Queue: finance_po, legal" in postbox.text()
    (soon,) = Notice.objects.filter(kind="due_soon", state="new").order_by("-due_at")[:1]
    assert soon.due_at > timezone.now() + timedelta(hours=2), "and again before its new deadline"


def test_each_stage_has_the_time_of_its_own_queue(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    admin = boss()
    board(admin)
    timing(admin, "finance_po", on_timeout="remind", every_hours=3)
    timing(admin, "legal", remind=[50])
    stage.start(
        staged(
            tools, Gate("legal", "large sums", then=[Then("finance_po")], on_timeout="escalate", escalate_to="board")
        )
    )
    assert stage.drive() == "parked"
    first = Approval.objects.get()
    assert first.timing["on_timeout"] == "escalate" and first.timing["steps"][0]["to"] == "board"
    assert first.timing["remind"] == [50]
    say_at_stage(somebody("lena", "approver_legal"))
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    assert (second.queue, second.timing["on_timeout"], second.timing["steps"]) == ("finance_po", "reject", []), (
        "code names a further queue for its own queue alone, and to escalate to nobody is a no"
    )
    say_at_stage(somebody("fiona", "approver_finance"))
    assert stage.drive() == "completed" and problems(first.run) == [] and len(outside.executed()) == 1


def test_a_decider_after_escalation_is_one_of_the_quorum(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    lena, fiona = somebody("lena", "approver_legal"), somebody("fiona", "approver_finance")
    timing(boss(), **LEGAL)
    stage.start(staged(tools, replace(TWO, within=SOON)))
    assert stage.drive() == "parked"
    row = Approval.objects.get()
    sweep()
    yes(row, replace(lena, role="approver_legal"))
    assert Approval.objects.get().state == "open"
    with pytest.raises(Exception, match="one vote"):
        yes(row, replace(lena, role="approver_legal"))
    yes(row, replace(fiona, role="approver_finance"))
    assert stage.drive() == "completed" and len(outside.executed()) == 1 and problems(row.run) == []
    assert [(x.standing or {}).get("queue") for x in Decision.objects.order_by("id")] == ["legal", None]


def test_reminders_wait_for_a_halt_to_end(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    timing(boss(), remind=[50])
    response = put(stage, tools, within=timedelta(hours=1))
    it = halt("agent", response.run.agent)
    look(response, monkeypatch, timedelta(minutes=31))
    due._act_on(response.id, response.run_id)
    assert Approval.objects.get().reminded == 0
    lift_for_all(it)
    look(response, monkeypatch, timedelta(minutes=32))
    assert Approval.objects.get().reminded == 1


def test_what_went_further_has_its_own_time_whatever_stood_still_before(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 1}], at_once_if_away=True)
    fritz = somebody("fritz", "approver_finance")
    response = put(stage, tools, within=timedelta(days=2))
    it = halt("agent", response.run.agent)
    pass_time(3 * HOUR)
    lift_for_all(it)
    away.record_absence(AbsenceBody(ends_at=timezone.now() + timedelta(days=2), justification=WHY), by=fritz)
    Approval.objects.update(look_at=timezone.now())
    sweep()
    assert Approval.objects.get().escalated_to == ["legal"]
    (wait,) = waiting(response.run)
    assert is_about(left(wait), HOUR)
    pass_time(HOUR + timedelta(minutes=1))
    sweep()
    assert Approval.objects.get().state == "expired", "and not three hours later"


@pytest.mark.parametrize("where", ["finance_po", "legal"])
def test_a_yes_has_to_show_what_either_queue_asks(stage: Stage, tools: Toolbox, where: str) -> None:
    admin = rule(where, minutes=5)
    lena = somebody("lena", "approver_legal")
    timing(admin, **LEGAL)
    response = put(stage, tools, within=SOON)
    sweep()
    with pytest.raises(ProofNeeded):
        yes(response, lena)
    yes(response, fresh(lena))
    assert stage.drive() == "completed" and problems(response.run) == []


def test_a_late_answer_is_refused_and_the_agent_learns_why(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    pay = replace(tools.pay, gate=Gate("finance_po", "any", within=SOON))

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.call(pay, Item(name="po", amount=1))
        except Expired as nobody:
            return End(f"{nobody.verdict} by {nobody.by}")
        except PolicyDenied:
            return End("denied")
        return End("paid")

    agent: Agent = agent_of(node, tools=[pay])
    run = stage.start(agent)
    assert stage.drive() == "parked"
    with pytest.raises(AlreadyDecided):
        yes(Approval.objects.get(), FIONA)
    sweep()
    assert stage.drive() == "completed" and output(run) == "expired by system:sweeper"
    assert "ApprovalTimed" not in kinds(run) and not events(run, e.ApprovalReminded) and outside.requests == []


def moved(asked: Approval, by: timedelta, *, wait_alone: bool = False) -> None:
    """Move the deadline in its rows, as anyone with the application's database rights can."""
    Wait.objects.filter(pk=asked.wait_id).update(deadline=asked.deadline + by)
    if not wait_alone:
        Approval.objects.filter(pk=asked.pk).update(deadline=asked.deadline + by)


@pytest.mark.every(3)
@pytest.mark.parametrize("word", ["reject", "escalate", "remind"])
@pytest.mark.parametrize("wait_alone", [True, False])
def test_a_forged_deadline_brings_nothing_about(stage: Stage, tools: Toolbox, word: str, wait_alone: bool) -> None:
    """It adds no queue and shortens nobody's time; the sweeper repairs the rows."""
    fields = {"steps": [{"to": "legal", "hours": 4}]} if word == "escalate" else {}
    timing(boss(), on_timeout=word, **fields)
    response = put(stage, tools, within=timedelta(days=7))
    moved(response, -timedelta(days=8), wait_alone=wait_alone)
    sweep()
    now = Approval.objects.get()
    assert (now.state, now.escalated_to, now.reminded) == ("open", None, 0)
    assert abs(now.deadline - response.deadline) < timedelta(seconds=1) and now.wait.deadline == now.deadline
    assert problems(response.run) == [] and "ApprovalEscalated" not in kinds(response.run)
    with pytest.raises(Forbidden):
        yes(now, LENA)
    yes(now, FIONA)
    assert stage.drive() == "completed" and problems(response.run) == []


@pytest.mark.parametrize("word", ["reject", "escalate", "remind"])
def test_what_came_before_its_time_is_found(stage: Stage, tools: Toolbox, word: str) -> None:
    """Someone with the key wrote it although the deadline was later."""
    fields = {"steps": [{"to": "legal", "hours": 4}]} if word == "escalate" else {}
    timing(boss(), on_timeout=word, **fields)
    response = put(stage, tools, within=SOON)
    sweep()
    assert problems(response.run) == []
    row = Event.objects.get(run_id=response.run_id, kind="ApprovalRequested")
    event = e.decode(bytes(row.clear), unpack(row.sealed))
    later = (response.deadline + timedelta(days=1)).isoformat()
    written_as(row, replace(event, deadline=later))  # type: ignore[call-arg]
    assert any("before its deadline" in each for each in problems(response.run))


def test_a_forged_escalation_keeps_nobody_from_being_asked_and_gives_no_power(stage: Stage, tools: Toolbox) -> None:
    """Neither a row without its code, nor escalations that question and wait claim."""
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    response = put(stage, tools, within=timedelta(hours=1))
    Escalation.objects.create(
        approval=response,
        n=1,
        run_id=response.run_id,
        queue="legal",
        cause="timeout",
        deadline=response.deadline,
        at=response.opened_at,
    )
    Approval.objects.update(escalated_to=["legal"])
    Wait.objects.update(also=["legal"])
    with pytest.raises(Forbidden):
        yes(response, LENA)
    with pytest.raises(Forbidden):
        lifecycle.cancel(response.run_id, justification="enough of it", by=LENA)
    found = " ".join(problems(response.run))
    assert "has no event" in found and "escalated_to" in found
    make_late(response)
    sweep()
    assert [(row.n, row.is_authentic) for row in Escalation.objects.order_by("n")] == [(1, False), (2, True)]
    assert any("escalation" in each for each in problems(response.run))
    yes(Approval.objects.get(), LENA)
    assert stage.drive() == "completed"
