"""Deciding: permissions, exact plan, once only, and the order of refusals."""

from __future__ import annotations

import pytest

from approvals.queue_models import Queue
from ledger.actors import Actor
from tests.contrib.calendars.test_at_once import records_hold
from tests.integration.approvals.setup import asked as asked_plainly
from tests.integration.approvals.setup import boss, somebody
from tests.integration.approvals.test_decide import SHORT, offer, offered
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(stage: Stage) -> Actor:
    return boss()


def test_reasons_are_set_set_again_and_ended_on_record(stage: Stage, tools: Toolbox) -> None:
    admin, fiona, approval = boss(), somebody("fiona", "approver_finance"), asked_plainly(stage, tools)
    assert offered(approval, fiona) == ()
    row = offer(admin, *SHORT)
    assert row.reasons == SHORT and Queue.objects.get(name="finance_po").is_authentic
    assert offered(approval, fiona) == tuple(SHORT)
    offer(admin, *reversed(SHORT))
    assert offered(approval, fiona) == tuple(reversed(SHORT))
    offer(admin)
    assert offered(approval, fiona) == () and Queue.objects.get(name="finance_po").reasons is None
    rows = records_hold("finance_po")
    assert [each.action for each in rows] == ["queue_reasons"] * 3
    assert rows[0].after["reasons"] == SHORT and "reasons" not in rows[0].before and "reasons" not in rows[2].after
