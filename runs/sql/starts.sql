-- Starts, child runs and continuations. Each creates a run in one statement, within the transaction of its caller.

CREATE TYPE runs_started AS (seq bigint, chain bytea, at timestamptz, fingerprint text, drivable text[]);
CREATE TYPE runs_kept_answer AS (is_ours boolean, body_hash bytea, status smallint, body text);

-- Create a run: its head, whose chain begins at the run's id, its row, its first events, its search terms and the wake-up. No other session can
-- know the run before the transaction ends, so nothing here waits.
CREATE OR REPLACE FUNCTION runs_start(
    p_run uuid, p_agent text, p_version text, p_graph text, p_tags jsonb, p_trace text, p_by text, p_creator bigint, p_about text,
    p_terms text[], p_lines ledger_line[], p_fresh_seconds float8
) RETURNS runs_started
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    told runs_started;
BEGIN
    told.at := clock_timestamp();
    INSERT INTO ledger_head (run_id, epoch, seq, claimed_seq, deaths, chain, is_pause_requested, is_cancel_requested, is_on_hold,
                             steps, tokens_in, tokens_out, usd_micro, tool_calls, model_calls)
    VALUES (p_run, 0, 0, 0, 0, sha256(uuid_send(p_run)), false, false, false, 0, 0, 0, 0, 0, 0)
    RETURNING * INTO h;
    INSERT INTO runs_run (id, agent, version, graph_id, state, generation, node, visit, ready_at, is_woken, is_solo, priority, tags, trace_id,
                          created_by, creator, created_at, updated_at, error_code, about, protocol)
    VALUES (p_run, p_agent, p_version, p_graph, 'pending', 0, '', 0, told.at, false, false, 0, p_tags, p_trace,
            p_by, p_creator, told.at, told.at, '', p_about,
            coalesce((convert_from((p_lines[1]).clear, 'UTF8')::jsonb ->> 'protocol')::smallint, 1));
    h := ledger_append(h, p_lines);
    PERFORM ledger_store(h);
    PERFORM runs_index_terms(p_run, p_terms);
    INSERT INTO django_q_ormq (key, payload, lock) VALUES ('durableagents', p_run, told.at);  -- as in runs/queue.py
    SELECT v.fingerprint INTO told.fingerprint FROM runs_agentversion v WHERE v.graph_id = p_graph;
    told.seq := h.seq;
    told.chain := h.chain;
    told.drivable := runs_drivable(p_fresh_seconds);
    RETURN told;
END $$;

-- Take the key's lock, which is held until the transaction ends, and only then look for the answer. That is a separate statement, so it sees the
-- commit of the lock's previous holder.
CREATE OR REPLACE FUNCTION runs_answer_to(p_lock bigint, p_principal text, p_key text) RETURNS runs_kept_answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    told runs_kept_answer;
BEGIN
    told.is_ours := pg_try_advisory_xact_lock(p_lock);
    SELECT r.body_hash, r.status, r.body #>> '{}' INTO told.body_hash, told.status, told.body
    FROM runs_idempotencyrecord r WHERE r.principal = p_principal AND r.key = p_key;
    RETURN told;
END $$;

-- Create a child run in the transaction of the parent's intent, so nothing here waits except for the parent's head, which the step has locked.
-- The person who started the parent counts as the starter of the child, and may not decide in either.
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

-- End a run and create its continuation in one transaction. Only the lock of the old run's head is waited for. Nothing is done, and the reply
-- says so, if a stop was requested, if a wait, a child or (in a renewal) a message is open, or if the data of the continuation have changed:
-- which signals are kept, and the remaining budget. The continuation inherits the old run's starter, tags, trace, priority, time limit and
-- search terms. Under a business key, the old run ends and the continuation begins at the same time, so no other run gets in between.
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
    -- Its parent is told of the continuation's end, and runs queued behind a renewed run are queued behind its continuation.
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
    PERFORM runs_pass_terms_on(p_run, p_heir);
    RETURN reply;
END $$;

-- Lock the data that decide about a start of an agent until its transaction ends, and return the halts that cover it (runs_start_halts). Actions
-- that change these data take the agent's lock exclusively.
CREATE OR REPLACE FUNCTION runs_lock_start(p_agent text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('release ' || p_agent, 38));
    RETURN runs_start_halts(p_agent);
END $$;

-- Take the agent's lock for an action that changes how it starts. It waits at most a second for starts in progress, because later ones queue
-- behind it.
CREATE OR REPLACE FUNCTION runs_release_alone(p_agent text) RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('release ' || p_agent, 38));
END $$;
