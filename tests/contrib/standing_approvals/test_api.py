"""Standing approvals over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.plugin import _django_db_marker  # noqa: F401 (the folder's takes no transaction=True)

from approvals.models import Approval
from durableagents.contrib.standing_approvals import answering
from runs.models import Run
from tests.integration.api.conftest import (  # noqa: F401 (fixtures)
    Api,
    auditor,
    caller,
    integrator,
    is_problem,
    issue_key,
    operator,
    order_agent,
    person,
)
from tests.integration.api.test_deciding import (
    REASON,
    decision,
    finance,  # noqa: F401 (fixtures)
    put,
)
from tests.integration.api.worker import working
from tests.integration.console.conftest import buyer
from tests.integration.console.stage import settled
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.usefixtures("db")
def test_given_used_read_withdrawn(
    granted_case: Approval, finance: Api, boss: Api, caller: Callable[[Any], Api]
) -> None:
    at = f"approvals/{granted_case.id}/decision"
    refused = finance.post(at, decision(granted_case))
    assert is_problem(refused, 422) and "queue finance_po does not allow standing approvals" in refused.json()["detail"]
    assert Approval.objects.get(pk=granted_case.pk).state == "open"
    bounds = {"times": 2, "days": 30, **REASON}
    assert is_problem(finance.post("queues/finance_po/grants", bounds), 403)
    assert boss.post("queues/finance_po/grants", bounds).json()["grants"] == {"times": 2, "days": 30, "sum": None}
    for wrong in ({"times": 3}, {"times": 0}, {"until": "soon"}, {"sum": "5"}, {"scope": "all"}, {"more": 1}):
        answer = finance.post(at, decision(granted_case, **wrong))
        assert is_problem(answer, 422) and "again" in answer.json()["errors"][0]["field"], wrong
    assert is_problem(finance.post(at, decision(granted_case) | {"verdict": "reject"}), 422)
    assert is_problem(finance.post(at, decision(granted_case) | {"arguments": {}}), 422)
    given = finance.post(at, decision(granted_case, times=2))
    assert given.status_code == 200 and given.json()["decision"]["standing"]["again"]["times"] == 2
    second = put()
    with working():
        settled(Run.objects.get(pk=second.run_id), "completed")
    (grant,) = finance.get("grants").json()["results"]
    assert (grant["used"], grant["times"], grant["state"], grant["by"]) == (1, 2, "active", "key:approver_finance")
    assert grant["uses"][0]["approval_id"] == str(second.id) and grant["fields"] == ["amount", "extra", "item"]
    found = finance.get(f"approvals/{second.id}").json()["decision"]
    assert found["standing"] == {"grant": grant["id"], "use": 1} and found["by"] == "user:approver_finance"
    # deciders of other queues and integrators see none; operators and auditors do
    for role, status in (("approver_legal", 404), ("integrator", 404), ("operator", 200), ("auditor", 200)):
        assert caller(role).get(f"grants/{grant['id']}").status_code == status, role
        assert len(caller(role).get("grants").json()["results"]) == (status == 200)
    end = f"grants/{grant['id']}/end"
    assert is_problem(caller("auditor").post(end, REASON), 403)
    assert is_problem(caller("approver_legal").post(end, REASON), 404)
    assert is_problem(finance.post(end, {}), 422)
    ended = caller("operator").post(end, REASON).json()
    assert (ended["state"], ended["end"]["by"], ended["end"]["role"]) == ("taken_back", "key:operator", "operator")
    assert is_problem(finance.post(end, REASON), 409)
    third = put()
    answering.answer_questions([], float("inf"))
    assert Approval.objects.get(pk=third.pk).state == "open"
    assert is_problem(finance.get("grants?cursor=x"), 400)
    assert finance.get("grants?queue=finance_po&limit=1").json()["results"]
    assert boss.post("queues/finance_po/grants", REASON).json()["grants"] is None


@pytest.fixture
def granted_case() -> Iterator[Approval]:
    with buyer():
        yield put()


@pytest.fixture
def boss() -> Api:
    return Api(issue_key(User.objects.create_superuser("boss"), "test"))
