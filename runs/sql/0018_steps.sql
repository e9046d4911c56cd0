-- The step protocol: one call of one function per step. Lock the head, check the fence, then write or RAISE.
-- SQLSTATEs: DA001 stale lease, DA002 approval missing, used up or not for these bytes, DA003 approval expired, DA004 over budget,
-- DA404 no such run. Lock order everywhere: Head, Run, Wait, Approval, the rest.
--
-- Where several runs' steps share a transaction (runs/journal/committer.py), the caller has taken each head by SKIP LOCKED, and what is
-- below a head nobody locks without it: so none waits for another. A step that RAISEs undoes them all; each is then made alone.
--
-- Elsewhere (docs/sql.md): what a step asks before it writes (0016_steps.sql, 0017_budgets.sql), ledger_lock and ledger_append, claims, and
-- the types (steps.sql): runs_reply, where the journal stands, the database's time, what people asked for, and whether it was done;
-- runs_opening, a wait that opens with a step; runs_usage, what it adds to the run's counters; runs_cut, a checkpoint.

-- TX1: make the intent of a call durable before it leaves. Under a pause, cancel or hold, and where the attempt before may have happened
-- after all, nothing is written and the reply says so. What would break a cap is refused (DA004). What once went out under a grant goes out again under one only.
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
    IF g_slot IS NOT NULL THEN
        PERFORM runs_use_grant(p_run, g_slot, g_hash, invoked.slot, invoked.attempt);
    ELSIF invoked.attempt > 0 AND EXISTS (
        SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = invoked.slot AND e.attempt < invoked.attempt
        AND e.kind = 'ToolInvoked' AND convert_from(e.clear, 'UTF8')::json ->> 'grant' IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'slot % of run % went out under an approval before, and has none now', invoked.slot, p_run USING ERRCODE = 'DA002';
    END IF;
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

-- TX2: make facts durable: a result, a failure, a wait, an entered visit. A debit is booked as it is written: what the counters say is the
-- sum of what the journal lists. They are taken whatever people asked for meanwhile; the reply
-- says what that was, so that the worker stops at this boundary.
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

-- Let go of a run: `park` (all waits still open), `settle` (a cancelled run waits for a person to settle a call first), `pause`,
-- `budget` (paused, until somebody raises it), `release` (drain) or `end`. What would be wrong by now is not done and the reply says so: parking on a wait that was resolved
-- meanwhile, completing a run that somebody cancelled.
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
