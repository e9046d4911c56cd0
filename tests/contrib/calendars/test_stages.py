"""Several people decide one call: each once, in order, deputies included; record and database enforce it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from approvals.models import Approval
from approvals.services import AlreadyVoted
from durableagents import Gate
from ledger import events as e
from tests.contrib.calendars.timing import away
from tests.integration.approvals.setup import somebody
from tests.integration.approvals.test_stages import (
    FINANCE,
    LEGAL,
    LEGAL_THEN_TWO,
    TWO,
    buying,
    nothing_changes,
    now,
    people,
    say,
)
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage as Fleet
from tests.integration.runs.stage import events
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def ask(stage: Fleet, tools: Toolbox) -> Callable[..., Approval]:
    def asked(gate: Gate, **more: Any) -> Approval:
        stage.start(buying(tools, gate, **more))
        assert stage.drive() == "parked"
        return now()

    return asked


def test_a_deputy_and_their_principal_are_one(stage: Fleet, ask: Callable[..., Approval]) -> None:
    question, (_, fiona, frank) = ask(TWO), people()
    dora = somebody("dora", LEGAL)
    away(fiona, "dora")
    say(dora)
    (vote,) = events(question.run, e.ApprovalVoted)
    assert vote.people == {dora.person, fiona.person}
    nothing_changes(lambda: say(fiona), AlreadyVoted, "You approved this, through a deputy")
    nothing_changes(lambda: say(dora), AlreadyVoted)
    say(frank)
    assert stage.drive() == "completed"
    check_against_journal(question.run)


def test_a_deputy_of_somebody_who_voted_stands_in_for_another(ask: Callable[..., Approval]) -> None:
    question, (_, fiona, frank) = ask(TWO), people()
    dora = somebody("dora", LEGAL)
    say(fiona)
    away(fiona, "dora")
    nothing_changes(lambda: say(dora), AlreadyVoted, "fiona, whose deputy you are,")
    away(frank, "dora")
    assert say(dora).state == "approved"
    assert events(question.run, e.ApprovalVoted)[-1].principal == frank.person


def test_who_decided_one_stage_has_no_part_in_the_next(stage: Fleet, ask: Callable[..., Approval]) -> None:
    ask(LEGAL_THEN_TWO)
    both, fiona, frank = somebody("both", LEGAL, FINANCE), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    say(both)
    stage.drive()
    nothing_changes(lambda: say(both), AlreadyVoted, "for legal")
    away(fiona, "both")
    nothing_changes(lambda: say(both), AlreadyVoted)
    say(fiona)
    say(frank)
    assert stage.drive() == "completed"
