"""Requests for the same call with the same arguments, shown to deciders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from approvals.models import Approval
from approvals.sameness import call_of
from ledger.web.roles import stand_ins
from ledger.web.seeing.viewers import viewer
from runs import seen
from runs.engine.canonical import canonical

DAYS = 30
MAX_SHOWN = 20
# How many of a queue's newest decisions are searched.
MAX_DECIDED = 1000
# Requests for the same call have equal `same` columns (sameness.py), which are indexed for open requests. The column
# may cover only some arguments, so `call` compares all of them; rows older than that column are found by their plans,
# because equal arguments have the same canonical JSON. A rejected or amended revision is shown with its successor and
# is not a repeat.
_REPEATS = """
    WITH wanted AS (
        SELECT a.id, a.run_id, a.same, a.queue, w.call, w.arguments
        FROM unnest(%s::uuid[], %s::text[], %s::bytea[]) AS w (id, call, arguments)
        JOIN approvals_approval a ON a.id = w.id
        WHERE a.same IS NOT NULL),
    found AS (
        SELECT w.id AS of_id, w.run_id AS of_run, w.call AS of_call, w.arguments, o.id, o.state,
            o.opened_at AS at, o.run_id, o.queue, o.call, o.plan
        FROM wanted w JOIN approvals_approval o ON o.same = w.same AND o.state = 'open'
        UNION ALL
        SELECT w.id, w.run_id, w.call, w.arguments, o.id, o.state, o.decided_at, o.run_id, o.queue, o.call, o.plan
        FROM (SELECT DISTINCT queue FROM wanted) q CROSS JOIN LATERAL (
            SELECT d.* FROM approvals_approval d WHERE d.queue = q.queue AND NOT (d.state = 'open')
            AND d.decided_at > statement_timestamp() - make_interval(days => %s)
            ORDER BY d.decided_at DESC, d.id DESC LIMIT %s) o
        JOIN wanted w ON w.same = o.same AND w.queue = o.queue
        WHERE o.state <> 'withdrawn')
    SELECT f.of_id, f.id, f.state, f.at FROM (
        SELECT f.*, row_number() OVER (PARTITION BY f.of_id ORDER BY f.state = 'open' DESC, f.at DESC) AS nth
        FROM found f
        WHERE f.id <> f.of_id AND (f.run_id <> f.of_run OR f.state IN ('open', 'approved'))
          AND (f.call = f.of_call OR f.call IS NULL AND position(f.arguments IN f.plan) > 0)
          AND ({seen} OR f.queue = ANY(%s))) f
    WHERE f.nth <= %s ORDER BY f.of_id, f.nth"""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Another request for the same call with the same arguments, and when it was requested or decided."""

    id: UUID
    state: str
    at: datetime

    @property
    def is_open(self) -> bool:
        return self.state == "open"


def repeats_of(approvals: Sequence[Approval], held: frozenset[str]) -> dict[UUID, list[Repeat]]:
    """Return each case's visible repeats, open or recently decided, in one statement at most."""
    wanted = {one.id: _arguments(one) for one in approvals if one.same}
    wanted = {id: arguments for id, arguments in wanted.items() if arguments}
    found: dict[UUID, list[Repeat]] = {}
    if not wanted:
        return found
    is_seen, values = seen.is_of_seen("f.run_id", viewer())
    places = [one.queue for one in stand_ins(held)]
    with connection.cursor() as cursor:
        calls = [call_of(one.plan) for one in approvals if one.id in wanted]
        given: list[Any] = [[*wanted], calls, [*wanted.values()], DAYS, MAX_DECIDED, *values, places, MAX_SHOWN]
        cursor.execute(_REPEATS.replace("{seen}", is_seen), given)
        for of, id, state, at in cursor.fetchall():
            found.setdefault(of, []).append(Repeat(id, state, at))
    return found


def _arguments(approval: Approval) -> bytes:
    """Return the arguments from a plan's bytes; empty if unreadable or none."""
    plan = approval.planned()
    arguments = plan.get("arguments") if plan else None
    return b'"arguments":' + canonical(arguments) if arguments else b""
