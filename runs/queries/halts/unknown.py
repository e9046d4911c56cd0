"""Names in halts that nothing here has: a slip of the pen halts nothing, and says so. It may be meant, for what is yet
to come, so it is told and never refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from django.conf import settings
from django.db import connection

from runs.engine.agents import registry
from runs.models import Halt
from runs.services.budgets.prices import models_of

# Of those that this process doesn't know itself: workers may have other versions, and runs any tag.
_UNKNOWN = """
    SELECT n.scope, n.key FROM unnest(%s::text[], %s::text[]) n(scope, key) WHERE NOT CASE n.scope
        WHEN 'tag' THEN EXISTS (SELECT 1 FROM runs_runtag t WHERE t.tag = n.key)
        WHEN 'agent' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE split_part(v.graph_id, '@', 1) = n.key)
        WHEN 'version' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE v.graph_id = n.key)
        WHEN 'tool' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE v.parts -> 'tools' ? n.key)
            OR EXISTS (SELECT 1 FROM runs_agentcode c WHERE c.parts -> 'tools' ? n.key)
        ELSE EXISTS (SELECT 1 FROM runs_limit l WHERE l.key = 'provider:' || n.key)
            OR EXISTS (SELECT 1 FROM runs_price p WHERE split_part(p.model, ':', 1) = n.key) END"""


@dataclass(frozen=True, slots=True)
class Unknown:
    """`like`: names of that kind that there are, the most alike first."""

    scope: str
    key: str
    like: tuple[str, ...]

    @property
    def meant(self) -> str:
        """What whoever gave it is asked, where one is like it."""
        return f"Did you mean {' or '.join(self.like)}?" if self.like else ""


def unknown(rows: Iterable[Halt]) -> dict[int, list[Unknown]]:
    """By each row's number the names that it gives and that nothing here has now, or ever had; none for the others."""
    given = {row.pk: _given(row) for row in rows}
    offered = names()
    asked = sorted({name for some in given.values() for name in some if name[1] not in offered.get(name[0], ())})
    if not asked:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_UNKNOWN, [[scope for scope, _ in asked], [key for _, key in asked]])
        missing = set(cursor.fetchall())
    found = {
        pk: [Unknown(scope, key, _like(key, offered.get(scope, ()))) for scope, key in some if (scope, key) in missing]
        for pk, some in given.items()
    }
    return {pk: some for pk, some in found.items() if some}


def names() -> dict[str, list[str]]:
    """What this process knows that can be halted, by scope, in the order of the alphabet; of tags nothing."""
    agents = registry.agents()
    models = {model for agent in agents for assistant in agent.assistants for model in models_of(assistant)}
    models |= {*settings.DURABLEAGENTS.models}
    known = {
        "agent": {agent.name for agent in agents},
        "version": {agent.graph_id for agent in agents},
        "tool": {tool.name for agent in agents for tool in agent.all_tools()},
        "provider": {model.partition(":")[0] for model in models},
    }
    return {scope: sorted(some) for scope, some in known.items()}


def _given(row: Halt) -> list[tuple[str, str]]:
    scope = [] if row.scope == Halt.Scope.ALL else [(str(row.scope), row.key)]
    given = (("agent", row.agents), ("tag", row.tags))
    lets = [(kind, name) for kind, names in given for name in names or () if isinstance(name, str)]
    return list(dict.fromkeys([*scope, *lets]))


def _like(key: str, names: Iterable[str]) -> tuple[str, ...]:
    known = {name.casefold(): name for name in names}
    return tuple(known[each] for each in get_close_matches(key.casefold(), list(known), 3))
