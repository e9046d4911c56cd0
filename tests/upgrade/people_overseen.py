"""Everybody around the runs of `agents_overseen.py`: whoever was asked then says what is still to be said by today's
code, after those who may not have tried, and nothing leaves before, nor twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from approvals.genuine import genuine
from approvals.models import (
    Absence,
    Approval,
    Calendar,
    Channel,
    Decision,
    Delivery,
    Deputy,
    Escalation,
    Policy,
    Seat,
    Timing,
)
from approvals.notices.sealed import opened
from approvals.policies import inforce
from approvals.services import AlreadyDecided, AlreadyVoted, StalePlan
from approvals.stepup.checking import ProofNeeded
from ledger import events as e
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput
from ledger.four_eyes import changes
from ledger.models import Event, FourEyes, RuleChange
from ledger.verification.runs import verify
from runs.models import NEVER, Halt, Run, Wait
from runs.services import lifecycle, signals
from runs.services.releases.choosing import StartsStopped
from runs.workers import failover
from tests.approvals.post import Postbox
from tests.approvals.timing import calendar, sweep, timing
from tests.halts.halting import everybody_goes_on, lift
from tests.runs.stage import Stage, events, now, output
from tests.upgrade import agents_overseen as a
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.cast_overseen import CASES, ENDED, HALTED, TOLD, actor, change, deliver, say
from tests.upgrade.people_later import Asked
from tests.world import SHOP

WHY = "the test says so"
SIGNAL = {"a": 1}
# What no dump of before has an event of.
KINDS = {
    "ApprovalTimed", "ApprovalReminded", "ApprovalEscalated", "ApprovalVoted", "PlanAmended", "PolicyApplied",
}  # fmt: skip
# What was approved in the place of what was asked for.
BECAME = {name: 4000 if name == "changed, and open" else 2500 for name in CASES if name.startswith("changed")}
# How each ended that sent nothing.
NOTHING: dict[str, Any] = {
    "denied by a policy": ["denied by never 1"], "one said no at stage two": ["no by user:mia"],
    "one let it fail": None, "nobody answered": ["nobody answered"],
}  # fmt: skip


class Overseen(Asked):
    """One run of a dump and its situation."""

    def wanted(self) -> list[str]:
        """Its one effect: what was approved, and not what was asked for where that is something else."""
        case = CASES[self.name]
        sent = f"{case.by} {self.name} {BECAME.get(self.name, case.amount)}"
        return [] if self.name in NOTHING else [sent]


Named = dict[str, Overseen]


def remembered_overseen(dump: Path) -> list[Overseen]:
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    return [Overseen(name, UUID(run_id)) for name, run_id in told.get("overseen", {}).items()]


def is_as_it_was_overseen(runs: list[Overseen]) -> None:
    """What was set and said then is genuine and in force; nothing has left that nobody agreed to."""
    assert {*Event.objects.values_list("kind", flat=True).distinct()} >= KINDS
    for model in (Policy, Calendar, Timing, Escalation, Absence, Deputy, Channel, Halt, FourEyes, RuleChange):
        rows: list[Any] = list(model._default_manager.all())
        assert rows and all(row.is_genuine for row in rows), model
    assert inforce.now().problem == "" and Policy.objects.filter(ended_at__isnull=True).count() == 3
    rows = list(Decision.objects.filter(approval__run__in=[each.id for each in runs]))
    assert len(rows) > 30 and all(genuine(rows)) and Seat.objects.exists()
    assert {"approve", "reject", "fail", "abstain", "amend"} == {row.verdict for row in rows}
    assert any(row.proof for row in rows) and any(row.standing and "deputy_of" in row.standing for row in rows)
    chat = Channel.objects.get(form="webhook")
    assert opened(chat.address) == "http://127.0.0.1:9/services/T0/secret"
    assert sorted(RuleChange.objects.values_list("state", flat=True)) == [
        "applied", "open", "open", "refused", "withdrawn",
    ]  # fmt: skip
    assert {each.name for each in runs} == {*CASES}
    sent = {*ENDED, "changed, and sent", "changed, and its worker gone"}
    for each in runs:
        assert each.effects() == (each.wanted() if each.name in sent else []), each.name
        assert verify(each.id).problems == [], each.name


def bring_overseen_to_their_ends(stage: Stage, runs: list[Overseen], box: Postbox) -> None:
    named = {each.name: each for each in runs}
    mail_is_sent_once(box)
    for story in (of_policies, of_several, of_a_proof, of_time, of_changes, of_halts, of_rules):
        story(stage, named)
    left = [each.name for each in runs if each.run.ended_at is None]
    assert left == []
    mail_is_sent_once(box, is_over=True)


def drive(stage: Stage) -> None:
    """Whatever is ready and under no halt."""
    Run.objects.filter(ready_at__lt=NEVER).update(ready_at=now())
    while stage.drive() != "idle":
        pass


def _refused(act: Callable[[], Any], why: str | None = None, error: type[DurableAgentsError] = Forbidden) -> None:
    """It is refused, and neither is anything sent nor is anybody's word on record."""
    before = len(OUTSIDE.effects), Decision.objects.count(), Event.objects.count()
    with pytest.raises(error, match=why and re.escape(why)):
        act()
    assert (len(OUTSIDE.effects), Decision.objects.count(), Event.objects.count()) == before


