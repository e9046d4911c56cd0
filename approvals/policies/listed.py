"""Policies for pages and the API, in one list with gates in code; and a policy's versions with their changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from approvals.policies.inforce import now as in_force_now
from approvals.queues.listed import asked_in_words
from approvals.rules.rows import Policy
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import threshold_in

MAX_VERSIONS = 100
# Fields that people read, in order.
FIELDS = (
    ("agent", "Agent"),
    ("tool", "Tool"),
    ("condition", "When"),
    ("effect", "Effect"),
    ("queue", "Asks"),
    ("within_seconds", "Within"),
    ("proof", "Extra verification"),
    ("rule", "Rule"),
)
TONES = {"allow": "ok", "require": "hold", "deny": "bad"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A rule in the list. Gates in code have the agent's `versions`, others the row `policy`."""

    name: str
    agent: str
    tool: str
    condition: str
    effect: str
    queue: str
    within: timedelta
    rule: str
    policy: Policy | None = None
    versions: Sequence[str] = ()

    @property
    def proof(self) -> str:
        return "" if self.policy is None else proof_words(self.policy)

    @property
    def tone(self) -> str:
        return TONES.get(self.effect, "")

    @property
    def is_authentic(self) -> bool:
        return self.policy is None or self.policy.is_authentic


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs from the previous version."""

    what: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Version:
    """A version and its changes."""

    row: Policy
    changes: Sequence[Change] = field(default_factory=tuple)
    is_authentic: bool = True

    @property
    def tone(self) -> str:
        return TONES.get(str(self.row.effect), "")


def in_force() -> tuple[list[Shown], str]:
    """Return all in force, and the problem with them (empty if none)."""
    rows = Policy.objects.filter(ended_at__isnull=True).order_by("name")
    return [shown(row) for row in rows], in_force_now().problem


def shown(row: Policy) -> Shown:
    """Return a policy for the list."""
    return Shown(
        row.name,
        row.agent,
        row.tool,
        row.condition,
        str(row.effect),
        row.queue,
        timedelta(seconds=row.within_seconds),
        row.rule,
        policy=row,
    )


def in_code() -> list[Shown]:
    """Return the gates in code: each requires an approval that no policy removes."""
    found: dict[tuple[str, str, str, str, timedelta], list[str]] = {}
    for agent in registry.agents():
        for tool in agent.all_tools():
            if tool.gate is not None:
                gate = tool.gate
                key = (agent.name, tool.name, gate.queue, gate.rule, gate.time.span)
                found.setdefault(key, []).append(agent.version)
    return [
        Shown("", agent, tool, "", "require", queue, within, rule, versions=tuple(versions))
        for (agent, tool, queue, rule, within), versions in sorted(found.items())
    ]


def retired() -> list[Policy]:
    """Return the last version of each retired policy."""
    live = Policy.objects.filter(ended_at__isnull=True).values("name")
    rows = Policy.objects.filter(ended_at__isnull=False).exclude(name__in=live).order_by("name", "-version")
    return list(rows.distinct("name")[:MAX_VERSIONS])


def versions(name: str) -> list[Version]:
    """Return a policy's versions with their changes, newest first."""
    rows = list(Policy.objects.filter(name=name).order_by("-version")[: MAX_VERSIONS + 1])
    pairs = [(row, rows[i + 1] if i + 1 < len(rows) else None) for i, row in enumerate(rows)]
    return [Version(row, changes(before, row), row.is_authentic) for row, before in pairs[:MAX_VERSIONS]]


def changes(before: Policy | None, now: Policy) -> list[Change]:
    """Return the differences in form order; none for a first version."""
    if before is None:
        return []
    pairs = [(label, _words(before, name), _words(now, name)) for name, label in FIELDS]
    return [Change(label, was, said) for label, was, said in pairs if was != said]


def _words(row: Policy, name: str) -> str:
    if name == "within_seconds":
        return f"{row.within_seconds // 3600} hours" if row.within_seconds else ""
    return proof_words(row) if name == "proof" else str(getattr(row, name))


def proof_words(row: Policy) -> str:
    """Return what an approval must prove; empty if no more than its queue asks, or unreadable."""
    with suppress(DefinitionError):
        return asked_in_words(threshold_in(row.proof)).partition(": ")[2]
    return ""


def names(of: Iterable[str]) -> list[str]:
    return sorted(set(of))


def agents_and_tools() -> tuple[list[str], list[str]]:
    agents = registry.agents()
    return names(each.name for each in agents), names(tool.name for each in agents for tool in each.all_tools())
