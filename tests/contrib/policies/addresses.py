"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.policies import services
from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.models import Policy
from durableagents.contrib.policies.services import NewPolicyBody
from ledger.actors import Actor
from runs.engine.agents import registry
from runs.models import Run
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.roles import ADMINS, EVERY, OPERATE, SUPERUSER

API = [
    ("GET", EVERY | {SUPERUSER}, "api-policies api-policy"),
    ("POST", ADMINS, "api-policies api-policies-restore api-policy api-policy-retire"),
    ("POST", OPERATE | {"auditor", SUPERUSER}, "api-policies-try"),
]
READ = [
    (EVERY, "policies policy"),
]
ACT = [
    (set(), "new_policy policy_versions policy_retirements policy_restorations"),
    ({"operator", "auditor"}, "policy_tries"),
]


def make_parts(run: Run, by: Actor) -> dict[str, Any]:
    given = {"name": "buying", "agent": "buyer", "effect": "allow", "rule": "all of it", "justification": "as agreed"}
    if not Policy.objects.exists():
        services.create(NewPolicyBody(**given), by=Actor("os", "root", auth="shell"))
    return {"policy": "buying"}


def policy() -> None:
    if not Policy.objects.exists():
        known = min(each.name for each in registry.agents())
        fields = {"name": "dear", "effect": "deny", "rule": "too dear", "agent": known, "justification": "agreed"}
        policies.create(NewPolicyBody(**fields), by=Actor("os", "root", auth="shell"))


def sample_policy() -> list[str]:
    policy()
    return ["dear"]


SAMPLES = {"policy": sample_policy}
