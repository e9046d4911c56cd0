-- Changes of rules that need two people.

-- Return the results of rule changes that a person has applied since then as the second person. Forged rows may contain anything.
CREATE OR REPLACE FUNCTION ledger_agreed_changes(p_person bigint, p_since timestamptz)
RETURNS TABLE (action text, queue text, before jsonb, after jsonb, at timestamptz, whose text)
LANGUAGE sql STABLE AS $$
    SELECT t.told ->> 'action', t.told ->> 'queue', t.told -> 'before', t.told -> 'after', r.at, n.given ->> 'user_id'
    FROM ledger_actrecord r JOIN ledger_rulechange n ON n.id = CASE
        WHEN r.subject ~ '^change [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN substr(r.subject, 8)::uuid END
    CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(n.told) WHEN 'array' THEN n.told ELSE '[]' END) AS t(told)
    WHERE r.person = p_person AND r.at >= p_since AND r.action = 'rule_change_apply' AND jsonb_typeof(t.told) = 'object';
$$;
