from __future__ import annotations

from collections.abc import Callable

import pytest

from approvals.models import Approval
from durableagents.contrib.certify.crashtest.people import People
from ledger import events as e
from runs.models import Wait
from tests.integration.approvals.test_stages import LEGAL_THEN_TWO, Fleet, ask
from tests.integration.runs.stage import events
from tests.world import Outside

pytestmark = pytest.mark.django_db(transaction=True)


__all__ = ["ask"]


def test_the_people_of_a_crash_test_decide_all_stages(
    ask: Callable[..., Approval], stage: Fleet, outside: Outside
) -> None:
    question, people = ask(LEGAL_THEN_TWO), People({}, source=None)  # type: ignore[arg-type]
    for _ in range(2):
        people._decide(None, Wait.objects.get(resolved_at__isnull=True))  # type: ignore[arg-type]
        stage.drive()
    assert len(outside.requests) == 1 and len(events(question.run, e.ApprovalVoted)) == 3
