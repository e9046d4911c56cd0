-- The hot path: one call of one function per commit. Lock the head, check the fence, then write or RAISE.
-- SQLSTATEs: DA001 stale lease, DA002 approval missing, consumed or not for these bytes, DA003 approval expired, DA404 no such run.
-- Lock order everywhere: Head, Run, Wait, Approval, the rest.

-- What every step function answers: where the journal stands, what time the database has, what people asked for meanwhile,
-- and whether the thing asked for was done.
DO $$ BEGIN
    CREATE TYPE runs_reply AS (seq bigint, at timestamptz, is_pause_requested boolean, is_cancel_requested boolean, is_on_hold boolean, is_done boolean);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- A wait that opens with a step.
DO $$ BEGIN
    CREATE TYPE runs_opening AS (id uuid, slot text, attempt int, kind text, n int, deadline timestamptz, detail jsonb, token bytea);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- What a step adds to the run's counters.
DO $$ BEGIN
    CREATE TYPE runs_usage AS (steps int, tokens_in bigint, tokens_out bigint, tool_calls int, model_calls int);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- A checkpoint at the consistent cut between two visits.
DO $$ BEGIN
    CREATE TYPE runs_cut AS (generation int, node text, visit int, fingerprint text, state bytea, checksum bytea);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

CREATE OR REPLACE FUNCTION runs_reply_of(h ledger_head, p_done boolean) RETURNS runs_reply
LANGUAGE sql AS $$
    SELECT (h.seq, clock_timestamp(), h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, p_done)::runs_reply;
$$;

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

-- Let go of a run: `park` (all waits still open), `settle` (a cancelled run waits for a person to settle a call first), `pause`,
-- `release` (drain) or `end`. What would be wrong by now is not done and
-- the reply says so: parking on a wait that was resolved meanwhile, completing a run that somebody cancelled.
CREATE OR REPLACE FUNCTION runs_leave(
    p_run uuid, p_epoch bigint, p_lease uuid, p_how text, p_state text, p_waits uuid[], p_error text, p_lines ledger_line[]
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF (p_how = 'park' AND (h.is_pause_requested OR h.is_cancel_requested))
       OR (p_how IN ('park', 'settle') AND EXISTS (SELECT 1 FROM runs_wait WHERE run_id = p_run AND id = ANY (p_waits) AND resolved_at IS NOT NULL))
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
        is_woken = (p_how = 'pause'),
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

-- Give a locked run to a worker: a new epoch and a new lease fence off whoever had it before.
CREATE OR REPLACE FUNCTION runs_take(h ledger_head, p_state text, p_worker uuid, p_host text, p_pid int, p_cause text) RETURNS ledger_head
LANGUAGE plpgsql AS $$
DECLARE
    line bytea;
BEGIN
    h.epoch := h.epoch + 1;
    h.lease := gen_random_uuid();
    -- the same bytes that ledger/events.py gives for RunClaimed
    line := convert_to(format('{"attempt":0,"cause":"%s","epoch":%s,"host":%s,"kind":"RunClaimed","pid":%s,"slot":null,"worker":"%s"}',
                              p_cause, h.epoch, to_json(p_host), p_pid, p_worker), 'UTF8');
    h := ledger_append(h, ARRAY[ROW('RunClaimed', NULL, 0, NULL, line, NULL, sha256(line || decode(repeat('00', 32), 'hex')))::ledger_line]);
    h.claimed_seq := h.seq;
    PERFORM ledger_store(h);
    UPDATE runs_run SET state = CASE p_state WHEN 'pending' THEN 'running' ELSE p_state END, owner = p_worker, ready_at = NULL,
        started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
    WHERE id = h.run_id;
    RETURN h;
END $$;

DO $$ BEGIN
    CREATE TYPE runs_claimed AS (
        run_id uuid, graph_id text, generation int, trace_id text, created_by text, epoch bigint, lease uuid, seq bigint, at timestamptz,
        is_pause_requested boolean, is_cancel_requested boolean, is_on_hold boolean, is_solo boolean
    );
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- Take the best ready runs of the versions that this worker has. Candidates are read without a lock, then each head is taken if
-- it is free, and the run is looked at again: two workers never wait for one another and never take the same run.
-- A run that workers keep dying on is given to one that asks for such a run, and will drive nothing beside it.
CREATE OR REPLACE FUNCTION runs_claim(p_worker uuid, p_host text, p_pid int, p_graphs text[], p_limit int, p_solo boolean) RETURNS SETOF runs_claimed
LANGUAGE plpgsql AS $$
DECLARE
    candidate uuid;
    h ledger_head;
    r runs_run;
    cause text;
    taken int := 0;
BEGIN
    FOR candidate IN
        SELECT q.id FROM runs_run q
        WHERE q.ready_at <= clock_timestamp() AND q.graph_id = ANY (p_graphs) AND q.is_solo = p_solo
        ORDER BY q.priority DESC, q.ready_at
        LIMIT p_limit * 2 + 8
    LOOP
        EXIT WHEN taken >= p_limit;
        SELECT * INTO h FROM ledger_head WHERE run_id = candidate FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT * INTO r FROM runs_run WHERE id = candidate FOR UPDATE;
        CONTINUE WHEN r.is_solo <> p_solo OR r.ready_at IS NULL OR r.ready_at > clock_timestamp() OR r.state NOT IN ('pending', 'running', 'compensating');
        SELECT CASE e.kind WHEN 'RunCreated' THEN 'start' WHEN 'WorkerLost' THEN 'recovered' WHEN 'RunReleased' THEN 'released'
                           WHEN 'RunResumed' THEN 'resumed' WHEN 'RunRetried' THEN 'retried' ELSE 'resolved' END
        INTO cause FROM ledger_event e WHERE e.run_id = candidate AND e.seq = h.seq;
        h := runs_take(h, r.state, p_worker, p_host, p_pid, cause);
        taken := taken + 1;
        RETURN NEXT (h.run_id, r.graph_id, r.generation, r.trace_id, r.created_by, h.epoch, h.lease, h.seq, clock_timestamp(),
                     h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, r.is_solo)::runs_claimed;
    END LOOP;
END $$;

-- After an unknown commit (CP5), or an unknown claim, a worker takes a run of its own again. The row lock outlasts the old backend
-- and the new epoch fences off whatever it may still do, so what is read from here on is the truth.
CREATE OR REPLACE FUNCTION runs_reclaim(p_run uuid, p_worker uuid, p_host text, p_pid int) RETURNS SETOF runs_claimed
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    r runs_run;
BEGIN
    h := ledger_lock(p_run, NULL, NULL);
    SELECT * INTO r FROM runs_run WHERE id = p_run FOR UPDATE;
    IF r.owner IS DISTINCT FROM p_worker THEN
        RAISE EXCEPTION 'stale lease: run % is no longer driven by worker %', p_run, p_worker USING ERRCODE = 'DA001';
    END IF;
    h := runs_take(h, r.state, p_worker, p_host, p_pid, 'reconnected');
    RETURN NEXT (h.run_id, r.graph_id, r.generation, r.trace_id, r.created_by, h.epoch, h.lease, h.seq, clock_timestamp(),
                 h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, r.is_solo)::runs_claimed;
END $$;
