"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from runs.models import Run
from tests.contrib.limits.budgets import pool
from tests.integration.api.conftest import Api
from tests.roles import EVERY, OPERATE

API = [
    ("GET", EVERY, "api-limits api-shared-budgets api-shared-budget api-run-shared-budgets"),
    (
        "POST",
        OPERATE,
        """
        api-limits api-limit-reset api-limit-open api-limit-close api-shared-budgets api-shared-budget
        api-shared-budget-off
        """,
    ),
]
READ = [
    (EVERY, "shared_budgets"),
    ({"integrator", "operator", "auditor"}, "limits"),
]
ACT = [
    (
        {"operator"},
        """
        new_shared_budget shared_budget_limits shared_budget_closings limit_settings limit_resets
        breaker_openings breaker_closings
        """,
    ),
]


def make_theirs(operator: Api, run: Run) -> dict[str, str]:
    shared = {"name": "theirs", "resource": "tool_calls", "limit": 2, "scope": "all", "period": "month"}
    made = operator.post("shared-budgets", shared | {"justification": "What may be spent."}).json()
    return {"<int:budget_id>": str(made["id"])}


SAMPLES = {"budget_id": lambda: [pool(limit=10**6, scope="tag", of="address").pk]}
