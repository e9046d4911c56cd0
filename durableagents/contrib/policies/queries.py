"""Policies for pages and the API: the rules in force, including gates in code, and the versions of a policy."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic import Field

from approvals.queues.listed import asked_in_words
from durableagents.contrib.policies import services
from durableagents.contrib.policies.in_force import read_policies
from durableagents.contrib.policies.models import Policy
from ledger.web.fields import ActorName, IsAuthentic, Rows
from ledger.web.shapes import Page, Shape
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import threshold_in

MAX_VERSIONS = 100
# The fields shown to people, in order, with their labels.
_LABELS = {
    "agent": "Agent",
    "tool": "Tool",
    "condition": "When",
    "effect": "Effect",
    "queue": "Asks",
    "within_seconds": "Within",
    "proof": "Extra verification",
    "rule": "Rule",
}
_TONES = {"allow": "ok", "require": "hold", "deny": "bad"}
_PROOF = (
    "Proof required to approve: authentication within the last `within` seconds, a second "
    "`factor`, and typing the `amount` or `target`. Null: the queue's requirement applies."
)


class PolicyChangeRow(Shape):
    """A difference from the previous version."""

    what: str = Field(description="Field that changed.")
    was: str = Field(description="Its previous value.")
    now: str = Field(description="Its new value.")


class _Rule(Shape):
    agent: str = Field(description="Agent that it applies to; empty: any agent.")
    tool: str = Field(description="Tool that it applies to; empty: any tool.")
    condition: str = Field(description="Condition on the call's arguments; empty if it always applies.")
    effect: Policy.Effect = Field(description="allow, require (an approval) or deny.")
    queue: str = Field(description="Queue that must approve; empty: none.")
    within_hours: int = Field(
        description="Hours within which the queue must decide; for a gate in code, in the way that it counts them."
    )
    rule: str = Field(description="Explanation that approvers see.")
    proof: Any = Field(description=_PROOF)

    @property
    def tone(self) -> str:
        return _TONES.get(str(self.effect), "")

    @property
    def proof_words(self) -> str:
        return _proof_words(self.proof)


class PolicyVersionRow(_Rule):
    """One version of a policy."""

    version: int = Field(description="Number of the version, from 1.")
    set_by: ActorName
    made_at: datetime = Field(description="Time when it came into force.")
    ended_at: datetime | None = Field(description="Null: in force.")
    ended_by: str = Field(description="Person who replaced or retired it; empty: in force.")
    changes: list[PolicyChangeRow] = Field(description="Differences from the previous version.")
    is_authentic: bool = Field(
        description="False: not recorded by this installation, so affected calls stop for an operator."
    )


class PolicyRow(Shape):
    """A policy, with the values of its newest version."""

    name: str = Field(description="Name of the policy.")
    version: int = Field(description="Number of its newest version.")
    is_in_force: bool = Field(description="Whether the policy is in force.")
    versions: list[PolicyVersionRow] = Field(description="Newest first; at most 100.")


class PolicyRuleRow(_Rule):
    """A rule in force: a policy, or a gate defined in an agent's code."""

    source: str = Field(description="policy or code.")
    name: str = Field(description="Name of a policy; a gate in code has none.")
    version: int | None = Field(description="Version of the policy; null for a gate in code.")
    agent_versions: list[str] = Field(description="For a gate in code: the agent versions that define it.")
    is_authentic: IsAuthentic


class RulePage(Page):
    results: Rows[PolicyRuleRow]
    problem: str = Field(
        description="Why the rules in force can't be determined, in which case no call is sent; empty: no problem."
    )


def find_rules() -> RulePage:
    """Return the policies in force, then the gates in code, which policies can't remove."""
    policies = [policy_rule(row) for row in Policy.objects.filter(ended_at__isnull=True).order_by("name")]
    problem = read_policies().problem
    return RulePage.of(None, results=[*policies, *_gates_in_code()], next=None, problem=problem)


def policy_rule(row: Policy) -> PolicyRuleRow:
    """Return a policy version as a row of the list of rules."""
    return PolicyRuleRow.of(
        row,
        source="policy",
        within_hours=row.within_seconds // 3600,
        agent_versions=[],
    )


def _gates_in_code() -> list[PolicyRuleRow]:
    found: dict[tuple[str, str, str, str, int], list[str]] = {}
    for agent in registry.agents():
        for tool in agent.all_tools():
            if (gate := tool.gate) is not None:
                hours = int(gate.time.span.total_seconds() // 3600)
                found.setdefault((agent.name, tool.name, gate.queue, gate.rule, hours), []).append(agent.version)
    return [
        PolicyRuleRow.of(
            None,
            source="code",
            name="",
            version=None,
            agent=agent,
            agent_versions=versions,
            tool=tool,
            condition="",
            effect="require",
            queue=queue,
            within_hours=hours,
            rule=rule,
            proof=None,
            is_authentic=True,
        )
        for (agent, tool, queue, rule, hours), versions in sorted(found.items())
    ]


def find_policy(name: str) -> PolicyRow:
    """Return a policy with its versions. Raises NotFound."""
    newest = services.find(name)
    return PolicyRow.of(newest, is_in_force=newest.is_in_force, versions=_versions(name))


def _versions(name: str) -> list[PolicyVersionRow]:
    rows = list(Policy.objects.filter(name=name).order_by("-version")[: MAX_VERSIONS + 1])
    return [
        PolicyVersionRow.of(row, within_hours=row.within_seconds // 3600, changes=_changes(before, row))
        for row, before in zip(rows[:MAX_VERSIONS], [*rows[1:], None], strict=False)
    ]


def _changes(before: Policy | None, now: Policy) -> list[PolicyChangeRow]:
    """Return the differences from the version before, in the order of the form; none for a first version."""
    if before is None:
        return []
    pairs = [(label, _words(before, name), _words(now, name)) for name, label in _LABELS.items()]
    return [PolicyChangeRow(what=label, was=was, now=current) for label, was, current in pairs if was != current]


def _words(row: Policy, name: str) -> str:
    if name == "within_seconds":
        return f"{row.within_seconds // 3600} hours" if row.within_seconds else ""
    return _proof_words(row.proof) if name == "proof" else str(getattr(row, name))


def _proof_words(proof: Any) -> str:
    """Return as text what an approval must prove; empty if this is unreadable or no more than the queue requires."""
    with suppress(DefinitionError):
        return asked_in_words(threshold_in(proof)).partition(": ")[2]
    return ""


def find_retired() -> list[Policy]:
    """Return the last version of each retired policy."""
    live = Policy.objects.filter(ended_at__isnull=True).values("name")
    rows = Policy.objects.filter(ended_at__isnull=False).exclude(name__in=live).order_by("name", "-version")
    return list(rows.distinct("name")[:MAX_VERSIONS])


def agents_and_tools() -> tuple[list[str], list[str]]:
    """Return the names of all agents and of all tools."""
    agents = registry.agents()
    tools = {tool.name for each in agents for tool in each.all_tools()}
    return sorted({each.name for each in agents}), sorted(tools)


def use_of_queue(name: str) -> str:
    """Return a text that names a policy in force that uses the queue; empty if none does."""
    policy = Policy.objects.filter(queue=name, ended_at__isnull=True).first()
    return f"the policy {policy.name} uses it" if policy is not None else ""
