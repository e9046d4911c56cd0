"""Whether somebody changed who decides a question after it was asked, themselves or as the second person of such a
change: nobody decides by what they have set up for that."""

from __future__ import annotations

# What changes who decides at a queue.
_OF_QUEUES = "'queue', 'queue_change', 'queue_close', 'queue_open', 'queue_limit', 'queue_limit_lift', 'queue_proof'"
_OF_POLICIES = "'policy', 'policy_change', 'policy_retire', 'policy_restore'"
# What of a policy decides: all but its words.
_DECIDING = "'agent', 'tool', 'condition', 'effect', 'queue', 'within_seconds', 'proof'"
# Whose role it is to somebody: their own, and that of whom they stand in for, at all or with this question.
_OWN = """(SELECT me.id
            UNION ALL SELECT o.principal FROM approvals_deputy o WHERE o.deputy = me.id AND o.revoked_at IS NULL
            UNION ALL SELECT o.principal FROM approvals_delegation o
            WHERE o.deputy = me.id AND o.approval_id = {approval} AND o.ended_at IS NULL)"""
_OWN_TEXT = f"(SELECT own.id::text FROM {_OWN} AS own(id))"
# As a value in SQL about the account me.id: when it first did; {queue} is the queue's name, {case} the first stage's
# question, {approval} this one. Who stands in is told by accounts, for names change. A policy counts where it may be
# about this call, before or after. What was proposed and put in force is on record as its author's; whoever agreed has
# an act of their own, which names the change. A role that somebody gave themselves is on record by the database; one
# that a provider of sign-ins gives, when they come in, is not their doing. Rows that other hands made may hold
# anything.
CHANGED = f"""(SELECT min(did.at)
    FROM (SELECT c.opened_at, c.tool, r.agent, (SELECT q.role FROM approvals_queue q WHERE q.name = {{queue}}) AS role
          FROM approvals_approval c JOIN runs_run r ON r.id = c.run_id WHERE c.id = {{case}}) question
    CROSS JOIN LATERAL (
        SELECT r.action, r.queue, r.before, r.after, r.at, NULL AS whose FROM ledger_actrecord r
        WHERE r.person = me.id AND r.at >= question.opened_at
            AND r.action = ANY (ARRAY[{_OF_QUEUES}, {_OF_POLICIES}, 'deputy'])
        UNION ALL
        SELECT t.told ->> 'action', t.told ->> 'queue', t.told -> 'before', t.told -> 'after', r.at,
            n.given ->> 'user_id'
        FROM ledger_actrecord r JOIN ledger_rulechange n ON n.id = CASE
            WHEN r.subject ~ '^change [0-9a-f]{{{{8}}}}(-[0-9a-f]{{{{4}}}}){{{{3}}}}-[0-9a-f]{{{{12}}}}$'
            THEN substr(r.subject, 8)::uuid END
        CROSS JOIN LATERAL jsonb_array_elements(
            CASE jsonb_typeof(n.told) WHEN 'array' THEN n.told ELSE '[]' END) AS t(told)
        WHERE r.person = me.id AND r.at >= question.opened_at AND r.action = 'rule_change_apply'
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
