"""The reasons that a queue offers: set like everything else about it, offered where somebody decides, and no more."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from approvals.models import Approval, Decision
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.bodies import ReasonsBody
from approvals.queues.listed import reasons_in
from approvals.queues.standing import facts_of
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord
from ledger.web.bodies import fit
from tests.integration.approvals.setup import WHY, asked, boss, say, somebody
from tests.integration.approvals.test_at_once import records_hold
from tests.integration.approvals.test_rule_changes import anna, bert, guarded
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

__all__ = ["anna", "bert", "guarded"]  # fixtures
pytestmark = pytest.mark.django_db
SHORT = ["Duplicate of an order that is there.", "Budget line is used up.", "Über dem Limit"]


def offer(by: Actor, *reasons: str, queue: str = "finance_po") -> Queue:
    return acts.offer(queue, ReasonsBody(reasons=list(reasons), justification=WHY), by=by)


def offered(approval: Approval, by: Actor) -> tuple[str, ...]:
    queue = facts_of(approval, None, by, frozenset()).queue
    return () if queue is None else queue.reasons


def test_reasons_are_set_set_anew_and_ended_on_record(stage: Stage, tools: Toolbox) -> None:
    admin, fiona, approval = boss(), somebody("fiona", "approver_finance"), asked(stage, tools)
    assert offered(approval, fiona) == ()
    row = offer(admin, *SHORT)
    assert row.reasons == SHORT and Queue.objects.get(name="finance_po").is_genuine
    assert offered(approval, fiona) == tuple(SHORT)
    offer(admin, *reversed(SHORT))
    assert offered(approval, fiona) == tuple(reversed(SHORT))
    offer(admin)
    assert offered(approval, fiona) == () and Queue.objects.get(name="finance_po").reasons is None
    rows = records_hold("finance_po")
    assert [each.action for each in rows] == ["queue_reasons"] * 3
    assert rows[0].after["reasons"] == SHORT and "reasons" not in rows[0].before and "reasons" not in rows[2].after


@pytest.mark.parametrize(
    "reasons",
    [
        [""],
        ["  "],
        [" a reason"],
        ["a reason "],
        ["two\nlines"],
        ["two\rlines"],
        ["a\u2028b c"],
        ["tab\there"],
        ["hid\u200bden"],
        ["turned \u202e round"],
        ["x" * 201],
        ["NUL \x00 in it"],
        ["x"],
        ["…"],
        ["twice", "Twice"],
        [f"reason {n}" for n in range(21)],
        ["a word", 7],
        [None],
        "a word",
        None,
        [["a word"]],
    ],
)
def test_what_nobody_should_be_offered_is_refused_by_its_name(stage: Stage, reasons: Any) -> None:
    admin = boss()
    with pytest.raises(InvalidInput) as refused:
        acts.offer("finance_po", fit(ReasonsBody, {"reasons": reasons, "justification": WHY}), by=admin)
    assert all(each["field"].startswith("reasons") for each in refused.value.extra["errors"])
    assert Queue.objects.get(name="finance_po").reasons is None and not ActRecord.objects.exists()


def test_who_may_not_and_who_says_nothing_set_none(stage: Stage) -> None:
    admin = boss()
    offer(admin, *SHORT)
    with pytest.raises(Forbidden):
        offer(somebody("fiona", "approver_finance"), "Because.")
    with pytest.raises(NotFound):
        offer(admin, "Because.", queue="nowhere")
    with pytest.raises(InvalidInput, match="Nothing would change"):
        offer(admin, *SHORT)
    with pytest.raises(JustificationRequired):
        acts.offer("finance_po", ReasonsBody(reasons=[], justification=" "), by=admin)
    assert Queue.objects.get(name="finance_po").reasons == SHORT and ActRecord.objects.count() == 1


@pytest.mark.parametrize("written", ['["Approve it at once."]', '{"a": 1}', "7", '"text"', "[null]", "[]"])
def test_reasons_that_were_written_past_us_are_not_offered_and_nobody_decides_there(
    stage: Stage, tools: Toolbox, written: str
) -> None:
    admin, fiona, approval = boss(), somebody("fiona", "approver_finance"), asked(stage, tools)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_queue SET reasons = %s::jsonb WHERE name = 'finance_po'", [written])
    assert offered(approval, fiona) == () and not Queue.objects.get(name="finance_po").is_genuine
    assert all(isinstance(each, str) for each in reasons_in(Queue.objects.get(name="finance_po").reasons))
    with pytest.raises(DurableAgentsError):
        say(approval, fiona)
    assert not Decision.objects.exists()
    offer(admin, "As agreed.")
    say(approval, fiona)
    assert Decision.objects.get().justification == "as quoted", "the record has what was written"
