"""Which checkpoints stand for all that an upgrade has to go on with: of each agent, version and node some, the newest
first. Read by index, and as much as is asked for, however many runs there are."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from runs.engine.agents import registry
from runs.models import ENDED, AgentVersion, State

# Of one version the newest runs in each state, of each its newest visits. Of runs under way all count, of those that
# have ended the ones that were started since. A what-if's answers prove nothing.
_NEWEST = """
    SELECT c.run_id, c.seq, c.node, c.visit, r.created_at
    FROM unnest(%s::text[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT id, created_at FROM runs_run
        WHERE state = s.state AND agent = %s AND version = %s AND fork_how <> 'what_if'
              AND (NOT (state = ANY(%s)) OR created_at >= %s)
        ORDER BY created_at DESC, id DESC LIMIT %s) AS r
    CROSS JOIN LATERAL (
        SELECT run_id, seq, node, visit FROM runs_checkpoint WHERE run_id = r.id ORDER BY seq DESC LIMIT %s) AS c
    ORDER BY r.created_at DESC, c.run_id, c.seq DESC"""
MOST_RUNS, MOST_VISITS = 40, 12


@dataclass(frozen=True, slots=True)
class Picked:
    """A checkpoint by its place."""

    run_id: UUID
    seq: int
    graph_id: str
    node: str
    visit: int


def picked(limit: int, since: datetime, agent: str = "") -> Iterator[Picked]:
    """Checkpoints in the order in which they stand for the others, each stratum in its turn. The caller stops when it
    has `limit` that can be used; no more than that are read of each stratum."""
    strata: dict[tuple[str, str], deque[Picked]] = defaultdict(deque)
    for graph_id in _versions(agent):
        for each in _of_version(graph_id, limit, since):
            held = strata[graph_id, each.node]
            if len(held) < limit:
                held.append(each)
    while strata:
        for name in sorted(strata):
            yield strata[name].popleft()
            if not strata[name]:
                del strata[name]


def _versions(agent: str) -> list[str]:
    known = {*AgentVersion.objects.values_list("graph_id", flat=True), *(each.graph_id for each in registry.agents())}
    return [each for each in sorted(known) if agent in ("", each, each.partition("@")[0])]


def _of_version(graph_id: str, limit: int, since: datetime) -> list[Picked]:
    name, _, version = graph_id.partition("@")
    ended = [str(state) for state in ENDED]
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [list(State.values), name, version, ended, since, min(limit, MOST_RUNS), MOST_VISITS])
        rows = cursor.fetchall()
    return [Picked(run_id, seq, graph_id, node, visit) for run_id, seq, node, visit, _ in rows]
