"""Calls without a known outcome in runs that have not ended and that the viewer may see."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.db import connection
from pydantic import Field

from ledger.spans import span_id
from ledger.web.fields import Attempt, ReplayClass, RunId, Slot, ToolName
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from runs import seen

Status = Literal["pending", "accepted", "unknown"]
STATUSES: tuple[Status, ...] = ("pending", "accepted", "unknown")
_COLUMNS = ("id", "run", "agent", "slot", "attempt", "tool", "replay_class", "sent_at", "wait", "status")
# Only these runs can have such a call: driven or ready ones, those paused midway, and those that wait for its outcome.
_OPEN = """
    WITH candidate AS MATERIALIZED (
        SELECT run_id AS id FROM runs_wait WHERE resolved_at IS NULL
            AND (kind IN ('reconcile', 'operator', 'webhook') OR (kind = 'timer' AND detail ? 'retry'))
        UNION SELECT id FROM runs_run WHERE owner IS NOT NULL
        UNION SELECT id FROM runs_run WHERE ready_at IS NOT NULL
            AND (state <> 'pending' OR came_from IS NOT NULL OR parent IS NOT NULL)
        UNION SELECT id FROM runs_run WHERE state = 'paused'),
    effect AS (
        SELECT p.id, r.id AS run, r.graph_id, p.slot, p.attempt, p.tool, p.replay_class, p.at, w.id AS wait,
            CASE WHEN w.kind = 'reconcile' OR l.fact = 'unknown' THEN 'unknown'
                WHEN w.kind = 'webhook' THEN 'accepted' ELSE 'pending' END AS status
        FROM candidate JOIN runs_run r USING (id)
        CROSS JOIN LATERAL (
            SELECT DISTINCT ON (slot) slot, attempt, fact FROM ledger_ledgerentry WHERE run_id = r.id
            ORDER BY slot, attempt DESC, id DESC) l
        JOIN ledger_ledgerentry p
            ON p.run_id = r.id AND p.slot = l.slot AND p.attempt = l.attempt AND p.fact = 'pending'
        LEFT JOIN LATERAL (
            SELECT id, kind FROM runs_wait WHERE run_id = r.id AND slot = l.slot AND attempt = l.attempt
            AND resolved_at IS NULL AND kind IN ('reconcile', 'webhook') ORDER BY kind LIMIT 1) w ON true
        WHERE r.ended_at IS NULL AND {sees} AND (l.fact IN ('pending', 'unknown') OR w.kind = 'reconcile'))
    SELECT * FROM effect WHERE (%s IN ('', tool)) AND (%s IN ('', split_part(graph_id, '@', 1), graph_id))
        AND (%s IN ('', status)) AND (%s OR (at, id) > (%s::timestamptz, %s)) ORDER BY at, id LIMIT %s"""


class OpenEffectRow(Shape):
    """A call that was sent, or may have been, and whose outcome is unknown."""

    id: int = Field(description="Number of the intent in the ledger.")
    run: RunId
    agent: str = Field(description="Agent and version of the run.")
    slot: Slot
    attempt: Attempt
    tool: ToolName
    replay_class: ReplayClass
    status: Status = Field(
        description="pending: being sent; accepted: a callback is due; unknown: a person settles it."
    )
    sent_at: datetime = Field(description="Time of the intent, before the call was sent.")
    wait: UUID | None = Field(description="Open wait for its outcome; if that is unknown, settle it with `reconcile`.")
    span_id: str = Field(description="Span of the call in the run's trace, 16 hex digits, if the run is traced.")


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of the list. Empty ones match everything. `agent` is a name, or name@version."""

    tool: str = ""
    agent: str = ""
    status: str = ""


def open_effects(filters: Filters, *, limit: int, beyond: tuple[datetime, int] | None = None) -> list[OpenEffectRow]:
    """Return the calls without a known outcome after a position, oldest first."""
    sees, values = seen.is_seen("r", viewer())
    place = [beyond is None, *(beyond or (None, 0))]
    with connection.cursor() as cursor:
        cursor.execute(
            _OPEN.replace("{sees}", sees),
            [*values, filters.tool, filters.agent, filters.status, *place, limit],
        )
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in cursor.fetchall()]
    return [
        OpenEffectRow.of(None, **row, span_id=span_id(str(row["run"]), row["slot"], row["attempt"], "call"))
        for row in rows
    ]
