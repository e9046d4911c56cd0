"""What the second of two people reads of a change is in words: whoever agrees to it does not count minutes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from approvals.deadlines import acts as deadlines
from approvals.deadlines.bodies import CalendarBody, StepBody, TimingBody
from approvals.granting import bounds
from approvals.granting.bodies import BoundsBody
from approvals.policies.words import said, was_and_is
from approvals.queues import acts as queues
from approvals.queues.bodies import ProofBody
from ledger.actors import Actor
from ledger.models import RuleChange
from tests.approvals.setup import WHY
from tests.approvals.test_rule_changes import anna, bert, guarded, proposed
from tests.approvals.test_rule_changes_beside import client_of
from tests.console.conftest import text_of

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert", "guarded"]  # fixtures


def read(change: RuleChange, by: Actor) -> str:
    return text_of(client_of(by).get(f"/changes/{change.pk}"))


def test_deadlines_are_read_in_hours(guarded: None, anna: Actor, bert: Actor) -> None:
    body = TimingBody(
        on_timeout="escalate",
        steps=[StepBody(to="legal", hours=6)],
        remind=[50, 80],
        clock_stops_hours=2,
        at_once_if_away=True,
        justification=WHY,
    )
    page = read(proposed(lambda: deadlines.set_timing("finance_po", body, by=anna)), bert)
    for words in (
        "to whom it goes none legal for 6 hours",
        "after 50 % and 80 % of the time",
        "a further queue",
        "the clock stands for at most none 2 hours",
        "everybody is away none yes",
    ):
        assert words in page, words
    assert "360" not in page and "[" not in page and "of what waits for ever" not in page


def test_what_a_yes_has_to_show_and_how_far_it_may_go_are_read_in_words(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    proof = ProofBody(minutes=5, above=Decimal(100), type_amount=True, justification=WHY)
    page = read(proposed(lambda: queues.prove("finance_po", proof, by=anna)), bert)
    assert "above $100: its person has shown their password or second factor within 5 minutes" in page
    assert "the amount is typed" in page and "300" not in page and "{" not in page
    again = BoundsBody(times=5, days=1, sum=Decimal(30000), justification=WHY)
    page = read(proposed(lambda: bounds.allow("finance_po", again, by=anna)), bert)
    assert "5 calls at most, 1 day at most, 30,000 in all at most" in page and "{" not in page


def test_a_calendar_is_read_as_it_was_typed(guarded: None, anna: Actor, bert: Actor) -> None:
    body = CalendarBody.model_validate(
        {
            "name": "DE",
            "zone": "Europe/Berlin",
            "week": {"mon": "09:00-12:00, 13:00-18:00", "fri": "09:00-12:00"},
            "holidays": [{"day": "2026-12-25", "name": "Christmas Day"}],
            "justification": WHY,
        }
    )
    page = read(proposed(lambda: deadlines.set_calendar(body, by=anna)), bert)
    assert "Mon 09:00-12:00, 13:00-18:00; Fri 09:00-12:00" in page and "2026-12-25 Christmas Day" in page


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("within_seconds", 60, 61), ("proof", {"within": 60}, {"within": 61}), ("steps", [["a", 0]], [["a", 0.5]])],
)
def test_what_differs_never_reads_the_same(name: str, before: Any, after: Any) -> None:
    was, now = was_and_is(name, before, after)
    assert was != now


@pytest.mark.parametrize("value", [7, "x", [1], [[1, 2, 3]], {"within": "x"}, {"times": None}, [None], {"a": []}])
@pytest.mark.parametrize("name", ["steps", "proof", "again", "week", "remind", "holidays", "within_seconds", "every"])
def test_what_has_another_shape_is_read_as_it_is_kept(name: str, value: Any) -> None:
    assert isinstance(said(name, value), str)
