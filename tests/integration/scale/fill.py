"""A long history, inserted by SQL in seconds: runs in every state with their rows. Its hash chains are not real."""

from __future__ import annotations

from django.db import connection

from ledger.codec import pack
from tests.tampering import without_triggers

RUNS = 100_000
VALUES = {"sealed": pack({"item": "chairs", "vendor_name": "Nordlicht Antriebe GmbH"}, None)}

# One row per run: number, id, state and time. Ids sort by time, as the real ones do. Of a hundred runs 70 completed,
# ten wait for an approval, five failed, five were cancelled, three wait for a webhook, three for time, two for an
# operator, one for an answer, and one is ready under a version that no worker has.
_NUMBERED = """
    CREATE TEMP TABLE made ON COMMIT DROP AS
    SELECT n, ('018f' || lpad(to_hex(n), 8, '0') || '70008000' || left(md5(n::text), 12))::uuid AS id, mod(n, 100) AS
    kind,
           now() - interval '400 days' + n * interval '5 minutes' AS at
    FROM generate_series(1, %(runs)s) AS n"""
_RUNS = """
    INSERT INTO runs_run (id, agent, version, graph_id, state, generation, node, visit, is_woken, is_solo, priority,
    tags, trace_id, created_by, creator,
                          created_at, updated_at, started_at, ended_at, ready_at, error_code, about)
    SELECT id, agent, '1.0.0', agent || '@1.0.0', state, 0, 'order', 1, false, false, 0, jsonb_build_object('invoice',
    'INV-' || n), 'trace', 'key:shop', 1000000 + mod(n, 500),
           at, at, at, CASE WHEN kind < 80 THEN at + interval '1 minute' END, CASE WHEN kind = 99 THEN at END, '',
           'Nordlicht Antriebe GmbH'
    FROM (SELECT *, CASE WHEN kind = 99 THEN 'ghost' WHEN mod(n, 1000) = 7 THEN 'rare' ELSE 'buyer' END AS agent,
                 CASE WHEN kind < 70 THEN 'completed' WHEN kind < 75 THEN 'failed' WHEN kind < 80 THEN 'cancelled' WHEN
                 kind < 93 THEN 'waiting_human'
                      WHEN kind < 96 THEN 'waiting_tool' WHEN kind < 99 THEN 'waiting_event' ELSE 'pending' END AS state
                      FROM made) AS m"""
_HEADS = (
    "INSERT INTO ledger_head (run_id, epoch, seq, claimed_seq, deaths, chain, "
    "is_pause_requested, is_cancel_requested, is_on_hold, steps, tokens_in, tokens_out, "
    "usd_micro, tool_calls, model_calls) SELECT id, 1, 1, 1, 0, '\\x00', false, false, "
    "false, 3, 0, 0, 0, 0, 0 FROM made"
)
_EVENTS = (
    "INSERT INTO ledger_event (run_id, seq, epoch, at, kind, attempt, clear, sealed, "
    "prev_hash, hash) SELECT id, 1, 0, at, 'RunCreated', 0, '{}', %(sealed)s, '\\x00', '\\x00' FROM made"
)
_TERMS = """
    INSERT INTO runs_searchterm (run_id, term)
    SELECT id, unnest(ARRAY['inv-' || n, 'invoice:inv-' || n, 'shop', 'nordlicht', 'vendor' || mod(n, 5000), '…' ||
    reverse(replace(id::text, '-', ''))]) FROM made"""
_TAGS = """
    INSERT INTO runs_runtag (run_id, tag, created_at)
    SELECT id, unnest(ARRAY['invoice', 'invoice:INV-' || n]), at FROM made UNION ALL
    SELECT id, 'tenant:' || mod(n, 200), at FROM made"""
_ENTRIES = """
    INSERT INTO ledger_ledgerentry (run_id, seq, slot, attempt, fact, tool, replay_class, external_id, actor, at)
    SELECT id, 1, '0.1/1', 0, 'committed', 'buy', 'idempotent_with_key', 'PO-' || n, 'system:engine', at FROM made WHERE
    kind < 70"""
_WAITS = """
    INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, is_overdue)
    SELECT gen_random_uuid(), id, '0.1/1', 0, wanted, 0, at, now() + interval '1 day' + n * interval '1 minute', detail,
    false
    FROM (SELECT *, CASE WHEN kind < 90 THEN 'approval' WHEN kind < 92 THEN 'reconcile' WHEN kind < 93 THEN 'input'
                         WHEN kind < 96 THEN 'webhook' ELSE 'timer' END AS wanted,
                 CASE WHEN kind = 92 THEN jsonb_build_object('of', CASE WHEN mod(n, 2000) = 92 THEN 'legal' ELSE
                 'operator' END, 'title', 'How many?', 'schema', '{}'::jsonb)
                      ELSE '{"title": "x", "tool": "buy", "reason": "x", "queue": "q", "headline": "h"}' END AS detail
          FROM made WHERE kind BETWEEN 80 AND 98) AS m"""
