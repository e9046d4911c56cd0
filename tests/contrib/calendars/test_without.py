"""The core's plain deadlines, without the app's feature."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from approvals.models import Approval
from durableagents import WorkingHours
from ledger import events as e
from ledger.verification.runs import verify
from runs import features
from runs.journal.asked.queues import QUEUES
from tests.contrib.calendars.timing import calendar, timing
from tests.integration.approvals.setup import boss, somebody
from tests.integration.approvals.timing import make_late, paying, sweep
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage, events, kinds, output
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def test_deadlines_pass_without_the_feature(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, reader = boss(), Reader(User.objects.get(pk=somebody("reader", "approver_finance").person))
    calendar(admin)
    timing(admin, calendar="DE", on_timeout="escalate", steps=[{"to": "legal", "hours": 8}], remind=[50])
    before = stage.start(paying(tools, within=WorkingHours(8)))
    assert stage.drive() == "parked"
    with monkeypatch.context() as patch:
        patch.delitem(features.installed, "calendars")
        QUEUES.forget()
        plain = stage.start(paying(tools, within=WorkingHours(2), on_timeout="remind"))
        assert stage.drive() == "parked"
        row = Approval.objects.get(run=plain)
        assert row.deadline - row.opened_at < timedelta(hours=2, seconds=5), "around the clock"
        assert row.timing is None and "ApprovalTimed" not in kinds(plain)
        for page in ("/queues", "/queues/of/finance_po", "/inbox", f"/inbox/{row.pk}"):
            assert reader.get(page).status_code == 200
        assert verify(before.id).problems == verify(plain.id).problems == []
        for run in (before, plain):
            make_late(Approval.objects.get(run=run))
        sweep()
        for run in (before, plain):
            assert Approval.objects.get(run=run).state == "expired" and not events(run, e.ApprovalEscalated)
            assert stage.drive() == "completed"
            assert verify(run.id).problems == []
        assert output(plain) == "nobody answered: expired"
    QUEUES.forget()
