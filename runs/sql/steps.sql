-- The step protocol: one call of one function per step. Lock the head, check the fence, then write or RAISE.
-- SQLSTATEs: DA001 stale lease, DA002 approval missing, used up or not for these bytes, DA003 approval expired, DA004 over budget,
-- DA005 and DA006 shared budgets (hooks.sql), DA007 halted (hooks.sql), DA060 policies changed (policies.sql), DA404 no such run.
-- Lock order everywhere: Head, Run, Wait, Approval, meters of shared budgets, the rest.
--
-- Where several runs' steps share a transaction (runs/journal/committer.py), the caller has taken each head by SKIP LOCKED, and rows below a
-- head are locked only under it, so none waits for another. A step that RAISEs undoes them all; each is then made alone.
--
-- runs_reply: the end of the journal, the database's time, what people requested, and whether the step was done. runs_opening: a wait that
-- opens with a step. runs_usage: what a step adds to the counters. runs_cut: a checkpoint between two visits.

CREATE TYPE runs_reply AS (seq bigint, at timestamptz, is_pause_requested boolean, is_cancel_requested boolean, is_on_hold boolean, is_done boolean);
CREATE TYPE runs_opening AS (id uuid, slot text, attempt int, kind text, n int, deadline timestamptz, detail jsonb, token bytea);
CREATE TYPE runs_usage AS (steps int, tokens_in bigint, tokens_out bigint, tool_calls int, model_calls int);
CREATE TYPE runs_cut AS (generation int, node text, visit int, fingerprint text, state bytea, checksum bytea);

-- Return the reply of a step.
CREATE OR REPLACE FUNCTION runs_reply_of(h ledger_head, p_done boolean) RETURNS runs_reply
LANGUAGE sql AS $$
    SELECT (h.seq, clock_timestamp(), h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, p_done)::runs_reply;
$$;

-- Return whether the journal already has the outcome that a step is about: a callback or a late result may have come meanwhile. The first
-- outcome counts, and the worker reads it.
CREATE OR REPLACE FUNCTION runs_is_answered(p_run uuid, p_lines ledger_line[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        IF (line.kind IN ('ToolRedispatched', 'ToolOutcomeUnknown', 'ToolReconciled', 'ToolFailed', 'ToolReturned')
            -- A refusal may be contradicted by a late result, about which a person is asked.
            OR line.fact LIKE 'wait_opened.reconcile.%' AND NOT EXISTS (
                SELECT FROM ledger_event e WHERE e.run_id = p_run AND e.slot = line.slot AND e.attempt = line.attempt AND e.kind = 'ToolFailed'))
           AND runs_has_outcome(p_run, line.slot, line.attempt) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- Return whether the journal holds an attempt's outcome: its result, or a person's finding that it happened.
CREATE OR REPLACE FUNCTION runs_has_outcome(p_run uuid, p_slot text, p_attempt int) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = p_slot AND e.attempt = p_attempt
        AND (e.fact = 'result' OR e.kind = 'ToolReconciled' AND convert_from(e.clear, 'UTF8')::json ->> 'verdict' = 'happened')
    );
$$;

-- Return whether a late result says that an earlier attempt happened or was accepted, and no person has denied it since: sending the call again
-- could be a second effect.
CREATE OR REPLACE FUNCTION runs_is_belied(p_run uuid, p_slot text, p_attempt int) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = p_slot AND e.attempt < p_attempt
        AND (e.kind = 'CallbackArrivedLate' OR e.kind = 'ToolAnsweredLate' AND convert_from(e.clear, 'UTF8')::json ->> 'outcome' <> 'refused')
        AND NOT EXISTS (
            SELECT 1 FROM ledger_event v WHERE v.run_id = p_run AND v.slot = p_slot AND v.attempt = e.attempt AND v.seq > e.seq
            AND v.kind = 'ToolReconciled' AND convert_from(v.clear, 'UTF8')::json ->> 'verdict' = 'did_not'
        )
    );
$$;

