"""Deadlines beside everything else: stages, policies, halts, what a yes has to show, four eyes, and who is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals.deadlines import away, due
from approvals.deadlines.bodies import AbsenceBody
from approvals.models import Approval, Decision, Notice, Timing
from approvals.notices import addressing, channels, courier
from approvals.notices.bodies import ChannelBody
from approvals.policies.listed import in_code
from approvals.queues import acts as queue_acts
from approvals.queues.bodies import QueueBody
from approvals.services import AlreadyDecided
from approvals.stepup.checking import ProofNeeded
from durableagents import Context, End, Expired, Gate, PolicyDenied, WorkingHours
from durableagents import Stage as Then
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden
from runs.engine.agents import Agent
from runs.journal import wait_hooks
from runs.models import Run, Wait
from runs.queries.why.answer import why
from runs.queries.why.seen import look_at
from runs.services import authority
from runs.workers import timers
from tests.approvals.post import Postbox, postbox
from tests.approvals.setup import WHY, boss, somebody
from tests.approvals.test_deadlines import escalated, look, problems, put, yes
from tests.approvals.test_policies import put as put_policy
from tests.approvals.test_rule_changes import agreed, anna, bert, guarded, proposed
from tests.approvals.test_stages import TWO, say
from tests.approvals.test_stages import buying as staged
from tests.approvals.test_stepup import fresh, rule
from tests.approvals.timing import SOON, calendar, make_late, paying, sweep, timing
from tests.console.conftest import Reader
from tests.halts.halting import everybody_goes_on, halt, lift
from tests.halts.test_standing_still import HOUR, is_about, left, pass_time
from tests.runs.stage import Stage, events, kinds, output, waiting
from tests.runs.test_why import OPERATOR
from tests.world import FIONA, LENA, Item, Notes, Outside, Toolbox, agent_of

__all__ = ["anna", "bert", "escalated", "guarded", "postbox"]  # fixtures
pytestmark = pytest.mark.django_db
LEGAL = {"on_timeout": "escalate", "steps": [{"to": "legal", "hours": 4}]}


def deliver() -> None:
    addressing.address_all()
    courier.carry(courier.BY_MAIL)


def board(by: Actor) -> None:
    """A third queue."""
    queue_acts.create(QueueBody(name="board", title="Board", role="approver_legal", justification=WHY), by=by)
    wait_hooks.queues.forget()


# --- who is told ------------------------------------------------------------------------------------------------------


def test_whoever_may_decide_it_now_is_told_that_it_went_further(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
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
    told = ["fiona@example.org", "finance_po@example.org", "legal@example.org", "lena@example.org"]
    assert sorted(postbox.to[1:]) == sorted(told)
    assert postbox.mails[-1]["Subject"].startswith("Escalated: Pay")
    assert "Queue: finance_po, legal" in postbox.text()
    (soon,) = Notice.objects.filter(kind="due_soon", state="new").order_by("-due_at")[:1]
    assert soon.due_at > timezone.now() + timedelta(hours=2), "and again before its new deadline"


def test_each_reminder_is_told_and_what_waits_for_ever_has_no_deadline_that_is_near(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    somebody("fiona", "approver_finance", email="fiona@example.org")
    timing(boss(), on_timeout="remind", every_hours=48)
    asked = put(stage, tools, within=timedelta(days=3))
    deliver()
    for _ in range(2):
        make_late(asked)
        sweep()
    deliver()
    leads = [str(mail["Subject"]).partition(":")[0] for mail in postbox.mails]
    assert leads == ["To decide", "Reminder", "Reminder"]
    assert "Until: it waits for ever" in postbox.text()
    assert not Notice.objects.filter(kind="due_soon").exists()


def near() -> list[str]:
    """What is said of deadlines that are near, as if it were due."""
    Notice.objects.filter(kind="due_soon", state="new").update(due_at=timezone.now())
    deliver()
    return list(Notice.objects.filter(kind="due_soon").order_by("pk").values_list("state", flat=True))


def test_a_deadline_that_stands_still_is_not_near(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    somebody("fiona", "approver_finance", email="fiona@example.org")
    asked = put(stage, tools, within=timedelta(hours=8))
    deliver()
    assert near() == ["new"]
    pass_time(5 * HOUR)
    it = halt("agent", asked.run.agent)
    pass_time(2 * HOUR)
    assert near() == ["new"] and Notice.objects.get(kind="due_soon").due_at > timezone.now(), "three hours are left"
    lift(it)
    everybody_goes_on()
    assert near() == ["new"]
    pass_time(2 * HOUR)
    it = halt("agent", asked.run.agent)
    assert near() == ["new"], "one hour is left, and does not run"
    lift(it)
    everybody_goes_on()
    assert near() == ["addressed"]
    assert [str(mail["Subject"]).partition(":")[0] for mail in postbox.mails] == ["To decide", "Deadline near"]


def test_that_the_deadline_is_near_where_it_went_is_told_once(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], at_once_if_away=True)
    away.leave(
        AbsenceBody(ends_at=timezone.now() + timedelta(days=2), justification=WHY),
        by=somebody("fritz", "approver_finance"),
    )
    somebody("lena", "approver_legal", email="lena@example.org")
    asked = put(stage, tools, within=timedelta(days=2))
    deliver()
    sweep()
    assert Approval.objects.get().escalated_to == ["legal"]
    deliver()
    assert near() == ["over", "new"]
    make_late(asked, timezone.now() + timedelta(minutes=30))
    assert near() == ["over", "addressed"]
    assert [str(mail["Subject"]).partition(":")[0] for mail in postbox.mails] == ["Escalated", "Deadline near"]


# --- who may --------------------------------------------------------------------------------------------------------


def test_who_it_went_to_may_stop_its_run_and_is_named_as_who_must_act(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), **LEGAL)
    asked = put(stage, tools, within=SOON)
    assert authority.may(asked.run, {"approver_legal"}, None) == frozenset()
    sweep()
    run = Run.objects.get()
    assert {"pause", "cancel"} <= authority.may(run, {"approver_legal"}, None)
    assert authority.may(run, {"approver_operations"}, None) == frozenset()
    found = why(look_at(run.pk), OPERATOR)
    assert found.who.roles == ("approver_finance", "approver_legal") and found.who.queue == "finance_po, legal"
    assert "put to further people" in found.sentence


def test_what_waits_for_ever_says_so(stage: Stage, tools: Toolbox) -> None:
    found = why(look_at(put(stage, tools, on_timeout="remind").run_id), OPERATOR)
    assert found.until is None and "it waits until somebody does" in found.sentence and "at most" not in found.sentence


# --- stages and quorum ------------------------------------------------------------------------------------------------


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
    say(somebody("lena", "approver_legal"))
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    assert (second.queue, second.timing["on_timeout"], second.timing["steps"]) == ("finance_po", "reject", []), (
        "code names a further queue for its own queue alone, and to escalate to nobody is a no"
    )
    say(somebody("fiona", "approver_finance"))
    assert stage.drive() == "completed" and problems(first.run) == [] and len(outside.executed()) == 1


def test_whoever_decides_where_it_went_is_one_of_those_that_it_takes(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    lena, fiona = somebody("lena", "approver_legal"), somebody("fiona", "approver_finance")
    timing(boss(), **LEGAL)
    stage.start(staged(tools, replace(TWO, within=SOON)))
    assert stage.drive() == "parked"
    asked = Approval.objects.get()
    sweep()
    yes(asked, replace(lena, role="approver_legal"))
    assert Approval.objects.get().state == "open"
    with pytest.raises(Exception, match="one word"):
        yes(asked, replace(lena, role="approver_legal"))
    yes(asked, replace(fiona, role="approver_finance"))
    assert stage.drive() == "completed" and len(outside.executed()) == 1 and problems(asked.run) == []
    assert [(x.standing or {}).get("queue") for x in Decision.objects.order_by("id")] == ["legal", None]


# --- policies ---------------------------------------------------------------------------------------------------------


def test_what_a_policy_asks_goes_nowhere_that_code_says(stage: Stage, tools: Toolbox) -> None:
    """A gate's author can't put a policy's question to people of their own choice, nor let it wait for ever."""
    admin = boss()
    board(admin)
    agent = paying(tools, on_timeout="escalate", escalate_to="board")
    put_policy(admin, tool="pay", within_hours=2)
    run = stage.start(agent)
    assert stage.drive() == "parked"
    yes(Approval.objects.get(state="open"), FIONA)
    assert stage.drive() == "parked"
    demanded = Approval.objects.get(state="open")
    assert demanded.queue == "legal" and demanded.timing is None
    assert is_about(demanded.deadline - timezone.now(), 2 * HOUR)
    yes(demanded, LENA)
    assert stage.drive() == "completed" and problems(run) == []


