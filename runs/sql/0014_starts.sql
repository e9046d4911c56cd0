-- A start in few statements. Each statement of the web process is a turn in two queues, the server's and its own interpreter's, and a start
-- used to be some twenty of them.

-- What a start tells whoever asked for it: where the journal stands, when, which code the version was first used with (null: it never
-- was), and the versions that somebody drives.
DO $$ BEGIN
    CREATE TYPE runs_started AS (seq bigint, chain bytea, at timestamptz, fingerprint text, drivable text[]);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- The versions that living workers have, without those that are quarantined in all of them. Living is who gave a sign lately.
CREATE OR REPLACE FUNCTION runs_drivable(p_fresh_seconds float8) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT s.graph_id FROM runs_served s JOIN runs_process p ON p.id = s.worker
        WHERE NOT s.is_quarantined AND p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_fresh_seconds));
END $$;

-- Make a run: its head, whose chain begins at the run's id, its row, its first events, what it is found by, and the message that somebody
-- is to drive it. Nobody else can know the run before the transaction ends, so nothing here waits for anybody.
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
                          created_by, creator, created_at, updated_at, error_code, about)
    VALUES (p_run, p_agent, p_version, p_graph, 'pending', 0, '', 0, told.at, false, false, 0, p_tags, p_trace,
            p_by, p_creator, told.at, told.at, '', p_about);
    h := ledger_append(h, p_lines);
    PERFORM ledger_store(h);
    INSERT INTO runs_searchterm (term, run_id) SELECT unnest(p_terms), p_run ON CONFLICT DO NOTHING;
    INSERT INTO django_q_ormq (key, payload, lock) VALUES ('durableagents', p_run, told.at);  -- as in runs/queue.py
    SELECT v.fingerprint INTO told.fingerprint FROM runs_agentversion v WHERE v.graph_id = p_graph;
    told.seq := h.seq;
    told.chain := h.chain;
    told.drivable := runs_drivable(p_fresh_seconds);
    RETURN told;
END $$;

-- Call for a run that wants driving. One worker is enough: of those that have its version and room, as they said a moment ago, one is drawn by
-- lot, weighted by its room, and called by name. Where there is none, or the run must be driven alone, all are called. Who is called and
-- can't calls all. A call may be lost, so nobody waits for the disk.
CREATE OR REPLACE FUNCTION runs_call(p_channel text, p_run uuid, p_fresh_seconds float8) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify(p_channel, coalesce((
        SELECT p.id::text FROM runs_run r
        JOIN runs_served s ON s.graph_id = r.graph_id AND NOT s.is_quarantined
        JOIN runs_process p ON p.id = s.worker AND p.kind = 'worker' AND p.ended_at IS NULL
        WHERE r.id = p_run AND NOT r.is_solo AND p.slots_used < p.slots_total
          AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_fresh_seconds)
        ORDER BY -ln(1 - random()) / (p.slots_total - p.slots_used) LIMIT 1), ''));
END $$;

-- Whether this request is the one that works under its Idempotency-Key, and the answer that an earlier one kept.
DO $$ BEGIN
    CREATE TYPE runs_kept_answer AS (is_ours boolean, body_hash bytea, status smallint, body text);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- Try for the key's lock, which ends with the transaction, and only then look for the answer: a statement of its own, and so with a view
-- of the tables of its own, sees what whoever had the lock committed before it let go.
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
