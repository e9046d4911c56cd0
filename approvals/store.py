"""What opening and withdrawing a gate write, in the transaction of whoever opens or withdraws the wait."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from runs.engine.gate.same import sameness_of
from runs.engine.journal import GateOpening, WaitSpec

# A gate that follows a rejected one for the same tool and queue of the same run is its next revision; so is one that
# follows a stage whose case was rejected later on.
_OPEN = """
INSERT INTO approvals_approval (id, run_id, wait_id, queue, state, revision, previous_id, tool, title, effect, rule,
                                plan, plan_hash, evidence, why, requested_by, requester, opened_at, deadline, case_id,
                                timing, look_at, same, documents)
SELECT %s, %s::uuid, %s, %s, 'open', coalesce(p.revision, 0) + 1, p.id, %s, %s, %s, %s, %s, %s, %s, %s, %s,
       (SELECT r.creator FROM runs_run r WHERE r.id = %s::uuid), clock_timestamp(), %s, %s,
       %s::jsonb, %s::timestamptz, %s, %s::jsonb
FROM (SELECT approvals_may_ask(%s) AS is_open) AS asked LEFT JOIN LATERAL (
    SELECT a.id, a.revision FROM approvals_approval a
    WHERE a.run_id = %s::uuid AND a.tool = %s AND a.queue = %s
      AND (a.state = 'rejected' OR a.state = 'approved' AND EXISTS (
          SELECT 1 FROM approvals_approval z
          WHERE z.run_id = a.run_id AND z.case_id = a.case_id AND z.state = 'rejected'))
      AND NOT EXISTS (SELECT 1 FROM approvals_approval n WHERE n.previous_id = a.id)
    ORDER BY a.opened_at DESC LIMIT 1
) AS p ON true
WHERE asked.is_open
"""
# What is shown with it, once by its digest whoever shows it, in the order of the digests: two that store the same ones
# wait for one another in one order. The table refuses bytes under another digest than theirs.
_STORE = """
WITH stored AS (
    INSERT INTO approvals_document (digest, size, content, stored_at)
    SELECT d.digest, octet_length(d.content), d.content, clock_timestamp()
    FROM unnest(%s::text[], %s::bytea[]) AS d (digest, content) ORDER BY d.digest ON CONFLICT DO NOTHING)
"""
# Whom a question is put to, held against the queues as they are now: see approvals/sql/decisions.sql.
ON_ASK = "SELECT approvals_may_ask(%s)"
REOPEN = """
UPDATE approvals_approval a SET state = 'open', decided_at = NULL
FROM runs_wait w WHERE a.run_id = %s AND a.state = 'withdrawn' AND w.id = a.wait_id AND w.resolved_at IS NULL
"""
WITHDRAW = """
UPDATE approvals_approval a SET state = 'withdrawn', decided_at = clock_timestamp()
FROM runs_wait w WHERE a.run_id = %s AND a.state = 'open' AND w.id = a.wait_id AND w.resolution = 'withdrawn'
"""


def opener(gate: GateOpening, wait: WaitSpec) -> tuple[str, list[Any]]:
    """The statement that puts a question to its queue, and stores what is shown with it."""
    shown = [list(gate.contents), list(gate.contents.values())] if gate.contents else []
    return (_STORE if gate.contents else "") + _OPEN, [
        *shown,
        gate.approval_id,
        wait.run_id,
        wait.id,
        gate.queue,
        gate.tool,
        gate.title,
        gate.effect,
        gate.rule,
        gate.plan,
        gate.plan_hash,
        Jsonb(gate.evidence),
        gate.why,
        gate.requested_by,
        wait.run_id,
        wait.deadline,
        gate.case,
        None if gate.timing is None else Jsonb(gate.timing),
        gate.look_at,
        sameness_of(gate.plan),
        Jsonb(gate.documents),
        gate.queue,
        wait.run_id,
        gate.tool,
        gate.queue,
    ]
