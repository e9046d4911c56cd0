"""Deadlines beside everything else: stages, policies, halts, what a yes has to show, four eyes, and who is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from approvals.deadlines import away, due
from approvals.deadlines.bodies import AbsenceBody
from approvals.models import Approval, Decision, Notice
from approvals.notices import addressing, channels, courier
from approvals.notices.bodies import ChannelBody
from approvals.queues import acts as queue_acts
from approvals.queues.bodies import QueueBody
from approvals.services import AlreadyDecided
from approvals.stepup.checking import ProofNeeded
from durableagents import Context, End, Expired, Gate, PolicyDenied
from durableagents import Stage as Then
from ledger import events as e
from ledger.actors import Actor
from runs.engine.agents import Agent
from runs.journal import wait_hooks
from tests.integration.approvals.post import Postbox, postbox
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.approvals.test_deadlines import escalated, look, problems, put, yes
from tests.integration.approvals.test_rule_changes import anna, bert, guarded
from tests.integration.approvals.test_stages import TWO, say
from tests.integration.approvals.test_stages import buying as staged
from tests.integration.approvals.test_stepup import fresh, rule
from tests.integration.approvals.timing import SOON, sweep, timing
from tests.integration.halts.halting import everybody_goes_on, halt, lift
from tests.integration.halts.test_standing_still import HOUR, is_about, left, pass_time
from tests.integration.runs.stage import Stage, events, kinds, output, waiting
from tests.world import FIONA, Item, Notes, Outside, Toolbox, agent_of

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


# --- who may --------------------------------------------------------------------------------------------------------


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


# --- four eyes --------------------------------------------------------------------------------------------------------


# --- damaged, late, wrong ---------------------------------------------------------------------------------------------


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
