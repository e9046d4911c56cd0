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

-- Refuse an intent whose run, or what it is about to call, is halted: RAISE DA007 (the detail names `halt`, `scope` and `key`). In TX1: an app
-- with halts takes its lock here, so that after a halt's commit no intent is written in its scope.
CREATE OR REPLACE FUNCTION runs_check_halts(p_run uuid, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Return the halt of a run, or of a call that leaves without a new intent under one of these keys, such as tool:charge; null without one.
CREATE OR REPLACE FUNCTION runs_halted_by(p_run uuid, p_keys text[]) RETURNS uuid
LANGUAGE sql AS $$
    SELECT NULL::uuid;
$$;

-- Return the halt of a run as its readers see it: `kind`, `scope`, `key`, `by`, `why` and `since`; null without one.
CREATE OR REPLACE FUNCTION runs_halt_of(p_run uuid) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT NULL::jsonb;
$$;

-- Return whether every run of a version (null: every run) is halted.
CREATE OR REPLACE FUNCTION runs_is_halted_whole(p_graph text) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Return how many more candidates a claim reads, since some of the first may be halted; null if nothing is halted.
CREATE OR REPLACE FUNCTION runs_claim_halts() RETURNS int
LANGUAGE sql AS $$
    SELECT NULL::int;
$$;

-- Put a locked run that no worker drives aside if it is halted, until it no longer is, and return whether it was.
CREATE OR REPLACE FUNCTION runs_hold_back(p_run uuid, p_is_unbegun boolean, p_keys text[]) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;

-- Return an agent's versions in quarantine (`quarantined`), and the halts that its new runs come under (`halts`), the oldest first.
CREATE OR REPLACE FUNCTION runs_start_halts(p_agent text) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT '{"quarantined": [], "halts": []}'::jsonb;
$$;

-- Return when a run was halted between two moments, as disjoint intervals in order.
CREATE OR REPLACE FUNCTION runs_stood_during(p_run uuid, p_from timestamptz, p_to timestamptz) RETURNS SETOF tstzrange
LANGUAGE sql AS $$
    SELECT NULL::tstzrange WHERE false;
$$;

-- Return how much later a due wait falls due because its run was halted since `p_since`, and count that time once; null if it was not halted.
CREATE OR REPLACE FUNCTION runs_count_still(p_id uuid, p_run uuid, p_since timestamptz) RETURNS interval
LANGUAGE sql AS $$
    SELECT NULL::interval;
$$;

-- Count halted time of a wait from `p_at` on, since it has a new deadline.
CREATE OR REPLACE FUNCTION runs_count_from(p_id uuid, p_run uuid, p_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
END $$;

-- Return until when halted time is already counted in the deadline of a wait or run; null: none is.
CREATE OR REPLACE FUNCTION runs_counted_until(p_id uuid) RETURNS timestamptz
LANGUAGE sql AS $$
    SELECT NULL::timestamptz;
$$;
