-- A run that goes on as another one: renewed, with an empty journal, or handed off to another agent.

-- End a run and make its heir, in one transaction. Nobody else can know the heir before that ends, so nothing here waits for anybody but
-- the origin's head. Not done, and the reply says so, where people asked for a stop, where a wait, a child or (in a renewal) a message is
-- open, and where what the heir was made of has changed since: which signals are kept, what is left of the budget.
-- What the heir's own journal doesn't tell is the origin's: who started it, tags, trace, priority, when its time is up, whom it is found
-- with. Under a business key the origin ends and the heir lives in one moment, so nobody is let in between them.
CREATE OR REPLACE FUNCTION runs_succeed(
    p_run uuid, p_epoch bigint, p_lease uuid, p_lines ledger_line[],
    p_heir uuid, p_how text, p_agent text, p_version text, p_first uuid, p_turn int, p_handoffs int, p_key text, p_about text,
    p_terms text[], p_left jsonb, p_caps jsonb, p_kept bigint[], p_there bigint[], p_ns int[], p_here bigint[], p_heir_lines ledger_line[]
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    o runs_run;
    reply runs_reply;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold
       OR EXISTS (SELECT 1 FROM runs_wait WHERE run_id = p_run AND resolved_at IS NULL)
       OR EXISTS (SELECT 1 FROM runs_run WHERE parent = p_run AND NOT is_told)
       OR (p_how = 'renewal' AND EXISTS (SELECT 1 FROM runs_message WHERE run_id = p_run AND outcome = ''))
       OR p_kept <> ARRAY(SELECT seq FROM runs_signal WHERE run_id = p_run AND taken_by IS NULL ORDER BY seq)
       OR p_left <> jsonb_strip_nulls(jsonb_build_object(
            'steps', CASE WHEN h.cap_steps IS NOT NULL THEN greatest(0, h.cap_steps - h.steps) END,
            'tokens_in', CASE WHEN h.cap_tokens_in IS NOT NULL THEN greatest(0, h.cap_tokens_in - h.tokens_in) END,
            'tokens_out', CASE WHEN h.cap_tokens_out IS NOT NULL THEN greatest(0, h.cap_tokens_out - h.tokens_out) END,
            'usd_micro', CASE WHEN h.cap_usd_micro IS NOT NULL THEN greatest(0, h.cap_usd_micro - h.usd_micro) END,
            'tool_calls', CASE WHEN h.cap_tool_calls IS NOT NULL THEN greatest(0, h.cap_tool_calls - h.tool_calls) END,
            'model_calls', CASE WHEN h.cap_model_calls IS NOT NULL THEN greatest(0, h.cap_model_calls - h.model_calls) END)) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    reply := runs_leave(p_run, p_epoch, p_lease, 'end', 'completed', ARRAY[]::uuid[], '', p_lines);
    IF NOT reply.is_done THEN
        RETURN reply;
    END IF;
    SELECT * INTO o FROM runs_run WHERE id = p_run;
    -- Its parent hears of the heir's end, and whoever is queued behind a renewed run is queued behind the heir.
    UPDATE runs_run SET
        goes_on_as = p_heir, goes_on_by = p_how, is_told = o.parent IS NOT NULL, is_passed_on = o.is_passed_on OR p_how = 'renewal'
    WHERE id = p_run;
    PERFORM runs_start(p_heir, p_agent, p_version, p_agent || '@' || p_version, o.tags, o.trace_id, 'run:' || p_run, o.creator, p_about,
                       p_terms, p_heir_lines, 0);
    UPDATE runs_run SET
        came_from = p_run, first = p_first, turn = p_turn, handoffs = p_handoffs, business_key = p_key, priority = o.priority,
        parent = o.parent, parent_slot = o.parent_slot, parent_attempt = o.parent_attempt, depth = o.depth, time_up_at = o.time_up_at
    WHERE id = p_heir;
    IF p_caps <> '{}' THEN
        UPDATE ledger_head SET
            cap_steps = (p_caps ->> 'steps')::int, cap_tokens_in = (p_caps ->> 'tokens_in')::bigint,
            cap_tokens_out = (p_caps ->> 'tokens_out')::bigint, cap_usd_micro = (p_caps ->> 'usd_micro')::bigint,
            cap_tool_calls = (p_caps ->> 'tool_calls')::int, cap_model_calls = (p_caps ->> 'model_calls')::int
        WHERE run_id = p_heir;
    END IF;
    INSERT INTO runs_signal (run_id, name, n, seq, sender_id)
    SELECT p_heir, s.name, c.n, c.here, s.sender_id
    FROM unnest(p_there, p_ns, p_here) AS c (there, n, here) JOIN runs_signal s ON s.run_id = p_run AND s.seq = c.there;
    INSERT INTO runs_searchterm (term, run_id)
    SELECT term, p_heir FROM runs_searchterm WHERE run_id = p_run AND term NOT LIKE '…%' ON CONFLICT DO NOTHING;
    RETURN reply;
END $$;
