"""What is set aside in runs' budgets: for calls whose intent is on record, and whose outcome isn't.

No column holds it (docs/decisions/0031): it follows from the events since the newest checkpoint, as a worker counts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import connection

from ledger import events as e
from ledger.models import Head
from runs.engine.budget import NOTHING_USED, Call, Usage
from runs.engine.steps.spending import begun_by
from runs.models import ENDED, Run

# A request is over with its debit, which has its number; any other call with what came of it, or with the word of
# somebody who knows.
_OPEN = """
    SELECT e.run_id, e.slot, e.attempt, e.clear FROM unnest(%s::uuid[]) AS r(id)
    CROSS JOIN LATERAL (SELECT coalesce(max(seq), 0) AS seq FROM runs_checkpoint WHERE run_id = r.id) AS c
    JOIN ledger_event e ON e.run_id = r.id AND e.seq > c.seq
    WHERE e.kind IN ('ToolInvoked', 'ModelRouted', 'ChildStarted') AND NOT EXISTS (
        SELECT 1 FROM ledger_event f WHERE f.run_id = e.run_id AND f.slot = e.slot AND f.attempt = e.attempt
        AND CASE e.kind WHEN 'ModelRouted' THEN f.fact = replace(e.fact, 'routed', 'debit')
            ELSE f.fact IN ('result', 'accepted') OR (f.kind = 'ToolReconciled' AND f.clear NOT LIKE %s) END)"""
_LEFT_OPEN = b'%"verdict":"fail"%'


def reserved(runs: Sequence[Run], heads: Mapping[UUID, Head]) -> dict[UUID, Usage]:
    return {run_id: sum(begun.values(), NOTHING_USED) for run_id, begun in under_way(runs, heads).items()}


def under_way(runs: Sequence[Run], heads: Mapping[UUID, Head]) -> dict[UUID, dict[Call, Usage]]:
    """The same call by call."""
    begun = [run.pk for run in runs if run.state not in ENDED and run.pk in heads and heads[run.pk].epoch]
    found: dict[UUID, dict[Call, Usage]] = {}
    if not begun:
        return found
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [begun, _LEFT_OPEN])
        for run_id, slot, attempt, clear in cursor.fetchall():
            found.setdefault(run_id, {})[slot, attempt] = _usage(bytes(clear))
    return found


def _usage(clear: bytes) -> Usage:
    """What an intent sets aside. One that nobody can read stops its run, not this list."""
    try:
        return begun_by(e.decode(clear)) or NOTHING_USED
    except (ValueError, TypeError, KeyError):
        return NOTHING_USED
