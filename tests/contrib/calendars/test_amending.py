"""Approving with changes: the new question, the arguments that may change, and other rules that apply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from approvals.models import Approval
from approvals.services import decide
from durableagents import Gate
from ledger import events as e
from ledger.actors import Actor
from tests.contrib.calendars.timing import timing
from tests.integration.approvals.setup import boss, limited, somebody, sound
from tests.integration.approvals.test_amending import asked, change, sent, staged
from tests.integration.approvals.timing import SOON, sweep
from tests.integration.runs.stage import Stage, events
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db


LEGAL = "approver_legal"


def test_a_change_keeps_everybody_who_was_asked(stage: Stage, tools: Toolbox, outside: Outside, fiona: Actor) -> None:
    """It was escalated to legal, who may also decide finance's changed version until the same time."""
    admin, lena = boss(), replace(somebody("lena", LEGAL), role=LEGAL)
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], remind=[50])
    limited(admin, "1000")
    first = asked(stage, staged(tools, Gate("finance_po", "large sums", amount="amount USD", within=SOON)))
    sweep()
    first = Approval.objects.get(pk=first.pk)
    change(first, fiona, amount=4000)
    renewed = Approval.objects.get(state="open")
    assert renewed.escalated_to == ["legal"] == renewed.wait.also and renewed.deadline == first.deadline
    escalated = events(first.run, e.ApprovalEscalated)
    assert [(x.cause, x.n) for x in escalated] == [("timeout", 0), ("amended", 1)]
    sound(first.run)
    decide(renewed.id, verdict="approve", plan_hash=renewed.plan_hash, justification="so be it", by=lena)
    assert stage.drive() == "completed" and sent(outside) == [4000]
    sound(first.run)
