-- Hooks: functions that another app may replace by a definition of its own.

-- Return what else the code of an account covers: its second factors and linked sign-ins, of which there are none. The names stay, so that an
-- account without any has the same code with the app that has them and without.
CREATE OR REPLACE FUNCTION ledger_account_parts(p_user bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"factors": null, "sign_ins": null}'::jsonb;
$$;
