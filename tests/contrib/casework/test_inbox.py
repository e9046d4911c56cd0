"""Deciding: the whole plan is shown, the first decision wins, nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django.plugin import _django_db_marker  # noqa: F401 (the folder's takes no transaction=True)

from approvals.models import Approval
from durableagents.contrib.casework.models import Claim
from tests.cases import each_case
from tests.integration.console.conftest import (  # noqa: F401 (fixtures)
    SHOP,
    Reader,
    agent,
    asked,
    finance,
    reader,
    start,
)
from tests.integration.console.stage import settled, working
from tests.integration.console.test_inbox import on, run  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def frank(reader: Callable[..., Reader]) -> Reader:
    return reader("approver_finance", name="frank")


@pytest.fixture
def asked_plainly(asked: Callable[..., Approval]) -> Approval:
    return asked()


def test_a_second_claimer_may_take_over_and_the_first_learns(
    finance: Reader, frank: Reader, asked_plainly: Approval
) -> None:
    on(finance, asked_plainly)
    page = on(frank, asked_plainly)
    assert "user:approver_finance has claimed it until" in page and "Take the claim over" in page
    (row,) = Claim.objects.all()
    page = on(frank, asked_plainly, take_over=row.pk)
    assert "Assigned to you until" in page
    first = finance.read(f"/inbox/{asked_plainly.id}")
    assert "frank took over from you" in first and "Assigned to frank until" in first
    assert "when user:frank took it over" in first
    frank.post(f"/approvals/{asked_plainly.id}/releases")
    assert "took over from you" not in on(finance, asked_plainly), "who is on it again knows"


def test_the_list_is_narrowed_to_what_nobody_is_on_and_to_mine(
    finance: Reader, frank: Reader, reader: Callable[..., Reader], asked_plainly: Approval
) -> None:
    run = start(item="tables")
    with working():
        settled(run, "waiting_human")
    other = Approval.objects.exclude(pk=asked_plainly.pk).get(state="open")
    on(finance, asked_plainly)

    def listed(who: Reader, **query: str) -> set[str]:
        page = who.get("/inbox", **query).content.decode()
        return set(re.findall(r'id="item-([0-9a-f-]+)"', page))

    both = {str(asked_plainly.id), str(other.id)}
    for who in (finance, frank, reader("operator")):
        assert listed(who) == listed(who, on="all") == listed(who, on="x\x00") == both
        assert listed(who, on="nobody") == {str(other.id)}
        assert listed(who, on="nobody", q=str(asked_plainly.run_id)) == set()
    assert listed(finance, on="me") == {str(asked_plainly.id)} == listed(finance, on="me", q=str(asked_plainly.run_id))
    assert listed(frank, on="me") == listed(reader("operator"), on="me") == set()
    assert "Nothing is assigned to you" in frank.read("/inbox", on="me")
    page = finance.get("/inbox", on="me").content.decode()
    assert '<input type="hidden" name="on" value="me">' in page and "?on=nobody" in page
    Claim.objects.update(until=timezone.now() + timedelta(hours=9))  # nobody can have claimed it for that long
    assert listed(finance, on="nobody") == both and listed(finance, on="me") == set()
    assert listed(finance, show="decided", on="nobody") == set()


@each_case("role", ["approver_legal", "operator", "integrator"])
def test_only_deciders_may_claim(reader: Callable[..., Reader], asked_plainly: Approval, role: str) -> None:
    answer = reader(role).post(f"/approvals/{asked_plainly.id}/claims")
    assert answer.status_code in (403, 404) and not Claim.objects.exists()