-- Return whether every earlier attempt is known to have had no effect: it was refused or found not to have happened, and no late result has
-- contradicted that since. Otherwise the approved action may already have been done.
CREATE OR REPLACE FUNCTION runs_is_undone(p_run uuid, p_slot text, p_attempt int) RETURNS boolean
LANGUAGE sql AS $$
    SELECT NOT EXISTS (
        SELECT 1 FROM generate_series(0, p_attempt - 1) AS earlier(attempt)
        WHERE NOT EXISTS (
            SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = p_slot AND e.attempt = earlier.attempt
            AND (e.kind = 'ToolFailed' OR e.kind = 'ToolReconciled' AND convert_from(e.clear, 'UTF8')::json ->> 'verdict' = 'did_not')
        )
    ) AND NOT EXISTS (
        SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = p_slot AND e.attempt < p_attempt
        AND (e.fact = 'result' AND e.kind <> 'ToolFailed' OR e.kind = 'CallbackArrivedLate'
             OR e.kind = 'ToolReconciled' AND convert_from(e.clear, 'UTF8')::json ->> 'verdict' = 'happened'
             OR e.kind = 'ToolAnsweredLate' AND convert_from(e.clear, 'UTF8')::json ->> 'outcome' <> 'refused')
    );
$$;

-- Use a grant for one attempt at one call, by compare-and-set on its wait; this consumes the approval. A further attempt may use it only before
-- it expires, and only if every earlier one had no effect. The intents in the journal name each use.
CREATE OR REPLACE FUNCTION runs_use_grant(p_run uuid, g_slot text, g_hash text, p_slot text, p_attempt int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    is_covered boolean := p_attempt > 0 AND runs_is_undone(p_run, p_slot, p_attempt);
BEGIN
    UPDATE runs_wait SET consumed_at = clock_timestamp(), consumed_by = p_slot, consumed_attempt = p_attempt
    WHERE run_id = p_run AND slot = g_slot AND kind = 'approval' AND resolution = 'approved'
      AND grant_hash = g_hash AND grant_expires_at > clock_timestamp()
      AND (consumed_at IS NULL OR is_covered AND consumed_by = p_slot AND consumed_attempt < p_attempt);
    IF FOUND THEN
        RETURN;
    END IF;
    IF EXISTS (
        SELECT 1 FROM runs_wait WHERE run_id = p_run AND slot = g_slot AND kind = 'approval' AND resolution = 'approved' AND grant_hash = g_hash
          AND (consumed_at IS NULL OR is_covered AND consumed_by = p_slot AND consumed_attempt < p_attempt)
    ) THEN
        RAISE EXCEPTION 'the approval of slot % of run % expired before it was used for this', g_slot, p_run USING ERRCODE = 'DA003';
    END IF;
    RAISE EXCEPTION 'slot % of run % has no unused approval for these bytes', g_slot, p_run USING ERRCODE = 'DA002';
END $$;

-- TX1: write an intent before anything is sent, after all checks (grant, caps, shared budgets, policies, halts).
CREATE OR REPLACE FUNCTION runs_intend(
    p_run uuid, p_epoch bigint, p_lease uuid, p_actor text,
    p_lines ledger_line[], p_facts ledger_fact[], g_slot text, g_hash text, w runs_opening
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    line ledger_line;
    invoked ledger_line;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is_answered(p_run, p_lines) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    PERFORM runs_check_halts(p_run, p_lines);
    FOREACH line IN ARRAY p_lines LOOP
        IF line.kind = 'ToolInvoked' THEN
            invoked := line;
        END IF;
    END LOOP;
    IF invoked.attempt > 0 AND runs_is_belied(p_run, invoked.slot, invoked.attempt) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    IF NOT (h.cap_steps, h.cap_tokens_in, h.cap_tokens_out, h.cap_tool_calls, h.cap_model_calls, h.cap_usd_micro) IS NULL THEN
        PERFORM runs_afford(h, p_lines);
    END IF;
    PERFORM runs_check_policies(p_lines);
    IF g_slot IS NOT NULL THEN
        PERFORM runs_use_grant(p_run, g_slot, g_hash, invoked.slot, invoked.attempt);
    ELSIF invoked.attempt > 0 AND EXISTS (
        SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = invoked.slot AND e.attempt < invoked.attempt
        AND e.kind = 'ToolInvoked' AND convert_from(e.clear, 'UTF8')::json ->> 'grant' IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'slot % of run % was sent with an approval before, but has none now', invoked.slot, p_run USING ERRCODE = 'DA002';
    END IF;
    PERFORM runs_draw(p_run, p_lines);
    h := ledger_append(h, p_lines);
    IF cardinality(p_facts) > 0 THEN
        PERFORM ledger_enter(h, p_actor, p_facts);
    END IF;
    IF w.id IS NOT NULL THEN
        INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, token_hash, is_overdue)
        VALUES (w.id, p_run, w.slot, w.attempt, w.kind, w.n, clock_timestamp(), w.deadline, w.detail, w.token, false);
    END IF;
    PERFORM ledger_store(h);
    RETURN runs_reply_of(h, true);
END $$;

-- TX2: make facts durable: a result, a failure, a wait, an entered visit. A debit is booked as it is written, so the counters are the sum of the
-- debits in the journal. Pending requests of people do not stop it; the reply names them, so that the worker stops at this boundary.
CREATE OR REPLACE FUNCTION runs_record(
    p_run uuid, p_epoch bigint, p_lease uuid, p_actor text,
    p_lines ledger_line[], p_facts ledger_fact[], w runs_opening, used runs_usage, cut runs_cut
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    line ledger_line;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF runs_is_answered(p_run, p_lines) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    h := ledger_append(h, p_lines);
    IF cardinality(p_facts) > 0 THEN
        PERFORM ledger_enter(h, p_actor, p_facts);
    END IF;
    FOREACH line IN ARRAY p_lines LOOP
        IF line.kind = 'BudgetDebited' THEN
            h := runs_debit(h, line);
            PERFORM runs_settle(p_run, line);
        ELSIF line.kind IN ('ToolFailed', 'ToolReconciled') THEN
            -- Upstream refused the call, or its hook told: no callback is waited for any more.
            UPDATE runs_wait SET resolution = 'settled', resolved_by = p_actor, resolved_at = clock_timestamp()
            WHERE run_id = p_run AND slot = line.slot AND attempt = line.attempt AND kind = 'webhook' AND resolved_at IS NULL;
        END IF;
    END LOOP;
    h.steps := h.steps + used.steps;
    h.tokens_in := h.tokens_in + used.tokens_in;
    h.tokens_out := h.tokens_out + used.tokens_out;
    h.tool_calls := h.tool_calls + used.tool_calls;
    h.model_calls := h.model_calls + used.model_calls;
    PERFORM ledger_store(h);
    IF cut.node IS NOT NULL THEN
        INSERT INTO runs_checkpoint (run_id, seq, generation, node, visit, schema_version, fingerprint, state, checksum, at)
        VALUES (p_run, h.seq, cut.generation, cut.node, cut.visit, 1, cut.fingerprint, cut.state, cut.checksum, clock_timestamp());
        UPDATE runs_run SET node = cut.node, visit = cut.visit, last_checkpoint_at = clock_timestamp(), updated_at = clock_timestamp()
        WHERE id = p_run;
    END IF;
    IF w.id IS NOT NULL THEN
        -- A call that answers later opened its wait with the intent; now that upstream accepted it, the time it gave counts, also
        -- where people were reminded meanwhile that it had not got that far.
        INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, is_overdue)
        VALUES (w.id, p_run, w.slot, w.attempt, w.kind, w.n, clock_timestamp(), w.deadline, w.detail, false)
        ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline, is_overdue = false WHERE runs_wait.resolved_at IS NULL;
    END IF;
    RETURN runs_reply_of(h, true);
END $$;

-- Park a run unless a message waits for an answer: the message's sender woke no worker, because it saw that one has the run.
CREATE OR REPLACE FUNCTION runs_park(
    p_run uuid, p_epoch bigint, p_lease uuid, p_how text, p_state text, p_waits uuid[], p_error text, p_lines ledger_line[]
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF EXISTS (SELECT 1 FROM runs_message WHERE run_id = p_run AND outcome = '') THEN
        RETURN runs_reply_of(h, false);
    END IF;
    RETURN runs_leave(p_run, p_epoch, p_lease, p_how, p_state, p_waits, p_error, p_lines);
END $$;

-- Release a run that a halt stops (`p_keys`: the keys of the halted call; empty if the whole run is halted). Its state stays. If nothing halts
-- it any more, it is ready at once. Pending requests of people come first: then nothing is done, and the reply says so.
CREATE OR REPLACE FUNCTION runs_set_aside(
    p_run uuid, p_epoch bigint, p_lease uuid, p_keys text[], p_lines ledger_line[]
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold THEN
        RETURN runs_reply_of(h, false);
    END IF;
    h := ledger_append(h, p_lines);
    h.lease := NULL;
    PERFORM ledger_store(h);
    UPDATE runs_run SET owner = NULL, ready_at = clock_timestamp(), updated_at = clock_timestamp() WHERE id = p_run;
    PERFORM runs_hold_back(p_run, false, p_keys);
    RETURN runs_reply_of(h, true);
END $$;

-- Release a run: `park` (all waits are still open), `settle` (a cancelled run waits for a person to settle a call), `pause`, `budget` (paused
-- until the budget is raised), `release` (drain) or `end`. If the release is no longer right, nothing is done and the reply says so: parking on
-- a wait that was resolved meanwhile, or completing a run that was cancelled.
CREATE OR REPLACE FUNCTION runs_leave(
    p_run uuid, p_epoch bigint, p_lease uuid, p_how text, p_state text, p_waits uuid[], p_error text, p_lines ledger_line[]
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF (p_how = 'park' AND (h.is_pause_requested OR h.is_cancel_requested))
       OR (p_how = 'budget' AND (h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold))
       OR (p_how IN ('park', 'settle', 'budget') AND EXISTS (SELECT 1 FROM runs_wait WHERE run_id = p_run AND id = ANY (p_waits) AND resolved_at IS NOT NULL))
       OR (p_how = 'pause' AND (h.is_cancel_requested OR NOT (h.is_pause_requested OR h.is_on_hold)))
       OR (p_how = 'end' AND p_state <> 'cancelled' AND h.is_cancel_requested) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    h := ledger_append(h, p_lines);
    h.lease := NULL;
    IF p_how <> 'release' THEN
        h.deaths := 0;  -- it came to a rest by itself: whatever killed workers on it before is behind it
    END IF;
    IF p_how IN ('pause', 'end') THEN
        h.is_pause_requested := false;
    END IF;
    IF p_how = 'end' THEN
        h.is_cancel_requested := false;
    END IF;
    PERFORM ledger_store(h);
    UPDATE runs_run SET
        state = p_state,
        owner = NULL,
        is_solo = is_solo AND p_how = 'release',
        is_woken = (p_how IN ('pause', 'budget')),
        ready_at = CASE WHEN p_how = 'release' THEN clock_timestamp() WHEN p_how IN ('park', 'settle') THEN ready_at END,
        updated_at = clock_timestamp(),
        ended_at = CASE p_how WHEN 'end' THEN clock_timestamp() END,
        end_seq = CASE p_how WHEN 'end' THEN h.seq END,
        error_code = coalesce(p_error, '')
    WHERE id = p_run;
    IF p_how = 'end' THEN
        UPDATE runs_wait SET resolution = 'withdrawn', resolved_by = 'system:engine', resolved_at = clock_timestamp()
        WHERE run_id = p_run AND resolved_at IS NULL;
    END IF;
    RETURN runs_reply_of(h, true);
END $$;
