"""test_retry"""

from __future__ import annotations

from datetime import timedelta

import pytest

from approvals.models import Approval
from durableagents.contrib.notifications import addressing
from durableagents.contrib.notifications.models import Notice
from ledger.verification.runs import verify
from runs.models import Run
from runs.workers import timers
from tests.contrib.calendars.timing import timing
from tests.integration.approvals.setup import boss
from tests.integration.runs.aging import all_earlier
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, mood, outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Mood, Stage, now, problems
from tests.integration.runs.test_retry import breaks, paying
from tests.world import Toolbox

pytestmark = pytest.mark.every(3)


def about_time(run: Run) -> list[str]:
    return [problem for problem in verify(run.id).problems if "deadline" in problem or "had not ended" in problem]


def test_people_are_reminded_after_a_retry_as_late_as_they_were_asked(stage: Stage, tools: Toolbox, mood: Mood) -> None:
    """And the deadline's warning follows its newest record alone."""
    timing(boss(), remind=[50])
    mood.is_bad = False
    run = stage.start(paying(tools, mood, within=timedelta(days=2)))
    assert stage.drive() == "parked"
    addressing.address_all()
    all_earlier(run.id, timedelta(hours=12))
    breaks(stage, run, mood)
    all_earlier(run.id, timedelta(days=9))
    mood.is_bad = False
    act("retry", run)
    assert stage.drive() == "parked"
    Approval.objects.update(look_at=now())
    timers.sweep()
    row = Approval.objects.get()
    assert row.reminded == 0 and row.look_at is not None and about_time(run) == []
    assert abs(row.look_at - now() - timedelta(hours=12)) < timedelta(minutes=1)
    assert not [problem for problem in problems(run) if "looked at" in problem]
    addressing.address_all()
    Notice.objects.filter(kind="due_soon", state="new").update(due_at=now())
    addressing.address_all()
    assert [*Notice.objects.filter(kind="due_soon").order_by("pk").values_list("state", flat=True)] == ["over", "new"]
