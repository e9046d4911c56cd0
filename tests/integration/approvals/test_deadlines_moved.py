"""Deadlines that other hands have moved in their rows: what time brings goes by the journal."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from approvals.models import Approval, Escalation
from ledger import events as e
from ledger.codec import unpack
from ledger.errors import Forbidden
from ledger.models import Event
from runs.models import Wait
from runs.services import lifecycle
from tests.integration.approvals.setup import boss
from tests.integration.approvals.test_deadlines import problems, put, yes
from tests.integration.approvals.timing import SOON, make_late, sweep, timing
from tests.integration.runs.aging import written_as
from tests.integration.runs.stage import Stage, kinds
from tests.world import FIONA, LENA, Toolbox

pytestmark = pytest.mark.django_db


def moved(asked: Approval, by: timedelta, *, wait_alone: bool = False) -> None:
    """Its rows, as whoever has the application's rights in the database can move them."""
    Wait.objects.filter(pk=asked.wait_id).update(deadline=asked.deadline + by)
    if not wait_alone:
        Approval.objects.filter(pk=asked.pk).update(deadline=asked.deadline + by)


@pytest.mark.parametrize("word", ["reject", "escalate", "remind"])
@pytest.mark.parametrize("wait_alone", [True, False])
def test_a_deadline_that_somebody_moved_forward_brings_nothing_about(
    stage: Stage, tools: Toolbox, word: str, wait_alone: bool
) -> None:
    """No further queue gets power by it, nobody's time is cut short; the sweeper puts the rows right."""
    said = {"steps": [{"to": "legal", "hours": 4}]} if word == "escalate" else {}
    timing(boss(), on_timeout=word, **said)
    asked = put(stage, tools, within=timedelta(days=7))
    moved(asked, -timedelta(days=8), wait_alone=wait_alone)
    sweep()
    now = Approval.objects.get()
    assert (now.state, now.escalated_to, now.reminded) == ("open", None, 0)
    assert abs(now.deadline - asked.deadline) < timedelta(seconds=1) and now.wait.deadline == now.deadline
    assert problems(asked.run) == [] and "ApprovalEscalated" not in kinds(asked.run)
    with pytest.raises(Forbidden):
        yes(now, LENA)
    yes(now, FIONA)
    assert stage.drive() == "completed" and problems(asked.run) == []


@pytest.mark.parametrize("word", ["reject", "escalate", "remind"])
def test_what_came_before_its_time_is_found(stage: Stage, tools: Toolbox, word: str) -> None:
    """As it stands there where somebody with the key wrote it: the deadline was later than that."""
    said = {"steps": [{"to": "legal", "hours": 4}]} if word == "escalate" else {}
    timing(boss(), on_timeout=word, **said)
    asked = put(stage, tools, within=SOON)
    sweep()
    assert problems(asked.run) == []
    row = Event.objects.get(run_id=asked.run_id, kind="ApprovalRequested")
    event = e.decode(bytes(row.clear), unpack(row.sealed))
    later = (asked.deadline + timedelta(days=1)).isoformat()
    written_as(row, replace(event, deadline=later))  # type: ignore[call-arg]
    assert any("before its time was over" in each for each in problems(asked.run))


def test_a_forged_escalation_keeps_nobody_from_being_asked_and_gives_no_power(stage: Stage, tools: Toolbox) -> None:
    """Neither a row without its code, nor what the question and its wait say of where it went."""
    timing(boss(), on_timeout="escalate", steps=[{"to": "legal", "hours": 4}])
    asked = put(stage, tools, within=timedelta(hours=1))
    Escalation.objects.create(
        approval=asked,
        n=1,
        run_id=asked.run_id,
        queue="legal",
        cause="timeout",
        deadline=asked.deadline,
        at=asked.opened_at,
    )
    Approval.objects.update(escalated_to=["legal"])
    Wait.objects.update(also=["legal"])
    with pytest.raises(Forbidden):
        yes(asked, LENA)
    with pytest.raises(Forbidden):
        lifecycle.cancel(asked.run_id, justification="enough of it", by=LENA)
    make_late(asked)
    sweep()
    assert [(row.n, row.is_genuine) for row in Escalation.objects.order_by("n")] == [(1, False), (2, True)]
    assert any("escalation" in each for each in problems(asked.run))
    yes(Approval.objects.get(), LENA)
    assert stage.drive() == "completed"
