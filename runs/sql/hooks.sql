-- Hooks: functions that another app may replace by a definition of its own. These do nothing.

-- Return whether agents or tags have limits (`is_ruled`), and whether some of these limit how many runs are driven at a time (`is_capped`).
CREATE OR REPLACE FUNCTION runs_claim_limits(OUT is_ruled boolean, OUT is_capped boolean)
LANGUAGE sql AS $$
    SELECT false, false;
$$;

-- Return the limits in force of an agent (`agent:NAME`) or a tag (`tag:NAME`): `at_once` runs, and the `weight` of its share.
CREATE OR REPLACE FUNCTION runs_limit_rule(p_key text) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT '{}'::jsonb;
$$;
