"""Automatic halt of ramps: when too many runs on the newer version fail, are rejected or stop for an operator.
Only the most recently begun or ended runs count, so the query stays small."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection, transaction
from psycopg import AsyncConnection

from ledger.actors import Actor
from ledger.protected import is_authentic
from runs.engine.agents import registry
from runs.models import Ramp
from runs.protected import gate_proofs
from runs.services.releases import acts
from runs.services.releases.acts import StartsUnderWay

FRESH_SECONDS = 2.0
_STANDING = f"""
    SELECT ARRAY(SELECT agent || '@' || version FROM runs_versiongate WHERE is_closed),
           (SELECT coalesce(jsonb_object_agg(agent, from_version), '{{}}') FROM runs_ramp WHERE ended_at IS NULL),
           {gate_proofs()}"""


class Known:
    """Cached gates and ramps. Child runs stay on a ramp's older side: it assigns and judges outside starts only."""

    def __init__(self) -> None:
        self._read_at = float("-inf")

    async def refresh_with(self, link: AsyncConnection[Any]) -> None:
        if time.monotonic() - self._read_at >= FRESH_SECONDS:
            row = await (await link.execute(_STANDING)).fetchone()
            assert row is not None
            if is_authentic(row[2]):  # otherwise the last authentic read counts
                registry.steer(closed=row[0], kept=row[1])
            self._read_at = time.monotonic()


log = logging.getLogger("runs.services.releases")
KEEPER = Actor(kind="system", name="releases")
COUNTED = 1000
# A run counts once, with its continuations. An approval that its deadline denied was not rejected; a run that undoes
# its effects before it fails has failed. Moving a begun run off the newer version counts as stopped there, and its
# later course still counts. A run has begun once a worker claimed it, even if it failed before its first node. Rows are
# compared as text, not parsed: an unreadable one must not stop the judging.
_TAKEN_OFF = """o.action = 'migrate' AND o.before ->> 'version' = asked.graph
                 AND (o.after ->> 'how' <> 'unbegun' OR o.before ->> 'epoch' <> '0')"""
# Tolerance for clock changes: nothing else happens before a ramp's first start.
_SLACK = "interval '1 day'"
_FIGURES = f"""
    SELECT asked.ramp, told.*
    FROM unnest(%(ramps)s::bigint[], %(graphs)s::text[], %(after)s::bigint[], %(since)s::timestamptz[])
         AS asked(ramp, graph, after, since)
    CROSS JOIN LATERAL (
    WITH newest AS (
        SELECT DISTINCT few.run_id FROM (
            (SELECT s.run_id, coalesce(l.ended_at, l.started_at) AS last FROM runs_run l
             JOIN runs_rampstart s ON s.run_id = coalesce(l.first, l.id) AND s.ramp_id = asked.ramp AND s.is_new
             JOIN runs_run b ON b.id = s.run_id
             WHERE l.graph_id = asked.graph AND l.started_at IS NOT NULL
               AND (s.id > asked.after OR b.started_at > asked.since)
             ORDER BY coalesce(l.ended_at, l.started_at) DESC LIMIT %(most)s)
            UNION ALL
            (SELECT s.run_id, coalesce(l.ended_at, l.started_at) AS last FROM runs_run l
             JOIN runs_rampstart s ON s.run_id = coalesce(l.first, l.id) AND s.ramp_id = asked.ramp AND s.is_new
             JOIN runs_run b ON b.id = s.run_id
             WHERE l.agent = split_part(asked.graph, '@', 1) AND l.generation > 0 AND l.started_at IS NOT NULL
               AND l.graph_id <> asked.graph AND (s.id > asked.after OR b.started_at > asked.since)
               AND coalesce(l.ended_at, l.started_at) > (
                   SELECT f.at - {_SLACK} FROM runs_rampstart f WHERE f.ramp_id = asked.ramp AND f.is_new
                   ORDER BY f.id LIMIT 1)
               AND EXISTS (SELECT 1 FROM ledger_overriderecord o WHERE o.run_id = l.id AND {_TAKEN_OFF})
             ORDER BY last DESC LIMIT %(most)s)
            ORDER BY last DESC LIMIT %(most)s) few
    ), work AS (
        SELECT r.id AS began, r.id, r.state, r.node FROM newest n JOIN runs_run r ON r.id = n.run_id
        UNION ALL
        SELECT r.first, r.id, r.state, r.node FROM newest n JOIN runs_run r ON r.first = n.run_id
    ), judged AS (
        SELECT w.began, bool_or(w.state = 'failed' OR w.node = '_undo' AND EXISTS (
                   SELECT 1 FROM ledger_event u WHERE u.run_id = w.id AND u.kind = 'UndoBegun'
                   AND position(convert_to('"reason":"failed"', 'UTF8') IN u.clear) > 0)) AS failed,
               bool_or(EXISTS (SELECT 1 FROM runs_wait x WHERE x.run_id = w.id AND x.kind = 'approval'
                               AND x.resolution = 'rejected')) AS rejected,
               bool_or(EXISTS (SELECT 1 FROM runs_wait x WHERE x.run_id = w.id AND x.kind = 'operator')
                       OR EXISTS (SELECT 1 FROM ledger_overriderecord o WHERE o.run_id = w.id AND {_TAKEN_OFF})
               ) AS stopped
        FROM work w GROUP BY w.began
    )
    SELECT count(*), count(*) FILTER (WHERE failed), count(*) FILTER (WHERE rejected), count(*) FILTER (WHERE stopped)
    FROM judged) told"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the runs that a ramp began on the newer version."""

    begun: int = 0
    failed: int = 0
    rejected: int = 0
    stopped: int = 0

    def above(self, ramp: Ramp) -> list[str]:
        """Return the exceeded bounds; none before enough runs were begun."""
        if self.begun < ramp.least:
            return []
        return [
            name
            for name in acts.BOUNDS
            if (bound := ramp.bounds.get(name)) is not None and getattr(self, name) * 100 > bound * self.begun
        ]


