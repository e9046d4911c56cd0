"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from uuid import uuid4

from django.utils import timezone

from durableagents.contrib.change_control.models import RuleChange
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.roles import ADMINS, OPERATE, SUPERUSER

API = [
    ("POST", ADMINS, "api-four-eyes"),
    ("POST", OPERATE | {"auditor", SUPERUSER}, "api-change-apply api-change-refuse api-change-withdraw"),
    ("GET", OPERATE | {"auditor", SUPERUSER}, "api-changes api-change api-four-eyes"),
]
READ = [
    ({"operator", "auditor"}, "rule_changes rule_change"),
]
ACT = [
    (set(), "four_eyes"),
    ({"operator", "auditor"}, "rule_change_agreements rule_change_refusals rule_change_withdrawals"),
]


def rule_change() -> RuleChange:
    fields = {"action": "policy", "subject": "policy dear", "queue": "", "before": {}, "after": {"rule": "no"}}
    change = RuleChange(
        id=uuid4(),
        family="policies",
        act="durableagents.contrib.policies.services.create",
        given={},
        told=[fields],
        why="so",
        by="user:olga",
        person=1,
        made_at=timezone.now(),
    )
    change.seal()
    change.save(force_insert=True)
    return change


SAMPLES = {"change_id": lambda: [rule_change().pk]}
