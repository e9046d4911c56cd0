-- Hooks: functions that another app may replace by its own definition. The definitions here do nothing.

-- Return whether agents or tags have limits (`is_ruled`), and whether any of these limit how many runs are driven at a time (`is_capped`).
CREATE OR REPLACE FUNCTION runs_claim_limits(OUT is_ruled boolean, OUT is_capped boolean)
LANGUAGE sql AS $$
    SELECT false, false;
$$;

-- Return the limits in force of an agent (`agent:NAME`) or a tag (`tag:NAME`): the number of runs `at_once`, and the `weight` of its share.
CREATE OR REPLACE FUNCTION runs_limit_rule(p_key text) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT '{}'::jsonb;
$$;

-- Return whether steps of a run lock rows that steps of other runs also lock. If so, each step is committed alone.
CREATE OR REPLACE FUNCTION runs_is_pooled(p_run uuid) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Return whether TX1 counts reads of a run, so that each read needs an intent.
CREATE OR REPLACE FUNCTION runs_counts_reads(p_run uuid) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Reserve the amounts of an intent in budgets that runs share. RAISE DA005 if one is exhausted (the detail names `pool`, `name`, `resource`,
-- `wanted` and `refills_at`), DA006 without a price (`model`). This is the last step of TX1 before its writes.
CREATE OR REPLACE FUNCTION runs_draw(p_run uuid, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Settle the amounts that were reserved for the request of a debit, in TX2.
CREATE OR REPLACE FUNCTION runs_settle(p_run uuid, p_line ledger_line) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Refuse an intent whose run or target is halted: RAISE DA007 (the detail names `halt`, `scope` and `key`). Called in TX1. An app with halts
-- takes its lock here, so that no intent in a halt's scope is written after the halt's commit.
CREATE OR REPLACE FUNCTION runs_check_halts(p_run uuid, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Return the halt of a run, or of a call under one of these keys (such as tool:charge) that is sent without a new intent; null if there is none.
CREATE OR REPLACE FUNCTION runs_halted_by(p_run uuid, p_keys text[]) RETURNS uuid
LANGUAGE sql AS $$
    SELECT NULL::uuid;
$$;

-- Return the halt of a run with the fields for its readers: `kind`, `scope`, `key`, `by`, `why` and `since`; null if there is none.
CREATE OR REPLACE FUNCTION runs_halt_of(p_run uuid) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT NULL::jsonb;
$$;

-- Return whether every run of a version (null: every run) is halted.
CREATE OR REPLACE FUNCTION runs_is_halted_whole(p_graph text) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Return how many more candidates a claim reads because some of the first may be halted; null if nothing is halted.
CREATE OR REPLACE FUNCTION runs_claim_halts() RETURNS int
LANGUAGE sql AS $$
    SELECT NULL::int;
$$;

-- If a locked run that no worker drives is halted, put it aside until the halt ends. Returns whether it was put aside.
CREATE OR REPLACE FUNCTION runs_hold_back(p_run uuid, p_is_unbegun boolean, p_keys text[]) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Return an agent's quarantined versions (`quarantined`), and the halts that would cover its new runs (`halts`), oldest first.
CREATE OR REPLACE FUNCTION runs_start_halts(p_agent text) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT '{"quarantined": [], "halts": []}'::jsonb;
$$;

-- Return when a run was halted between two points in time, as disjoint intervals in order.
CREATE OR REPLACE FUNCTION runs_stood_during(p_run uuid, p_from timestamptz, p_to timestamptz) RETURNS SETOF tstzrange
LANGUAGE sql AS $$
    SELECT NULL::tstzrange WHERE false;
$$;

-- Return by how much a due wait is deferred because its run was halted since `p_since`, and count that time only once; null if it was not
-- halted.
CREATE OR REPLACE FUNCTION runs_count_still(p_id uuid, p_run uuid, p_since timestamptz) RETURNS interval
LANGUAGE sql AS $$
    SELECT NULL::interval;
$$;

-- Count halted time of a wait only from `p_at` on, because it has a new deadline.
CREATE OR REPLACE FUNCTION runs_count_from(p_id uuid, p_run uuid, p_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Return the time until which halted time is already included in the deadline of a wait or run; null if none is.
CREATE OR REPLACE FUNCTION runs_counted_until(p_id uuid) RETURNS timestamptz
LANGUAGE sql AS $$
    SELECT NULL::timestamptz;
$$;

-- Store the search terms of a new run in the transaction that creates it.
CREATE OR REPLACE FUNCTION runs_index_terms(p_run uuid, p_terms text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Copy a run's search terms to its continuation in the transaction that creates it.
CREATE OR REPLACE FUNCTION runs_pass_terms_on(p_run uuid, p_successor uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;
