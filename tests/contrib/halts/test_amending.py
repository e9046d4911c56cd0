"""Approving with changes: the new question, the arguments that may change, and other rules that apply."""

from __future__ import annotations

import pytest

from approvals.models import Approval
from durableagents import Gate
from durableagents import Stage as Then
from ledger import events as e
from ledger.actors import Actor
from tests.contrib.calendars.test_amending import LEGAL
from tests.contrib.calendars.timing import timing
from tests.contrib.halts.test_standing_still import HOUR
from tests.integration.approvals.conftest import fiona  # noqa: F401 (fixtures)
from tests.integration.approvals.setup import boss, somebody, sound
from tests.integration.approvals.test_amending import asked, change, say, staged
from tests.integration.approvals.timing import make_late, sweep
from tests.integration.runs.stage import Stage, events
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("is_told", [True, False], ids=["legal has its own time", "legal says nothing of time"])
def test_back_at_the_first_stage_its_own_terms_count(stage: Stage, tools: Toolbox, fiona: Actor, is_told: bool) -> None:
    """It has no more time than was left where the change was made."""
    admin, lena = boss(), somebody("lena", LEGAL)
    timing(admin, on_timeout="escalate", steps=[{"to": "legal", "hours": 4}], remind=[50])
    if is_told:
        timing(admin, "legal", on_timeout="remind", every_hours=3)
    first = asked(stage, staged(tools, Gate("legal", "large sums", then=[Then("finance_po")], within=2 * HOUR)))
    say(lena, role=LEGAL)
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    assert second.timing["steps"] == [{"to": "legal", "minutes": 240}]
    change(second, fiona, amount=2500)
    renewed = Approval.objects.get(state="open")
    assert (renewed.queue, renewed.deadline) == ("legal", second.deadline)
    payloads = [x.payload for x in events(first.run, e.ApprovalTimed) if x.approval_id == str(renewed.id)]
    assert payloads == ([first.timing] if is_told else [])
    assert renewed.timing == first.timing and renewed.look_at is None
    assert renewed.wait.detail.get("on_timeout") == ("remind" if is_told else None)
    sound(first.run)
    make_late(renewed)
    sweep()
    assert Approval.objects.get(pk=renewed.pk).state == ("open" if is_told else "expired")
    sound(first.run)
