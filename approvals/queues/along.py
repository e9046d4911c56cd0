"""What is read along with whoever asks: the queues that there are, and for whom the reader stands in. One JSON document
in the statement that reads the session or the key, so no page costs a statement more by it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from ledger.clock import MOMENT
from ledger.web.roles import StandsIn
from runs.journal import wait_hooks

_QUEUES = """(SELECT coalesce(json_agg(json_build_array(q.name, q.role, q.state = 'open', q.proof)
                              ORDER BY q.id), '[]')
              FROM approvals_queue q WHERE q.state <> 'removed')"""
_ROLES = r"(SELECT coalesce(json_agg(g.name), '[]') FROM auth_group g WHERE g.name LIKE 'approver\_%%')"
# A deputy of a deputy is none: the principal holds the queue's role themselves, and may still sign in.
_STANDS = """(
    SELECT coalesce(json_agg(json_build_array(q.name, to_char(d.ends_at AT TIME ZONE 'UTC',
                             'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), p.username)), '[]')
    FROM approvals_deputy d
    JOIN approvals_queue q ON q.state <> 'removed' AND (d.queue_id IS NULL OR d.queue_id = q.id)
    JOIN auth_user p ON p.id = d.principal AND p.is_active
    WHERE d.deputy = {user} AND d.revoked_at IS NULL AND d.ends_at > statement_timestamp()
      AND d.starts_at <= statement_timestamp()
      AND EXISTS (SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
                  WHERE m.user_id = p.id AND g.name = q.role))"""
# As a value in SQL: the newest timing of each queue that has any, and the newest version of the calendar that it names.
_TIMINGS = """(SELECT coalesce(json_agg(json_build_object('queue', q.name, 'timing', to_json(t), 'calendar', (
        SELECT to_json(c) FROM approvals_calendar c WHERE c.name = t.calendar ORDER BY c.version DESC LIMIT 1))), '[]')
    FROM approvals_queue q CROSS JOIN LATERAL (
        SELECT * FROM approvals_timing t WHERE t.queue_id = q.id ORDER BY t.version DESC LIMIT 1) t
    WHERE q.state <> 'removed')"""
# By the worker's side alone, which puts questions: no page asks for more by it.
_TIMED = f"SELECT json_build_object({{facts}}, 'timing', {_TIMINGS})::text"
_FACTS = f"'at', {MOMENT}, 'queues', {_QUEUES}, 'roles', {_ROLES}"

# The queues alone; and with them, of SQL about an account named by `user`, for whom it stands in.
FACTS = _TIMED.format(facts=_FACTS).replace("%%", "%")
ALONG = f"json_build_object({_FACTS}, 'stands', {_STANDS})::text"


def learnt(told: Any) -> list[StandsIn]:
    """Know what was read, and give for whom the reader stands in."""
    told = json.loads(told) if isinstance(told, str) else told
    wait_hooks.queues.learn(told)
    return [StandsIn(queue, datetime.fromisoformat(until), whom) for queue, until, whom in told["stands"]]
