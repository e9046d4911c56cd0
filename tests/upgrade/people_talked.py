"""Everybody around the runs of `agents_talked.py`: who was asked then answers by today's code, who was handed a case
decides it, and nobody else does; nothing leaves before, nor twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from approvals.claims.acts import release
from approvals.consulting.delegations import NotHeld, take_back
from approvals.consulting.inquiries import AlreadyEnded, answer, withdraw
from approvals.models import Approval, Claim, Delegation, Inquiry, Queue
from ledger.errors import DurableAgentsError, Forbidden
from ledger.verification.runs import verify
from runs.models import Run
from runs.services import lifecycle
from tests.runs.stage import Stage, now, output
from tests.upgrade.agents_talked import TALK
from tests.upgrade.make_talked import CASES, OPEN, REASONS, WHY, actor, said
from tests.upgrade.people_later import Asked

NO = "no by whom it was handed to"


class Talked(Asked):
    """One run of a dump and its situation."""

    def wanted(self) -> list[str]:
        """Its one effect: what was approved."""
        amount = 250 if self.name.startswith("changed") else 500
        return [] if self.name == NO else [f"{CASES[self.name]} {self.name} {amount}"]


def remembered_talked(dump: Path) -> list[Talked]:
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    return [Talked(name, UUID(run_id)) for name, run_id in told.get("talked", {}).items()]


def is_as_it_was_talked(runs: list[Talked]) -> None:
    """Rows that were sealed then are genuine, reasons are offered, and who was on a case may still let it go."""
    assert {each.name for each in runs} == {*CASES}
    for model in (Inquiry, Delegation):
        rows = list(model.objects.all())
        assert rows and all(row.is_genuine for row in rows), model
    queue = Queue.objects.get(name=TALK)
    assert (queue.is_genuine, queue.reasons) == (True, REASONS)
    for each in runs:
        if each.name in OPEN:
            assert each.effects() == [], each.name


def bring_talked_to_their_ends(stage: Stage, runs: list[Talked]) -> None:
    """Each is answered and decided by whoever may, after those who may not have tried."""
    named = {each.name: each for each in runs}
    ines, olaf = replace(actor("ines"), role="integrator"), replace(actor("olaf"), role="operator")
    case = named["asked, and unanswered"].question
    before = case.deadline
    with pytest.raises(Forbidden):
        answer(case.id, 0, answer="Yes, it is.", by=olaf)
    answer(case.id, 0, answer="Yes, it is.", by=ines)
    assert Approval.objects.get(pk=case.pk).deadline < before, "the clock goes on, and what wasn't needed is taken back"
    with pytest.raises(AlreadyEnded):
        answer(named["answered, and open"].question.id, 0, answer="No!", by=ines)
    case = named["withdrawn, and asked again"].question
    with pytest.raises(AlreadyEnded):
        withdraw(case.id, 0, justification=WHY, by=actor("tess"))
    answer(case.id, 1, answer="Yes, it is.", by=olaf)
    with pytest.raises(Forbidden, match="taken back"):
        said(named["taken back"].question, "olaf")
    with pytest.raises(NotHeld):
        take_back(named["taken back"].question.id, 0, justification=WHY, by=actor("tess"))
    on_it = Claim.objects.get(approval=named["somebody is on it"].question)
    release(on_it.approval_id, by=actor("tim"))
    with pytest.raises(DurableAgentsError, match="One person has one word"):
        said(named["asked by one of two"].question, "tess")
    paused = named["asked, and its run paused"]
    answer(paused.question.id, 0, answer="Yes, it is.", by=ines)
    lifecycle.resume(paused.id, by=olaf, justification=WHY)
    whose = {"handed over, and open": "olaf", "asked by one of two": "tim"}
    for name in OPEN:
        said(named[name].question, whose.get(name, "tess"))
    Run.objects.filter(pk__in=[each.id for each in runs], ready_at__isnull=False).update(ready_at=now())
    while stage.drive() != "idle":
        pass


def talked_well(each: Talked) -> None:
    """How it ended, what it did to the outside, and that all of it is on record."""
    assert str(each.run.state) == "completed", each.name
    assert each.effects() == each.wanted(), each.name
    if each.name == NO:
        assert output(each.run) == ["no by user:olaf"]
    assert verify(each.id).problems == [], each.name