def _agrees(stage: Stage, each: Overseen, who: str, stranger: str, **more: Any) -> Decision:
    """The wrong one is refused, the right one says yes, and it goes out then and not before."""
    question = each.question
    _refused(lambda: say(question, stranger))
    drive(stage)
    assert each.effects() == [], each.name
    say(question, who, **more)
    drive(stage)
    assert each.effects() == each.wanted(), each.name
    return Decision.objects.get(approval=question, closes=True)


# --- what each situation is about ---


def of_policies(stage: Stage, runs: Named) -> None:
    """A policy's question is waited for, though there is a newer version of the policy by now."""
    each = runs["asked by a policy"]
    (told,) = events(each.run, e.PolicyApplied)
    assert (told.policy, told.version, told.queues) == ("buys", 1, [a.LAW])
    _agrees(stage, each, "lou", "max")
    assert [(x.policy, x.version) for x in events(each.run, e.PolicyApplied)] == [("buys", 1), ("buys", 2)]


def of_several(stage: Stage, runs: Named) -> None:
    """Whoever has spoken then has no second word now; the first one's stage is completed in `of_rules`."""
    first, second = runs["one of two at stage one"], runs["one of two at stage two"]
    _refused(lambda: say(first.question, "lara"), "You approved this", AlreadyVoted)
    question = second.question
    assert question.queue == a.MONEY
    _refused(lambda: say(question, "mia"), "You approved this", AlreadyVoted)
    _refused(lambda: say(question, "lou"), f"for {a.LAW}", AlreadyVoted)  # by whom stage one was decided
    _refused(lambda: say(question, "lara"))
    drive(stage)
    assert second.effects() == []
    say(question, "max")
    drive(stage)
    assert second.effects() == second.wanted() and first.effects() == []


def of_a_proof(stage: Stage, runs: Named) -> None:
    each = runs["wants a proof"]
    question, typed = each.question, {"amount": "$5,000.00"}
    _refused(lambda: say(question, "max", typed=typed), "second factor", ProofNeeded)
    _refused(lambda: say(question, "max", shown="password", typed=typed), "second factor", ProofNeeded)
    _refused(lambda: say(question, "max", shown="totp", typed={"amount": "500"}), "Type ", InvalidInput)
    row = _agrees(stage, each, "max", "bea", shown="totp", typed=typed)
    assert row.proof is not None and (row.proof["by"], row.proof["typed"]) == ("totp", typed)


def of_time(stage: Stage, runs: Named) -> None:
    """What holds was settled when it was put, and moves by what was settled alone."""
    planned, before = runs["by a calendar"], runs["by a calendar"].question
    calendar(actor("anna"), "office", week={"sun": "00:00-24:00"})
    timing(actor("anna"), a.TIMED, on_timeout="remind", every_hours=1)
    sweep()
    assert (planned.question.deadline, planned.question.timing) == (before.deadline, before.timing)
    (timed,) = events(planned.run, e.ApprovalTimed)
    assert (timed.calendar, timed.calendar_version) == ("office", 1) and verify(planned.id).problems == []
    _agrees(stage, planned, "mia", "bea")
    ever = runs["reminds without end"]
    assert (ever.question.reminded, ever.question.state) == (1, "open")
    rings = ever.question.deadline
    for rows in (Approval.objects.filter(pk=ever.question.pk), Wait.objects.filter(pk=ever.question.wait_id)):
        rows.update(deadline=database_now())  # other hands: it rings when its journal says so, and not before
    sweep()
    assert (ever.question.reminded, ever.question.state, ever.question.deadline) == (1, "open", rings)
    assert verify(ever.id).problems == []
    _agrees(stage, ever, "max", "gus")
    for name, cause in (("went further", "timeout"), ("went further at once", "away")):
        assert [x.cause for x in events(runs[name].run, e.ApprovalEscalated)] == [cause]
        row = _agrees(stage, runs[name], "bea", "lara")
        assert row.standing is not None and row.standing["queue"] == a.BOARD
    row = _agrees(stage, runs["a deputy's"], "ida", "nils")
    assert row.standing is not None and "deputy_of" in row.standing


