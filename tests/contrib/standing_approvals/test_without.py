"""Without the app, a decision that would give a standing approval is refused, and one without it is made."""

from __future__ import annotations

import pytest

from approvals.bodies import DecisionBody
from approvals.deciding import decide_as_requested
from approvals.queues.acts import find
from ledger.actors import Actor
from ledger.errors import InvalidInput
from runs import features
from tests.contrib.standing_approvals.granting import asks, body, paying, state
from tests.integration.approvals.setup import WHY
from tests.integration.runs.stage import Stage, problems
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def test_decisions_are_made_without_the_app(
    stage: Stage, tools: Toolbox, fiona: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(features.installed, "standing_approvals")
    case = asks(stage, paying(tools))
    decision_body = DecisionBody(verdict="approve", plan_hash=case.plan_hash, justification=WHY, again=body())
    with pytest.raises(InvalidInput, match="not installed"):
        decide_as_requested(case.pk, decision_body, decision_body.again, fiona)
    assert state(case.run) == "open" and find("finance_po").again is None
    decide_as_requested(case.pk, decision_body, None, fiona)
    assert stage.drive() == "completed" and problems(case.run) == []
