"""Standing grants over HTTP: given with a decision, read by whoever decides there, taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.granting import using
from approvals.models import Approval
from durableagents.identity.auth import issue_key
from runs.models import Run
from tests.integration.api.conftest import Api, is_problem
from tests.integration.api.test_consulting import finance, put
from tests.integration.api.worker import working
from tests.integration.console.conftest import buyer
from tests.integration.console.stage import settled

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["finance"]  # fixtures
WHY = {"justification": "as agreed with the board"}


@pytest.fixture
def case() -> Iterator[Approval]:
    with buyer():
        yield put()


@pytest.fixture
def boss() -> Api:
    return Api(issue_key(User.objects.create_superuser("boss"), "test"))


def decision(case: Approval, **again: Any) -> dict[str, Any]:
    until = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    said = {"times": 1, "until": until} | again
    return {"verdict": "approve", "plan_hash": case.plan_hash, "again": said, **WHY}


def test_it_is_given_used_read_and_taken_back(
    case: Approval, finance: Api, boss: Api, caller: Callable[[Any], Api]
) -> None:
    at = f"approvals/{case.id}/decision"
    refused = finance.post(at, decision(case))
    assert is_problem(refused, 422) and "may not be allowed in finance_po" in refused.json()["detail"]
    assert Approval.objects.get(pk=case.pk).state == "open"
    bounds = {"times": 2, "days": 30, **WHY}
    assert is_problem(finance.post("queues/finance_po/grants", bounds), 403)
    assert boss.post("queues/finance_po/grants", bounds).json()["grants"] == {"times": 2, "days": 30, "sum": None}
    for wrong in ({"times": 3}, {"times": 0}, {"until": "soon"}, {"sum": "5"}, {"scope": "all"}, {"more": 1}):
        answer = finance.post(at, decision(case, **wrong))
        assert is_problem(answer, 422) and "again" in answer.json()["errors"][0]["field"], wrong
    assert is_problem(finance.post(at, decision(case) | {"verdict": "reject"}), 422)
    assert is_problem(finance.post(at, decision(case) | {"arguments": {}}), 422)
    given = finance.post(at, decision(case, times=2))
    assert given.status_code == 200 and given.json()["decision"]["standing"]["again"]["times"] == 2
    second = put()
    with working():
        settled(Run.objects.get(pk=second.run_id), "completed")
    (grant,) = finance.get("grants").json()["results"]
    assert (grant["used"], grant["times"], grant["state"], grant["by"]) == (1, 2, "active", "key:approver_finance")
    assert grant["uses"][0]["approval_id"] == str(second.id) and grant["fields"] == ["amount", "extra", "item"]
    told = finance.get(f"approvals/{second.id}").json()["decision"]
    assert told["standing"] == {"grant": grant["id"], "use": 1} and told["by"] == "user:approver_finance"
    # who decides elsewhere, or starts runs, is shown none; who answers for it all
    for role, status in (("approver_legal", 404), ("integrator", 404), ("operator", 200), ("auditor", 200)):
        assert caller(role).get(f"grants/{grant['id']}").status_code == status, role
        assert len(caller(role).get("grants").json()["results"]) == (status == 200)
    end = f"grants/{grant['id']}/end"
    assert is_problem(caller("auditor").post(end, WHY), 403)
    assert is_problem(caller("approver_legal").post(end, WHY), 404)
    assert is_problem(finance.post(end, {}), 422)
    ended = caller("operator").post(end, WHY).json()
    assert (ended["state"], ended["end"]["by"], ended["end"]["role"]) == ("taken_back", "key:operator", "operator")
    assert is_problem(finance.post(end, WHY), 409)
    third = put()
    using.look([], float("inf"))
    assert Approval.objects.get(pk=third.pk).state == "open"
    assert is_problem(finance.get("grants?cursor=x"), 400)
    assert finance.get("grants?queue=finance_po&limit=1").json()["results"]
    assert boss.post("queues/finance_po/grants", WHY).json()["grants"] is None
