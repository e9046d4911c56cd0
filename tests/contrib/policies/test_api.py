"""Policies over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durableagents.contrib.policies.models import Policy
from ledger.models import ActRecord
from tests.integration.api.conftest import Api, auditor, caller, integrator, is_problem, operator, order_agent  # noqa: F401 (fixtures)
from tests.integration.api.test_queues import BODY

pytestmark = pytest.mark.django_db


def test_a_policy_that_is_wrong_is_refused_by_field(caller: Callable[[Any], Api]) -> None:
    boss = caller("superuser")
    for wrong, field in (
        ({"name": "restore"}, "name"),
        ({"name": "A b"}, "name"),
        ({"condition": "cost >"}, "condition"),
        ({"effect": "maybe"}, "effect"),
        ({"within_hours": 0}, "within_hours"),
        ({"condition": ""}, "confirm"),
        ({"extra": 1}, "extra"),
    ):
        answer = boss.post("policies", BODY | wrong)
        assert is_problem(answer, 422), wrong
        assert field in [each["field"] for each in answer.json()["errors"]], (wrong, answer.json())
    assert not Policy.objects.exists() and not ActRecord.objects.exists()
