"""The sixth part of a dump: runs of `agents_talked.py`, in the situations that only code knows which has inquiries,
delegations, claims and reasons. Made by `make.py` where the code at hand is of then; before a policy or a halt of
`make_overseen.py` holds for anything."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from approvals.cases.amending import amend
from approvals.claims.acts import claim
from approvals.consulting.delegations import delegate, take_back
from approvals.consulting.inquiries import answer, ask, withdraw
from approvals.models import Approval
from approvals.queues import acts
from approvals.queues.bodies import QueueBody, ReasonsBody
from approvals.services import decide
from ledger.actors import Actor
from runs.journal import wait_hooks
from runs.models import Run
from runs.services import lifecycle
from tests.approvals.setup import somebody
from tests.approvals.timing import timing
from tests.runs.stage import Stage, fresh, now
from tests.upgrade.agents_talked import TALK, TALKED_OVER, talked
from tests.world import SHOP

WHY, WHAT = "as it was then", "Is it the price that you agreed with them?"
ROLE, REASONS = "approver_talk", ["As the contract has it.", "Within the budget."]
# Each with the tool that it is about.
OPEN = {
    "asked, and unanswered": "pay_after_talk", "answered, and open": "pay_after_talk",
    "withdrawn, and asked again": "pay_after_talk", "handed over, and open": "pay_after_talk",
    "taken back": "pay_after_talk", "somebody is on it": "pay_after_talk", "asked by one of two": "pay_by_two",
    "asked, and its run paused": "pay_after_talk",
}  # fmt: skip
ENDED = {
    "decided while somebody was asked": "pay_after_talk", "decided in another's place": "pay_after_talk",
    "changed while somebody was asked": "pay_after_talk", "no by whom it was handed to": "pay_after_talk",
}  # fmt: skip
CASES = OPEN | ENDED


def actor(name: str) -> Actor:
    """Somebody, signed in, as the one who decides."""
    person = User.objects.get(username=name).pk
    return Actor("user", name, role=ROLE, auth="session", address="192.0.2.7", person=person)


class Talking:
    """Leaves one run per situation. What is ready is put off, as `make.Maker` does."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, str] = {}

    def asked(self, name: str) -> Approval:
        """It asks, and nobody has said anything."""
        run = lifecycle.start(talked.name, {"name": name, "by": CASES[name]}, by=SHOP)
        while self.stage.drive() != "idle":
            pass
        self.keep(name, run)
        return Approval.objects.get(run=run, state="open")

    def keep(self, name: str, run: Run) -> None:
        self.runs[name] = str(run.id)
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now() + timedelta(days=1))

    def ends(self, name: str) -> None:
        run = Run.objects.get(pk=self.runs[name])
        Run.objects.filter(pk=run.pk).update(ready_at=now())
        while self.stage.drive() != "idle":
            pass
        self.keep(name, run)
        assert str(fresh(run).state) == "completed", name


def _set_up() -> None:
    head = somebody("head_of_talk", is_staff=True, is_superuser=True)
    for name in ("tess", "tim"):
        somebody(name, ROLE)
    somebody("olaf", "operator")
    somebody("ines", "integrator")
    for name in (TALK, TALKED_OVER):
        acts.create(QueueBody(name=name, title=name, role=ROLE, justification=WHY), by=head)
    acts.offer(TALK, ReasonsBody(reasons=REASONS, justification=WHY), by=head)
    timing(head, TALK, clock_stops_hours=8)
    wait_hooks.queues.forget()


def said(case: Approval, name: str, verdict: str = "approve") -> None:
    """One word on a question, as both faces have it said."""
    decide(case.id, verdict=verdict, plan_hash=case.plan_hash, justification=WHY, by=actor(name))


def make_all(stage: Stage) -> dict[str, Any]:
    _set_up()
    make, tess, tim = Talking(stage), actor("tess"), actor("tim")
    ines = replace(actor("ines"), role="integrator")
    olaf = replace(actor("olaf"), role="operator")
    ask(make.asked("asked, and unanswered").id, to="ines", question=WHAT, by=tess)
    case = make.asked("answered, and open")
    answer(case.id, ask(case.id, to="ines", question=WHAT, by=tess).n, answer="Yes, until June.", by=ines)
    case = make.asked("withdrawn, and asked again")
    withdraw(case.id, ask(case.id, to="ines", question=WHAT, by=tess).n, justification="asked too early", by=tess)
    ask(case.id, to="olaf", question=WHAT, by=tess)
    delegate(make.asked("handed over, and open").id, to="olaf", justification=WHY, by=tess)
    case = make.asked("taken back")
    take_back(case.id, delegate(case.id, to="olaf", justification=WHY, by=tess).n, justification=WHY, by=olaf)
    claim(make.asked("somebody is on it").id, by=tim)
    case = make.asked("asked by one of two")
    ask(case.id, to="ines", question=WHAT, by=tess)
    said(case, "tess")
    case = make.asked("asked, and its run paused")
    ask(case.id, to="ines", question=WHAT, by=tess)
    make.keep("asked, and its run paused", lifecycle.pause(case.run_id, by=olaf, justification=WHY))
    case = make.asked("decided while somebody was asked")
    ask(case.id, to="ines", question=WHAT, by=tess)
    said(case, "tim")
    case = make.asked("decided in another's place")
    delegate(case.id, to="olaf", justification=WHY, by=tess)
    said(case, "olaf")
    case = make.asked("changed while somebody was asked")
    ask(case.id, to="ines", question=WHAT, by=tess)
    changed = {"plan_hash": case.plan_hash, "arguments": {"amount": 250}, "justification": WHY}
    assert amend(case.id, **changed, by=tess).approval.state == "approved"
    case = make.asked("no by whom it was handed to")
    delegate(case.id, to="olaf", justification=WHY, by=tess)
    said(case, "olaf", "reject")
    for name in ENDED:
        make.ends(name)
    assert {*make.runs} == {*CASES}
    return {"talked": make.runs}
