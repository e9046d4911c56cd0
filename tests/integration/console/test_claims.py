"""Who is on a case, in the console: on the case, in the inbox, for everybody who looks, in nobody's way."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from approvals.models import Approval, Claim
from tests.integration.console.conftest import Reader, start, text_of
from tests.integration.console.stage import question, settled, working

pytestmark = pytest.mark.django_db(transaction=True)
ON_IT, LET_GO, OVER = "I'm on it, for ten minutes", "Let it go", "Take it over from"


@pytest.fixture
def asked() -> Approval:
    run = start()
    with working():
        settled(run, "waiting_human")
    return question(run)


@pytest.fixture
def frank(reader: Callable[..., Reader]) -> Reader:
    return reader("approver_finance", name="frank")


def on(who: Reader, approval: Approval, **form: object) -> str:
    """Say so, and read the page that it leads to."""
    answer = who.client.post(f"/approvals/{approval.id}/claims", form, follow=True)
    assert answer.status_code == 200
    return text_of(answer)


def test_whoever_may_decide_says_that_they_are_on_it_and_everybody_else_reads_it(
    finance: Reader, frank: Reader, reader: Callable[..., Reader], asked: Approval
) -> None:
    page = finance.read(f"/inbox/{asked.id}")
    assert ON_IT in page and "Nobody has said that they are on it." in page
    page = on(finance, asked)
    assert "You are on it until" in page and "Ten more minutes" in page and LET_GO in page and OVER not in page
    page = frank.read(f"/inbox/{asked.id}")
    assert re.search(r"approver_finance is reading it until [^.]*\. You may decide it all the same", page)
    assert f"{OVER} approver_finance" in page and ON_IT not in page
    assert "approver_finance is reading it until" in frank.read("/inbox") and "you are on it until" in finance.read(
        "/inbox"
    )
    for role in ("operator", "auditor"):
        page = reader(role).read(f"/inbox/{asked.id}")
        assert "approver_finance is reading it until" in page and OVER not in page and ON_IT not in page
        assert "approver_finance is reading it until" in reader(role).read("/inbox")
    assert "user:approver_finance is on it until" in reader("auditor").read(f"/inbox/{asked.id}"), "its history"


def test_who_comes_second_is_told_and_may_take_it_over_which_the_first_is_told(
    finance: Reader, frank: Reader, asked: Approval
) -> None:
    on(finance, asked)
    page = on(frank, asked)
    assert "user:approver_finance is reading it until" in page and "Take it over from them" in page
    (row,) = Claim.objects.all()
    page = on(frank, asked, take_over=row.pk)
    assert "You are on it until" in page
    first = finance.read(f"/inbox/{asked.id}")
    assert "frank took it over from you" in first and "frank is reading it until" in first
    assert "when user:frank took it over" in first
    frank.post(f"/approvals/{asked.id}/releases")
    assert "took it over from you" not in on(finance, asked), "who is on it again knows"


def test_the_list_is_narrowed_to_what_nobody_is_on_and_to_mine(
    finance: Reader, frank: Reader, reader: Callable[..., Reader], asked: Approval
) -> None:
    run = start(item="tables")
    with working():
        settled(run, "waiting_human")
    other = Approval.objects.exclude(pk=asked.pk).get(state="open")
    on(finance, asked)

    def listed(who: Reader, **query: str) -> set[str]:
        page = who.get("/inbox", **query).content.decode()
        return set(re.findall(r'id="item-([0-9a-f-]+)"', page))

    both = {str(asked.id), str(other.id)}
    for who in (finance, frank, reader("operator")):
        assert listed(who) == listed(who, on="all") == listed(who, on="x\x00") == both
        assert listed(who, on="nobody") == {str(other.id)}
        assert listed(who, on="nobody", q=str(asked.run_id)) == set()
    assert listed(finance, on="me") == {str(asked.id)} == listed(finance, on="me", q=str(asked.run_id))
    assert listed(frank, on="me") == listed(reader("operator"), on="me") == set()
    assert "You are on nothing" in frank.read("/inbox", on="me")
    page = finance.get("/inbox", on="me").content.decode()
    assert '<input type="hidden" name="on" value="me">' in page and "?on=nobody" in page
    Claim.objects.update(until=timezone.now() + timedelta(hours=9))  # which nobody can have said
    assert listed(finance, on="nobody") == both and listed(finance, on="me") == set()
    assert listed(finance, show="decided", on="nobody") == set()


@pytest.mark.parametrize("role", ["approver_legal", "operator", "integrator"])
def test_who_may_not_decide_it_can_not_be_on_it(reader: Callable[..., Reader], asked: Approval, role: str) -> None:
    answer = reader(role).post(f"/approvals/{asked.id}/claims")
    assert answer.status_code in (403, 404) and not Claim.objects.exists()
