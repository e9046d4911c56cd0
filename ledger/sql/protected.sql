-- Protected rows (ledger/protected.py): what the code of a row covers, and that code. The database has no key, so the process that reads
-- a proof checks the code. Settings of the caller's connection change nothing.

-- Return the proof of a row: its table, its key, the digest of what its code covers, and its code. A null row is absent.
CREATE OR REPLACE FUNCTION ledger_proof(p_table text, p_key text, p_row anyelement, p_free text[], p_parts jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET bytea_output = 'hex' AS $$
BEGIN
    RETURN jsonb_build_array(
        p_table, p_key,
        CASE WHEN p_row IS NULL THEN ''
             ELSE encode(sha256(convert_to(((to_jsonb(p_row) - p_free) || coalesce(p_parts, '{}'))::text, 'UTF8')), 'hex') END,
        (SELECT jsonb_build_array(c.n, c.state, encode(c.code, 'hex')) FROM public.ledger_rowcode c
         WHERE c.table_name = p_table AND c.key = p_key));
END $$;

-- Return the proof of a role: it covers the role's permissions.
CREATE OR REPLACE FUNCTION ledger_role_proof(g auth_group) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN ledger_proof('auth_group', g.id::text, g, '{}', jsonb_build_object('permissions', (
        SELECT jsonb_agg(p.permission_id ORDER BY p.permission_id) FROM public.auth_group_permissions p WHERE p.group_id = g.id)));
END $$;

-- Return the proofs of an account and of its roles. An account's covers its memberships, permissions, tags and what apps add, and therefore
-- their absence.
CREATE OR REPLACE FUNCTION ledger_account_proof(u auth_user) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN jsonb_build_array(ledger_proof('auth_user', u.id::text, u, '{last_login}', ledger_account_parts(u.id) || jsonb_build_object(
        'roles', (SELECT jsonb_agg(x.group_id ORDER BY x.id) FROM public.auth_user_groups x WHERE x.user_id = u.id),
        'permissions', (SELECT jsonb_agg(x.permission_id ORDER BY x.id) FROM public.auth_user_user_permissions x WHERE x.user_id = u.id),
        'tags', (SELECT jsonb_agg(jsonb_build_array(x.tag, x.taken_at IS NULL) ORDER BY x.id) FROM public.durableagents_owntag x WHERE x.user_id = u.id)
    ))) || coalesce((SELECT jsonb_agg(ledger_role_proof(g)) FROM public.auth_user_groups m JOIN public.auth_group g ON g.id = m.group_id
                     WHERE m.user_id = u.id), '[]');
END $$;