def figures(ramp: Ramp) -> Figures:
    return figures_of([ramp])[ramp.pk]


def figures_of(ramps: Sequence[Ramp]) -> dict[int, Figures]:
    """Return the figures of several ramps, in one statement."""
    asked: dict[str, Any] = {
        "ramps": [one.pk for one in ramps],
        "graphs": [one.to_graph for one in ramps],
        "after": [one.counted_after for one in ramps],
        "since": [one.counted_from for one in ramps],
        "most": COUNTED,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FIGURES, asked)
        return {ramp: Figures(*told) for ramp, *told in cursor.fetchall()}


def sweep() -> int:
    """Halt the ramps above a bound. Returns how many."""
    return sum(_halt(ramp_id) for ramp_id in _above())


def _above() -> list[int]:
    """Return the ramps to halt; one process at a time checks."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('release watch', 38))")
        if not cursor.fetchone()[0]:
            return []
        return [ramp.pk for ramp in Ramp.objects.filter(state=Ramp.State.ON) if figures(ramp).above(ramp)]


def _halt(ramp_id: int) -> bool:
    """Halt a ramp if it is still above a bound. If its starts don't end in time, the next check tries again."""
    try:
        with transaction.atomic():
            acts.alone(acts.find(ramp_id).agent)
            ramp = Ramp.objects.select_for_update().get(pk=ramp_id)
            told = figures(ramp)
            above = told.above(ramp)
            if not ramp.is_on or not above:
                return False
            before = acts.shown(ramp)
            ramp.state, ramp.revision = Ramp.State.HALTED, ramp.revision + 1
            ramp.halted_at, ramp.halted_by = acts.database_now(), asdict(told) | {"above": above}
            acts.store(ramp)
            why = f"of {told.begun} runs begun: {', '.join(f'{getattr(told, name)} {name}' for name in above)}"
            acts.done("ramp_halt", ramp, by=KEEPER, before=before, why=why, figures=ramp.halted_by)
    except StartsUnderWay as busy:
        log.warning("ramp %s is above its bounds, and can't be halted yet: %s", ramp_id, busy.detail)
        return False
    log.warning("ramp %s (%s) halted: %s", ramp_id, ramp, why)
    return True
