"""Claims over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.plugin import _django_db_marker  # noqa: F401 (the folder's takes no transaction=True)

from durableagents.contrib.casework.models import Claim
from tests.integration.api.conftest import Api, auditor, caller, integrator, is_problem, operator, order_agent  # noqa: F401 (fixtures)
from tests.integration.api.test_story import (
    Story,
    story,  # noqa: F401 (fixtures)
)
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db(transaction=True)


def test_only_deciders_may_claim_and_misfits_are_refused(story: Story, caller: Callable[[Any], Api]) -> None:
    story.start().to_the_gate()
    id = story.approval()["id"]
    for role in ("approver_legal", "operator", "auditor"):
        assert is_problem(caller(role).post(f"approvals/{id}/claim", {}), 403, "forbidden")
        assert is_problem(caller(role).post(f"approvals/{id}/release", {}), 409, "not-on-it")
    finance = caller("approver_finance")
    for body in (
        {"minutes": 0},
        {"minutes": 61},
        {"minutes": True},
        {"take_over": 2**63},
        {"who": 1},
    ):
        assert is_problem(finance.post(f"approvals/{id}/claim", body), 422, "invalid-input"), body
    assert is_problem(finance.post(f"approvals/{id}/release", {"minutes": 1}), 422)
    assert is_problem(finance.post(f"approvals/{story.id}/claim", {}), 404)
    assert finance.post(f"approvals/{id}/claim", {"take_over": 2**53 - 1}).status_code == 200, (
        "nobody's, and there is room"
    )
    assert Claim.objects.count() == 1
