-- Hooks: functions that another app may replace by a definition of its own. These do nothing.

-- Return the rule changes that a person has applied as the second person since then: `action`, `queue`, `before` and `after` of each record,
-- when it was applied, and the account that it was about (`whose`).
CREATE OR REPLACE FUNCTION ledger_agreed_changes(p_person bigint, p_since timestamptz)
RETURNS TABLE (action text, queue text, before jsonb, after jsonb, at timestamptz, whose text)
LANGUAGE sql STABLE AS $$
    SELECT NULL::text, NULL::text, NULL::jsonb, NULL::jsonb, NULL::timestamptz, NULL::text WHERE false;
$$;

-- Return what else the code of an account covers: its second factors and linked sign-ins, which are empty here. The names are included, so that
-- an account without any has the same code whether or not the app that manages them is installed.
CREATE OR REPLACE FUNCTION ledger_account_parts(p_user bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"factors": null, "sign_ins": null}'::jsonb;
$$;