_OPEN = """
    INSERT INTO approvals_approval (id, run_id, wait_id, queue, state, revision, tool, title, effect, rule, plan,
    plan_hash, evidence, why, requested_by,
                                    opened_at, deadline)
    SELECT gen_random_uuid(), run_id, id, CASE WHEN mod(n_of, 100) = 0 THEN 'legal' ELSE 'finance_po' END, 'open', 1,
    'buy', 'Buy it', '', 'r', '{"arguments": {}}', 'h',
           '[]', '', 'key:shop', opened_at, deadline
    FROM (SELECT *, row_number() OVER () AS n_of FROM runs_wait WHERE kind = 'approval' AND resolved_at IS NULL) AS w"""
_DECIDED_WAITS = """
    INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, is_overdue, resolution,
    resolved_by, resolved_at)
    SELECT gen_random_uuid(), id, '0.1/0', 0, 'approval', 0, at, at, '{}', false, 'approved', 'user:fiona', at FROM made
    WHERE kind < 20 OR kind = 81"""
_DECIDED = """
    INSERT INTO approvals_approval (id, run_id, wait_id, queue, state, revision, tool, title, effect, rule, plan,
    plan_hash, evidence, why, requested_by,
                                    opened_at, deadline, decided_at)
    SELECT gen_random_uuid(), run_id, id, 'finance_po', CASE WHEN of_kind = 81 THEN 'rejected' WHEN mod(n_of, 5000) = 0
    THEN 'expired' ELSE 'approved' END, 1, 'buy', 'Buy it', '', 'r', '{"arguments": {}}', 'h',
           '[]', '', 'key:shop', opened_at, deadline, resolved_at
    FROM (SELECT w.*, m.kind AS of_kind, row_number() OVER () AS n_of FROM runs_wait w JOIN made m ON m.id = w.run_id
    WHERE resolved_at IS NOT NULL) AS w"""
_REVISED = """
    UPDATE approvals_approval a SET revision = 2, previous_id = p.id FROM approvals_approval p
    WHERE a.state = 'open' AND p.state = 'rejected' AND p.run_id = a.run_id"""
_DECISIONS = """
    INSERT INTO approvals_decision (approval_id, verdict, plan_hash, justification, by, role, auth, address, seq,
    before, after, at)
    SELECT id, CASE state WHEN 'approved' THEN 'approve' ELSE 'reject' END, 'h', 'Because.', 'user:' || CASE WHEN
    revision = 1 AND state = 'rejected' THEN 'rare' ELSE 'fiona' END,
           'approver_finance', 'session', '', 1, '{}', '{}', decided_at FROM approvals_approval WHERE state IN
           ('approved', 'rejected')"""
_OVERRIDES = """
    INSERT INTO ledger_overriderecord (run_id, action, by, role, auth, address, justification, seq, chain, before,
    after, at)
    SELECT id, CASE WHEN kind = 77 THEN 'retry' ELSE 'cancel' END, 'user:olga', 'operator', 'session', '', 'Because.',
    1, '\\x00', '{}', '{}', at FROM made WHERE kind BETWEEN 75 AND 79"""
_ACTS = """
    INSERT INTO ledger_actrecord (run_id, action, subject, queue, by, role, auth, address, justification, seq, before,
    after, at)
    SELECT id, CASE WHEN kind = 71 THEN 'answer' ELSE 'start' END, '', '', 'key:shop', 'integrator', 'api_key', '', '',
    1, '{}', '{}', at FROM made"""
_INCIDENTS = """
    INSERT INTO runs_incident (run_id, seq, at, cause, proof, worker, host, pid, epoch, reached, in_doubt, replayed,
    is_counted, deaths, is_stopped, detected_at)
    SELECT id, 1, at, 'proof', 'gone', gen_random_uuid(), CASE WHEN mod(n, 10000) = 50 THEN 'rare' ELSE 'here' END, 1,
    1, 'claimed', '[]', 0, true, 1, false, at
    FROM made WHERE mod(n, 10) = 0"""
PARTS = (
    _NUMBERED,
    _RUNS,
    _HEADS,
    _EVENTS,
    _TERMS,
    _TAGS,
    _ENTRIES,
    _WAITS,
    _OPEN,
    _DECIDED_WAITS,
    _DECIDED,
    _REVISED,
    _DECISIONS,
    _OVERRIDES,
    _ACTS,
    _INCIDENTS,
)
TABLES = (
    "runs_run runs_runtag ledger_head ledger_event runs_searchterm ledger_ledgerentry runs_wait approvals_approval "
    "approvals_decision ledger_overriderecord ledger_actrecord runs_incident"
).split()


def fill(runs: int = RUNS) -> None:
    """Insert the history past the triggers, in the current transaction, and analyze the tables."""
    with without_triggers() as cursor:
        for statement in PARTS:
            cursor.execute(statement, {"runs": runs, **VALUES})
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"ANALYZE {table}")
