-- Facts read in the statement of a session or key, so that no page needs another query (approvals/queues/along.py). They are in functions
-- because planning them together took longer than all else in a request: parts that nobody needs are not planned, and a persistent connection
-- keeps its plans. STABLE: all parts see the snapshot of the calling statement.

-- Return the queues where a principal may decide a case by role, each with the escalations that brought the case there.
CREATE OR REPLACE FUNCTION approvals_places(p_principal bigint, p_approval uuid, p_queue text, p_escalated_to text[]) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN (
        SELECT json_agg(json_build_array(to_json(place)::text, CASE WHEN place.name <> p_queue THEN (
            SELECT coalesce(json_agg(to_json(went)::text), '[]') FROM (
                SELECT * FROM approvals_escalation e WHERE e.approval_id = p_approval AND e.queue = place.name AND e.n > 0
                ORDER BY e.n LIMIT 5) went) END))
        FROM approvals_queue place
        JOIN auth_group role ON role.name = place.role
        JOIN auth_user_groups holder ON holder.group_id = role.id AND holder.user_id = p_principal
        WHERE place.name = p_queue OR place.name = ANY (p_escalated_to));
END $$;

-- Return the deputyships in force, each with its queues. There are no deputies of deputies: the principal must hold the role themselves and may sign in.
CREATE OR REPLACE FUNCTION approvals_stands(p_user bigint) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN (
        SELECT coalesce(json_agg(json_build_array(to_json(d)::text, p.username, at.queues)), '[]')
        FROM approvals_deputy d
        JOIN auth_user p ON p.id = d.principal AND p.is_active
        CROSS JOIN LATERAL (
            SELECT json_agg(q.name) AS queues FROM approvals_queue q
            WHERE q.state <> 'removed' AND (d.queue_id IS NULL OR d.queue_id = q.id)
              AND EXISTS (SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
                          WHERE m.user_id = p.id AND g.name = q.role)) at
        WHERE d.deputy = p_user AND d.revoked_at IS NULL AND d.ends_at > statement_timestamp()
          AND d.starts_at <= statement_timestamp() AND at.queues IS NOT NULL);
END $$;

-- Return the reader's single cases: delegated by someone who still decides there, or asked about. Rows are never deleted, so of
-- closed cases only the newest are read. Open cases have their own limit, one of each question first, so that forged rows of one question can't
-- displace others. Each table is read twice by the person's index, because one sort would wait for thousands of closed cases.
CREATE OR REPLACE FUNCTION approvals_own_cases(p_user bigint) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN (
        SELECT coalesce(json_agg(json_build_array(x.approval_id, x.what, x.name, x.told, x.places) ORDER BY x.at DESC), '[]') FROM (
            (SELECT d.approval_id, 'decide' AS what, p.username AS name, d.made_at AS at, to_json(d)::text AS told, place.places
             FROM approvals_delegation d JOIN auth_user p ON p.id = d.principal AND p.is_active
             JOIN approvals_approval a ON a.id = d.approval_id AND a.state = 'open'
             CROSS JOIN LATERAL approvals_places(d.principal, a.id, a.queue, a.escalated_to) AS place(places)
             WHERE d.deputy = p_user AND d.ended_at IS NULL AND d.n >= 0 AND place.places IS NOT NULL
             ORDER BY row_number() OVER (PARTITION BY d.approval_id ORDER BY d.n), d.made_at DESC LIMIT 100)
            UNION ALL
            (SELECT d.approval_id, 'decide', p.username, d.made_at, to_json(d)::text, place.places
             FROM approvals_delegation d JOIN auth_user p ON p.id = d.principal AND p.is_active
             JOIN approvals_approval a ON a.id = d.approval_id AND NOT (a.state = 'open')
             CROSS JOIN LATERAL approvals_places(d.principal, a.id, a.queue, a.escalated_to) AS place(places)
             WHERE d.deputy = p_user AND d.ended_at IS NULL AND d.n >= 0 AND place.places IS NOT NULL
             ORDER BY d.made_at DESC LIMIT 100)
            UNION ALL
            (SELECT i.approval_id, CASE WHEN i.outcome = '' THEN 'asked' ELSE 'answered' END,
                 coalesce(asker.username, split_part(i.by, ':', 2)), i.at, to_json(i)::text, NULL::json
             FROM approvals_inquiry i LEFT JOIN auth_user asker ON asker.id = i.asker
             JOIN approvals_approval a ON a.id = i.approval_id AND (a.state = 'open' AND i.outcome = '')
             WHERE i.person = p_user AND i.outcome <> 'withdrawn' AND i.n >= 0
             ORDER BY row_number() OVER (PARTITION BY i.approval_id ORDER BY i.n), i.at DESC LIMIT 100)
            UNION ALL
            (SELECT i.approval_id, CASE WHEN i.outcome = '' THEN 'asked' ELSE 'answered' END,
                 coalesce(asker.username, split_part(i.by, ':', 2)), i.at, to_json(i)::text, NULL::json
             FROM approvals_inquiry i LEFT JOIN auth_user asker ON asker.id = i.asker
             JOIN approvals_approval a ON a.id = i.approval_id AND NOT (a.state = 'open' AND i.outcome = '')
             WHERE i.person = p_user AND i.outcome <> 'withdrawn' AND i.n >= 0 ORDER BY i.at DESC LIMIT 100)) x);
END $$;

-- Return the queues, and with an account its deputyships, its cases, the limits that may bind it (the queues', its own and its principals') and
-- the queues it decides by role, which count only together with a limit.
CREATE OR REPLACE FUNCTION approvals_along(p_user bigint) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    stands json := '[]';
    cases json := '[]';
    limits json := '[]';
    decides json := '[]';
BEGIN
    IF EXISTS (SELECT FROM approvals_deputy d WHERE d.deputy = p_user AND d.revoked_at IS NULL) THEN
        stands := approvals_stands(p_user);
    END IF;
    IF EXISTS (SELECT FROM approvals_delegation d WHERE d.deputy = p_user)
        OR EXISTS (SELECT FROM approvals_inquiry i WHERE i.person = p_user) THEN
        cases := approvals_own_cases(p_user);
    END IF;
    IF EXISTS (SELECT FROM approvals_limit l WHERE l.ended_at IS NULL) THEN
        limits := (
            SELECT coalesce(json_agg(json_build_array(q.name, q.needs_amount, l.person, l.most::text, l.currency)), '[]')
            FROM approvals_limit l JOIN approvals_queue q ON q.id = l.queue_id AND q.state <> 'removed'
            WHERE l.ended_at IS NULL AND (l.person IS NULL OR l.person = p_user OR l.person IN (
                SELECT d.principal FROM approvals_deputy d WHERE d.deputy = p_user AND d.revoked_at IS NULL)));
        decides := (
            SELECT coalesce(json_agg(q.name), '[]') FROM approvals_queue q WHERE EXISTS (
                SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id WHERE m.user_id = p_user AND g.name = q.role));
    END IF;
    RETURN json_build_object(
        'at', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
        'queues', (SELECT coalesce(json_agg(json_build_array(q.name, q.role, q.state = 'open', q.proof::text, to_json(q)::text)
                                            ORDER BY q.id), '[]') FROM approvals_queue q WHERE q.state <> 'removed'),
        'roles', (SELECT coalesce(json_agg(g.name), '[]') FROM auth_group g WHERE g.name LIKE 'approver\_%'),
        'stands', stands, 'cases', cases, 'limits', limits, 'decides', json_build_array(p_user, decides));
END $$;
