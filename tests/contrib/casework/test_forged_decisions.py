"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Approval
from durableagents.contrib.casework.delegations import delegate
from ledger.actors import Actor
from tests.integration.approvals.setup import WHY, asked, signed_in, somebody
from tests.integration.runs.stage import Stage
from tests.tampering import run_sql
from tests.world import Toolbox

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


TO_LEGAL = "UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'"


@pytest.fixture
def case(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


@pytest.fixture
def lena() -> Actor:
    return somebody("lena", "approver_legal")


@pytest.fixture
def ira() -> Actor:
    return somebody("ira", "integrator")


def over_api(case: Approval, by: Actor) -> tuple[int, object]:
    answer = signed_in(by).get(f"/api/v1/approvals/{case.pk}")
    return answer.status_code, answer.json().get("arguments")


@pytest.mark.parametrize("how", ["queue", "place"])
def test_what_gave_nothing_any_more_gives_nothing_again(case: Approval, lena: Actor, ira: Actor, how: str) -> None:
    """A delegation by someone who has lost the role since, but decides elsewhere."""
    lea = somebody("lea", "approver_finance")
    delegate(case.id, to="ira", justification=WHY, by=lea)
    assert over_api(case, ira)[1]
    User.objects.get(pk=lea.person).groups.set([Group.objects.get(name="approver_legal")])
    assert over_api(case, ira)[0] == 404
    run_sql(TO_LEGAL if how == "queue" else "UPDATE approvals_approval SET escalated_to = '{legal}'")
    assert over_api(case, ira)[0] == 404
