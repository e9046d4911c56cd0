-- A run that another one starts as a step: made in the transaction of the step's intent, whole or not at all.

-- Nobody else can know the child before that transaction ends, so nothing here waits for anybody but the parent's head, which the step
-- has locked. Who started the parent has started the child: what they may not decide there they may not decide here.
CREATE OR REPLACE FUNCTION runs_start_child(
    p_parent uuid, p_slot text, p_attempt int, p_depth int, p_run uuid, p_agent text, p_version text, p_graph text, p_tags jsonb, p_trace text,
    p_about text, p_terms text[], p_lines ledger_line[], p_caps jsonb, p_seconds bigint
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    p runs_run;
BEGIN
    SELECT * INTO p FROM runs_run WHERE id = p_parent;
    PERFORM runs_start(p_run, p_agent, p_version, p_graph, p_tags, p_trace, 'run:' || p_parent, p.creator, p_about, p_terms, p_lines, 0);
    UPDATE runs_run SET
        parent = p_parent, parent_slot = p_slot, parent_attempt = p_attempt, depth = p_depth, priority = p.priority,
        time_up_at = coalesce(created_at + make_interval(secs => p_seconds), time_up_at)
    WHERE id = p_run;
    IF p_caps <> '{}' THEN
        UPDATE ledger_head SET
            cap_steps = (p_caps ->> 'steps')::int, cap_tokens_in = (p_caps ->> 'tokens_in')::bigint,
            cap_tokens_out = (p_caps ->> 'tokens_out')::bigint, cap_usd_micro = (p_caps ->> 'usd_micro')::bigint,
            cap_tool_calls = (p_caps ->> 'tool_calls')::int, cap_model_calls = (p_caps ->> 'model_calls')::int
        WHERE run_id = p_run;
    END IF;
END $$;
