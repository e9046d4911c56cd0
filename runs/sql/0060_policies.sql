-- Policies: what lets a call leave is what is in force when its intent is written, not what a worker knew a moment before.

-- Whether a call that is about to leave, or to leave once more, was judged by the policies in force: its line comes with one that tells of
-- the judgement, or there are none. Refused else (DA060), and nothing is written: the worker judges anew. Whoever changes policies takes the
-- same lock alone, so after that act no call leaves by what was in force before. A statement of its own after the lock sees what
-- whoever had it committed.
CREATE OR REPLACE FUNCTION runs_check_policies(p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
    is_call boolean := false;
    judged bigint;
    now_revision bigint;
    now_live int;
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        IF line.kind IN ('ToolInvoked', 'ToolRedispatched') THEN
            is_call := true;
        ELSIF line.kind = 'PolicyApplied' THEN
            judged := (convert_from(line.clear, 'UTF8')::json ->> 'revision')::bigint;
        END IF;
    END LOOP;
    IF NOT is_call THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('policies', 60));
    SELECT p.revision, p.live INTO now_revision, now_live FROM runs_policyrevision p ORDER BY p.revision DESC LIMIT 1;
    IF judged IS NOT DISTINCT FROM now_revision OR judged IS NULL AND now_live = 0 THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'the call was judged by the policies of revision %, in force are those of %', coalesce(judged, 0), coalesce(now_revision, 0)
        USING ERRCODE = 'DA060';
END $$;

-- The lock that a change of the policies takes: it waits for the intents under way, a second at most, for they wait behind it.
CREATE OR REPLACE FUNCTION runs_policies_alone() RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('policies', 60));
END $$;

-- TX1: make the intent of a call durable before it leaves. Under a pause, cancel or hold, and where the attempt before may have happened
-- after all, nothing is written and the reply says so. What would break a cap is refused (DA004), and so is
-- what a pool has no room for (DA005), and what was judged by other policies than those in force (DA060). What once went out under a grant goes out again under one only.
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
    PERFORM runs_check_policies(p_lines);
    IF g_slot IS NOT NULL THEN
        PERFORM runs_use_grant(p_run, g_slot, g_hash, invoked.slot, invoked.attempt);
    ELSIF invoked.attempt > 0 AND EXISTS (
        SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = invoked.slot AND e.attempt < invoked.attempt
        AND e.kind = 'ToolInvoked' AND convert_from(e.clear, 'UTF8')::json ->> 'grant' IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'slot % of run % went out under an approval before, and has none now', invoked.slot, p_run USING ERRCODE = 'DA002';
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
