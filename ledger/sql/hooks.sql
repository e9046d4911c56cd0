-- Hooks: functions that another app may replace by a definition of its own.

-- Return what else the code of an account covers: its second factors and linked sign-ins, of which there are none. The names stay, so that an
-- account without any has the same code with the app that has them and without.
CREATE OR REPLACE FUNCTION ledger_account_parts(p_user bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"factors": null, "sign_ins": null}'::jsonb;
$$;

-- Return what changes of rules did that a person applied as the second one since then: of each record `action`, `queue`, `before` and `after`,
-- when it was applied, and the account that it was about (`whose`).
CREATE OR REPLACE FUNCTION ledger_agreed_changes(p_person bigint, p_since timestamptz)
RETURNS TABLE (action text, queue text, before jsonb, after jsonb, at timestamptz, whose text)
LANGUAGE sql STABLE AS $$
    SELECT NULL::text, NULL::text, NULL::jsonb, NULL::jsonb, NULL::timestamptz, NULL::text WHERE false;
$$;