def test_gates_that_count_working_hours_stand_in_the_one_list_of_rules(stage: Stage, tools: Toolbox) -> None:
    stage.start(paying(tools, within=WorkingHours(8)))
    assert timedelta(hours=8) in {each.within for each in in_code()}


# --- halts ------------------------------------------------------------------------------------------------------------


def test_nobody_is_reminded_under_a_halt_and_everybody_after_it(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing(boss(), remind=[50])
    asked = put(stage, tools, within=timedelta(hours=1))
    it = halt("agent", asked.run.agent)
    look(asked, monkeypatch, timedelta(minutes=31))
    due._look_at(asked.id, asked.run_id)
    assert Approval.objects.get().reminded == 0
    lift(it)
    everybody_goes_on()
    look(asked, monkeypatch, timedelta(minutes=32))
    assert Approval.objects.get().reminded == 1


def test_what_went_further_has_its_own_time_whatever_stood_still_before(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 1}], at_once_if_away=True)
    fritz = somebody("fritz", "approver_finance")
    asked = put(stage, tools, within=timedelta(days=2))
    it = halt("agent", asked.run.agent)
    pass_time(3 * HOUR)
    lift(it)
    everybody_goes_on()
    away.leave(AbsenceBody(ends_at=timezone.now() + timedelta(days=2), justification=WHY), by=fritz)
    Approval.objects.update(look_at=timezone.now())
    sweep()
    assert Approval.objects.get().escalated_to == ["legal"]
    (wait,) = waiting(asked.run)
    assert is_about(left(wait), HOUR)
    pass_time(HOUR + timedelta(minutes=1))
    sweep()
    assert Approval.objects.get().state == "expired", "and not three hours later"


