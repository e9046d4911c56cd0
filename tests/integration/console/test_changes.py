"""Approving with changes, by its page: first what would change is shown, then exactly that is said yes to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from approvals.models import Approval, Decision
from ledger import events as e
from ledger.verification.runs import verify
from tests.integration.console.conftest import Reader, start, text_of
from tests.integration.console.stage import question, settled, working
from tests.integration.runs.stage import events

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def asked() -> Approval:
    run = start(amount=84_000, extra={"deep": 1})
    with working():
        settled(run, "waiting_human")
    return question(run)


def changed(who: Reader, approval: Approval, **typed: Any) -> Any:
    """Fill in the form and look; then send what the page shows."""
    form = {"plan_hash": approval.plan_hash, "item": "chairs", "amount": "84000", **typed}
    return who.post(f"/approvals/{approval.id}/changes", **form)


def looked_at(answer: Any) -> str:
    found = re.search(r'name="looked" value="([^"]*)"', answer.content.decode())
    assert found is not None
    return found.group(1)


def test_what_would_change_is_shown_and_then_exactly_that_is_approved(finance: Reader, asked: Approval) -> None:
    assert "Change…" in finance.read(f"/inbox/{asked.id}")
    page = finance.read(f"/approvals/{asked.id}/changes")
    assert 'value="look">' in finance.get(f"/approvals/{asked.id}/changes").content.decode()
    assert "What may be changed" in page and "Approve with these changes" not in page
    look = changed(finance, asked, **{"amount": "500", "step": "look"})
    words = text_of(look)
    assert "<dd><del>84000</del> <ins>500</ins></dd>" in look.content.decode().replace("\n</dd>", "</dd>"), "as it is"
    assert look.status_code == 200 and "84000 500" in words and "Approve with these changes" in words
    assert Approval.objects.get().state == "open", "looking does nothing"
    sent = changed(
        finance,
        asked,
        **{"amount": "500", "step": "send", "looked": looked_at(look)},
        justification="Half a chair.",
    )
    second = Approval.objects.get(revision=2)
    assert sent.status_code == 302 and sent["Location"] == f"/inbox/{second.id}"
    page = finance.read(f"/inbox/{second.id}")
    assert "Approved" in page and "84000 500" in page and "Revision 1 was amended" in page
    first = finance.read(f"/inbox/{asked.id}")
    assert "Amended by user:approver_finance" in first and "revision 2" in first
    assert json.loads(bytes(second.plan))["headline"] == "$500.00"
    with working():
        settled(asked.run, "completed")
    (intent,) = events(asked.run, e.ToolInvoked)
    assert intent.payload["arguments"]["amount"] == 500 and verify(asked.run_id).problems == []
    for tab in ("timeline", "decisions", "journal", "transcript"):
        finance.read(f"/runs/{asked.run_id}", tab=tab)
    told = finance.read(f"/runs/{asked.run_id}")
    assert (
        "changed by user:approver_finance" in told
        and "approved: Half a chair." in told
        and "nobody answered" not in told
    )
    assert "amend" in finance.read("/audit", action="amend")


def test_what_was_not_looked_at_is_not_sent(finance: Reader, asked: Approval) -> None:
    look = changed(finance, asked, **{"amount": "500", "step": "look"})
    other = changed(
        finance, asked, **{"amount": "90000", "step": "send", "looked": looked_at(look)}, justification="More."
    )
    assert other.status_code == 200 and "84000 90000" in text_of(other) and "More." in other.content.decode()
    assert Approval.objects.get().state == "open"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"amount": "much"}, "whole number"),
        ({"amount": ""}, "is empty"),
        ({}, "change something"),
        ({"why": "no field"}, "it does not have"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field_and_what_was_typed_is_kept(
    finance: Reader, asked: Approval, typed: dict[str, str], words: str
) -> None:
    answer = changed(finance, asked, **{"item": "chairs", **typed}, step="look")
    assert answer.status_code == 422 and words in text_of(answer)
    assert Approval.objects.get().state == "open"


def test_who_comes_second_keeps_what_they_typed(
    finance: Reader, reader: Callable[..., Reader], asked: Approval
) -> None:
    frank = reader("approver_finance", name="frank")
    look = changed(frank, asked, **{"item": "my very own chairs", "step": "look"})
    finance.post(
        f"/approvals/{asked.id}/decision", verdict="reject", plan_hash=asked.plan_hash, justification="No chairs."
    )
    answer = changed(
        frank,
        asked,
        **{"item": "my very own chairs", "step": "send", "looked": looked_at(look)},
        justification="My careful reasons.",
    )
    page = answer.content.decode()
    assert answer.status_code == 409 and "rejected by user:approver_finance" in text_of(answer)
    assert "my very own chairs" in page and "My careful reasons." in page
    assert 'value="look" disabled>' in page and 'value="send"' not in page
    assert Decision.objects.count() == 1


def test_whoever_may_not_decide_it_changes_nothing(reader: Callable[..., Reader], asked: Approval) -> None:
    legal = reader("approver_legal")
    assert "Only approver_finance decides" in legal.read(f"/approvals/{asked.id}/changes")
    answer = changed(legal, asked, **{"amount": "1", "step": "send"}, justification="so be it")
    assert answer.status_code == 403 and Approval.objects.get().state == "open"
