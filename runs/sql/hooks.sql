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

-- Return whether steps of a run lock rows that steps of other runs lock too: then each is committed alone.
CREATE OR REPLACE FUNCTION runs_is_pooled(p_run uuid) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Return whether reads of a run are counted by TX1, so that each needs an intent.
CREATE OR REPLACE FUNCTION runs_counts_reads(p_run uuid) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Reserve what an intent takes from budgets that runs share, or RAISE: DA005 without room (the detail names `pool`, `name`, `resource`, `wanted`
-- and `refills_at`), DA006 without a price (`model`). The last step of TX1 before its writes.
CREATE OR REPLACE FUNCTION runs_draw(p_run uuid, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Settle what was reserved for the request of a debit, in TX2.
CREATE OR REPLACE FUNCTION runs_settle(p_run uuid, p_line ledger_line) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Store the search terms of a new run, with it.
CREATE OR REPLACE FUNCTION runs_index_terms(p_run uuid, p_terms text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Give a run's search terms to its continuation, with that.
CREATE OR REPLACE FUNCTION runs_pass_terms_on(p_run uuid, p_successor uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;