def test_under_a_halt_its_time_where_it_went_stands_still_too(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 1}])
    asked = put(stage, tools, within=SOON)
    sweep()
    it = halt("agent", asked.run.agent)
    pass_time(3 * HOUR)
    timers.sweep()
    assert Approval.objects.get().state == "open"
    lift(it)
    everybody_goes_on()
    sweep()
    (wait,) = waiting(asked.run)
    assert is_about(left(wait), HOUR)
    yes(Approval.objects.get(), LENA)
    assert stage.drive() == "completed"


def test_while_the_clock_stands_still_every_page_says_so(stage: Stage, tools: Toolbox) -> None:
    timing(boss(), on_timeout="reject")
    asked = put(stage, tools, within=timedelta(hours=1))
    fritz = somebody("fritz", "approver_finance")
    reader = Reader(User.objects.get(pk=fritz.person))
    it = halt("agent", asked.run.agent)
    pass_time(3 * HOUR)
    assert "clock stands still" in reader.read("/inbox") and "overdue" not in reader.read("/inbox")
    case = reader.read(f"/inbox/{asked.id}")
    assert "The clock stands still:" in case and "overdue" not in case
    found = why(look_at(asked.run.pk), OPERATOR)
    assert found.cause == "approval" and found.until is None and "at most" not in found.sentence
    assert "It is halted: agent story" in found.also and found.also.endswith("Its deadlines stand still.")
    lift(it)
    everybody_goes_on()
    sweep()
    assert "clock stands still" not in reader.read("/inbox") + reader.read(f"/inbox/{asked.id}")
    found = why(look_at(asked.run.pk), OPERATOR)
    assert found.until is not None and "halted" not in found.also and "at most" in found.sentence


# --- what a yes has to show -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["finance_po", "legal"])
def test_a_yes_has_to_show_what_either_queue_asks(stage: Stage, tools: Toolbox, where: str) -> None:
    admin = rule(where, minutes=5)
    lena = somebody("lena", "approver_legal")
    timing(admin, **LEGAL)
    asked = put(stage, tools, within=SOON)
    sweep()
    with pytest.raises(ProofNeeded):
        yes(asked, lena)
    yes(asked, fresh(lena))
    assert stage.drive() == "completed" and problems(asked.run) == []


def test_who_was_asked_first_need_not_show_what_the_further_queue_asks(stage: Stage, tools: Toolbox) -> None:
    timing(rule("legal", minutes=5), **LEGAL)
    asked = put(stage, tools, within=SOON)
    sweep()
    yes(asked, FIONA)
    assert stage.drive() == "completed"


# --- four eyes --------------------------------------------------------------------------------------------------------


def test_two_people_change_calendars_and_deadlines_where_queues_are_guarded(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    agreed(proposed(lambda: calendar(anna)), bert)
    change = proposed(lambda: timing(anna, calendar="DE", on_timeout="remind"))
    assert not Timing.objects.exists()
    agreed(change, bert)
    row = Timing.objects.get()
    assert row.is_genuine and (row.calendar, row.on_timeout, row.set_by) == ("DE", "remind", "user:anna")


# --- damaged, late, wrong ---------------------------------------------------------------------------------------------


def test_a_wait_s_word_of_where_it_went_gives_nobody_a_part_in_the_decision(stage: Stage, tools: Toolbox) -> None:
    asked = put(stage, tools)
    Wait.objects.update(also=["legal"])
    with pytest.raises(Forbidden):
        yes(asked, LENA)
    found = why(look_at(asked.run.pk), OPERATOR)
    assert "legal" not in found.sentence and "finance_po" in found.sentence and found.who.queue == "finance_po"
    assert [each for each in problems(asked.run) if "also" in each], "and verification finds it"


def test_an_answer_after_everything_ran_out_is_refused_and_the_agent_knows_the_difference(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
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
