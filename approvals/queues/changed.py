"""SQL that tells whether a person, after a question was opened, changed who may decide it.

Such a person may not decide it. Changes that they confirmed as the second person count too.
"""

from __future__ import annotations

# Acts that change who decides at a queue.
_OF_QUEUES = "'queue', 'queue_change', 'queue_close', 'queue_open', 'queue_limit', 'queue_limit_lift', 'queue_proof'"
_OF_POLICIES = "'policy', 'policy_change', 'policy_retire', 'policy_restore'"
# Fields of a policy that affect decisions: all but its text.
_DECIDING = "'agent', 'tool', 'condition', 'effect', 'queue', 'within_seconds', 'proof'"
# Those whose roles count as a person's own: their account, and principals by deputyship or delegation.
_OWN = """(SELECT me.id
            UNION ALL SELECT o.principal FROM approvals_deputy o WHERE o.deputy = me.id AND o.revoked_at IS NULL
            UNION ALL SELECT o.principal FROM approvals_delegation o
            WHERE o.deputy = me.id AND o.approval_id = {approval} AND o.ended_at IS NULL)"""
_OWN_TEXT = f"(SELECT own.id::text FROM {_OWN} AS own(id))"
# SQL value: the time of the first such act by the account me.id. {queue} is the queue's name, {case} the id of the
# first stage's question, {approval} that of the current question. Deputies are matched by account, since names change.
# A policy counts if it may match this call, before or after. An applied proposal is recorded as its author's; the
# second person has an act of their own that names the change. The database records roles that people give themselves;
# roles from a sign-in provider don't count. Forged rows may contain anything.
CHANGED = f"""(SELECT min(did.at)
    FROM (SELECT c.opened_at, c.tool, r.agent, (SELECT q.role FROM approvals_queue q WHERE q.name = {{queue}}) AS role
          FROM approvals_approval c JOIN runs_run r ON r.id = c.run_id WHERE c.id = {{case}}) question
    CROSS JOIN LATERAL (
        SELECT r.action, r.queue, r.before, r.after, r.at, NULL AS whose FROM ledger_actrecord r
        WHERE r.person = me.id AND r.at >= question.opened_at
            AND r.action = ANY (ARRAY[{_OF_QUEUES}, {_OF_POLICIES}, 'deputy'])
        UNION ALL
        SELECT c.action, c.queue, c.before, c.after, c.at, c.whose
        FROM ledger_agreed_changes(me.id, question.opened_at) c
        UNION ALL
        SELECT 'roles', '', NULL, jsonb_build_object('roles', jsonb_build_array(a.after -> 'role')), a.at,
            a.subject_person::text
        FROM ledger_accountrecord a
        WHERE a.subject_person IN {_OWN} AND a.person = me.id AND a.at >= question.opened_at
            AND a.action = 'role_given' AND split_part(a.by, ':', 1) IN ('user', 'key')
        UNION ALL
        SELECT 'roles', '', NULL, jsonb_build_object('roles', jsonb_build_array(a.after -> 'name')), a.at, me.id::text
        FROM ledger_accountrecord a
        WHERE a.action = 'role_renamed' AND a.person = me.id AND a.at >= question.opened_at
    ) did
    WHERE did.action = ANY (ARRAY[{_OF_QUEUES}]) AND did.queue = {{queue}}
            AND (did.action <> 'queue_change' OR EXISTS (
                SELECT FROM unnest(ARRAY['role', 'currency', 'needs_amount']) AS name
                WHERE did.before -> name IS DISTINCT FROM did.after -> name))
        OR did.action = 'deputy' AND did.after ->> 'deputy' = me.id::text AND did.queue IN ('', {{queue}})
        OR did.action = 'roles' AND did.whose IN {_OWN_TEXT} AND did.after -> 'roles' ? question.role
            AND NOT coalesce(did.before -> 'roles' ? question.role, false)
        OR did.action = 'policy_restore'
        OR did.action = ANY (ARRAY[{_OF_POLICIES}])
            AND (did.action <> 'policy_change' OR EXISTS (
                SELECT FROM unnest(ARRAY[{_DECIDING}]) AS name
                WHERE did.before -> name IS DISTINCT FROM did.after -> name))
            AND EXISTS (
                SELECT FROM unnest(ARRAY[did.before, did.after]) AS p(said)
                WHERE p.said ->> 'agent' IN ('', question.agent) AND p.said ->> 'tool' IN ('', question.tool)))"""