def of_changes(stage: Stage, runs: Named) -> None:
    """Exactly what was approved goes out, once, whoever died on the way; and the agent is told."""
    each = runs["changed, and open"]
    first = each.run.approvals.get(state="amended")
    _refused(lambda: say(first, "max"), "amended by user:mia", AlreadyDecided)
    _refused(lambda: change(first, "max", 1), "amended by user:mia", AlreadyDecided)
    _refused(lambda: say(each.question, "mia"), "above your limit")
    stale = each.question
    stale.plan_hash = first.plan_hash
    _refused(lambda: say(stale, "max"), error=StalePlan)
    _agrees(stage, each, "max", "bea")
    assert runs["changed, and not sent"].effects() == runs["changed, and not sent"].wanted()
    gone, sent = runs["changed, and its worker gone"], runs["changed, and sent"]
    owner = gone.run.owner
    assert owner is not None and failover.worker_died(owner, "its host is gone") >= 1
    signals.signal(sent.id, "go", SIGNAL, by=SHOP)
    drive(stage)
    for each in (gone, sent):
        assert each.effects() == each.wanted(), each.name


def of_halts(stage: Stage, runs: Named) -> None:
    """New starts are refused, decisions are taken and set nothing going; each halt is lifted by whoever may, and all
    of it goes on."""
    asked, agreed, new, kept = (runs[name] for name in HALTED)
    _refused(lambda: say(asked.question, "max"))
    say(asked.question, "leon")
    drive(stage)
    assert [each.effects() for each in (asked, agreed, new, kept)] == [[]] * 4
    bill = {"by": "stop", "name": "one more"}
    _refused(lambda: lifecycle.start(a.halted.name, bill, by=SHOP), error=StartsStopped)
    lasting = Halt.objects.filter(key__in=(a.halted.name, "upgrade-some"), n=0)
    halts = {f"{row.kind} {row.scope}": row for row in lasting}
    for what, held in (("halt agent", (asked, agreed)), ("starts agent", (new,)), ("halt tag", (kept,))):
        _refused(lambda what=what: lift(halts[what], by=actor("lara")))
        lift(halts[what])
        everybody_goes_on()
        drive(stage)
        for each in held:
            if each.effects() == []:
                _agrees(stage, each, "leon", "max")
            assert each.effects() == each.wanted(), each.name


def of_rules(stage: Stage, runs: Named) -> None:
    """What one person proposed then is done once a second one agrees, as it was read: a policy, and a role."""
    forward, several = runs["a rule waits for a second person"], runs["one of two at stage one"]
    _refused(lambda: say(several.question, "nils"))
    for change_ in RuleChange.objects.filter(state="open").order_by("made_at"):
        _refused(lambda it=change_: _applied(it, "anna"), "somebody else")
        _refused(lambda it=change_: _applied(it, "lara"))
        assert _applied(change_, "bert").state == "applied"
    over = RuleChange.objects.get(state="refused")
    _refused(lambda: _applied(over, "bert"), "refused by user:bert", changes.ChangeOver)
    assert Policy.objects.get(name="forwards", ended_at__isnull=True).is_genuine
    signals.signal(forward.id, "go", SIGNAL, by=SHOP)
    drive(stage)
    assert forward.question.queue == a.LAW
    _agrees(stage, forward, "lara", "max")
    assert User.objects.get(username="nils").groups.filter(name="approver_law").exists()
    _refused(lambda: say(several.question, "max"))
    say(several.question, "nils")
    drive(stage)
    assert several.question.queue == a.MONEY and several.effects() == []
    say(several.question, "mia")
    drive(stage)
    _agrees(stage, several, "max", "nils")


def _applied(row: RuleChange, who: str) -> RuleChange:
    return changes.apply(row.pk, by=actor(who), justification=WHY)


def mail_is_sent_once(box: Postbox, *, is_over: bool = False) -> None:
    """What was sent then isn't sent again; what was still to be told then is told now, once, to whoever it is for."""
    before = {row.pk: row.tries for row in Delivery.objects.filter(state="sent")}
    had = len(box.mails)
    assert len(before) >= 3
    deliver()
    after = {row.pk: row for row in Delivery.objects.filter(state="sent")}
    assert {pk: after[pk].tries for pk in before} == before
    fresh = [row for pk, row in after.items() if pk not in before]
    assert len(box.mails) - had == len({row.message for row in fresh})
    assert {*box.to} <= {f"{name}@example.org" for name in (*TOLD, "law")}
    if not is_over:
        told = [f"{row.notice.kind} {row.by}" for row in fresh]
        assert told.count("rule_change email") == 2 and "opened email" in told and "opened mailbox" in told, told


def overseen_well(each: Overseen) -> None:
    """How it ended, what it did to the outside, and what its record says."""
    run, case = each.run, CASES[each.name]
    assert str(run.state) == ("failed" if each.name == "one let it fail" else "completed"), each.name
    assert each.effects() == each.wanted(), each.name
    assert verify(run.pk).problems == [], each.name
    if str(run.state) == "completed":
        ref: Any = f"{case.by}:{each.name}"
        if each.name in BECAME:
            ref = [ref, "user:mia", {"amount": [case.amount, BECAME[each.name]]}]
        waited = {"before": [SIGNAL, ref], "after": [ref, SIGNAL]}.get(case.waits, [ref])
        assert output(run) == NOTHING.get(each.name, waited), each.name
