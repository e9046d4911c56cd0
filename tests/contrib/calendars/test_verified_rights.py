"""Decisions are compared with what their person was allowed at that time, though the rows say so no more."""

from __future__ import annotations

import pytest

from approvals.models import Approval
from ledger.verification.runs import verify
from tests.contrib.calendars.timing import away
from tests.integration.approvals.setup import asked, say, somebody
from tests.integration.approvals.test_stages import FINANCE
from tests.integration.runs.stage import Stage
from tests.tampering import tamper
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def approval(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


def test_decision_of_a_former_deputy_is_named(approval: Approval) -> None:
    fiona, dora = somebody("fiona", FINANCE), somebody("dora", "operator")
    away(fiona, "dora")
    say(approval, dora)
    assert verify(approval.run_id).problems == []
    tamper("UPDATE approvals_deputy SET revoked_at = starts_at")
    (problem,) = verify(approval.run_id).problems
    assert problem.endswith(f"account {dora.person} was not the deputy of account {fiona.person}")
