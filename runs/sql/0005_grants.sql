-- A yes covers one logical call until that call has had an effect: each attempt at it uses the grant anew, by compare-and-set on its
-- wait, and a further one only while the grant is in time and the journal says of every attempt before it that nothing came of it.
-- SQLSTATEs as in steps.sql: DA002 approval missing, used up or not for these bytes, DA003 approval expired.

-- Whether nothing came of any attempt before this one: the other side refused each, or a person or a hook found that it did not happen,
-- and nobody has said otherwise since. A late answer is such a word: then what people approved may have been done already.
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

-- Use a grant for one attempt at one call, under the head's lock. Its wait tells which call and which attempt used it last; the intents
-- in the journal name it one by one.
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

-- TX1: make the intent of a call durable before it leaves. Under a pause, cancel or hold nothing is written and the reply says so.
-- What once went out under a grant goes out again under one only, whatever the worker's code thinks of its gate today.
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

-- TX2: make facts durable: a result, a failure, a wait, an entered visit. Facts about what was already sent are taken whatever
-- people asked for meanwhile; the reply carries their flags, so that the worker stops at this boundary.
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
        IF line.kind IN ('ToolFailed', 'ToolReconciled') THEN
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
