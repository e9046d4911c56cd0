-- Databases from before 0.1.0 have older bodies of these three: the file that brought them changed after it had been applied there. Here they
-- are as every new database has had them since, so that both kinds have the same.

-- One change of the tables themselves came before that, and nothing can tell what else such a database lacks: it is not brought along.
DO $$
BEGIN
    IF to_regclass('runs_signal') IS NULL THEN
        RAISE EXCEPTION 'this database was made by a state of the code from before signals, which can not be upgraded: begin with a new database';
    END IF;
END $$;

-- Whether the journal holds the answer to a call that is about to be repeated, to be called unknown, or to be settled by what its hook
-- says: a callback, or a lost worker's answer, may come while the worker still thinks its call unanswered. Asked under the lock; then
-- nothing is written, and the worker reads what came.
CREATE OR REPLACE FUNCTION runs_is_answered(p_run uuid, p_lines ledger_line[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        IF line.kind IN ('ToolRedispatched', 'ToolOutcomeUnknown', 'ToolReconciled') AND EXISTS (
            SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = line.slot AND e.attempt = line.attempt
            AND (e.fact = 'result' OR e.kind = 'ToolReconciled' AND convert_from(e.clear, 'UTF8')::json ->> 'verdict' = 'happened')
        ) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- TX1: make the intent of a call durable before it leaves. Under a pause, cancel or hold nothing is written and the reply says so.
-- An approval is consumed here, by compare-and-set on its wait: the same bytes, once, in time.
CREATE OR REPLACE FUNCTION runs_intend(
    p_run uuid, p_epoch bigint, p_lease uuid, p_actor text,
    p_lines ledger_line[], p_facts ledger_fact[], g_slot text, g_hash text, w runs_opening
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is_answered(p_run, p_lines) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    IF g_slot IS NOT NULL THEN
        UPDATE runs_wait SET consumed_at = clock_timestamp()
        WHERE run_id = p_run AND slot = g_slot AND kind = 'approval' AND resolution = 'approved'
          AND grant_hash = g_hash AND consumed_at IS NULL AND grant_expires_at > clock_timestamp();
        IF NOT FOUND AND EXISTS (
            SELECT 1 FROM runs_wait WHERE run_id = p_run AND slot = g_slot AND kind = 'approval' AND resolution = 'approved'
              AND grant_hash = g_hash AND consumed_at IS NULL
        ) THEN
            RAISE EXCEPTION 'the approval of slot % of run % lay unused until it expired', g_slot, p_run USING ERRCODE = 'DA003';
        ELSIF NOT FOUND THEN
            RAISE EXCEPTION 'slot % of run % has no unconsumed approval for these bytes', g_slot, p_run USING ERRCODE = 'DA002';
        END IF;
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
        -- A call that answers later opened its wait with the intent; now that upstream accepted it, the time it gave counts.
        INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, is_overdue)
        VALUES (w.id, p_run, w.slot, w.attempt, w.kind, w.n, clock_timestamp(), w.deadline, w.detail, false)
        ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline WHERE runs_wait.resolved_at IS NULL;
    END IF;
    RETURN runs_reply_of(h, true);
END $$;
