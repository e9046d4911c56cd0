-- Claims and due waits, where one damaged run must never keep another waiting: each candidate has a subtransaction of its own, and what
-- the database refuses about one of them is answered by name instead of ending the statement for all.

-- A claim, or a run that can't be claimed and why.
DO $$ BEGIN
    CREATE TYPE runs_candidate AS (
        run_id uuid, graph_id text, generation int, trace_id text, created_by text, epoch bigint, lease uuid, seq bigint, at timestamptz,
        is_pause_requested boolean, is_cancel_requested boolean, is_on_hold boolean, is_solo boolean, problem text
    );
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- A wait that its time has passed, the journal's place of the event that says so, and whether its run wants driving; or why it could
-- not be acted on.
DO $$ BEGIN
    CREATE TYPE runs_fired AS (wait_id uuid, run_id uuid, seq bigint, is_awake boolean, problem text);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- Whether an error is the server's trouble or the caller's and not one row's: it is away, full, read-only or told to stop, or the caller
-- has no right to what it does. Such an error is raised on, for it says nothing about the run that it came upon first.
CREATE OR REPLACE FUNCTION runs_is_everybodys(p_state text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT left(p_state, 2) IN ('08', '0A', '25', '42', '53', '57');
$$;

DROP FUNCTION runs_claim(uuid, text, int, text[], int, boolean);

-- Take the best ready runs of the versions that this worker has. Candidates are read without a lock, one short look into the index for
-- each version, so that what is ready of versions that nobody has costs nothing. Then each head is taken if it is free, and the run is
-- looked at again: two workers never wait for one another and never take the same run.
-- A run that workers keep dying on is given to one that asks for such a run, and will drive nothing beside it.
CREATE OR REPLACE FUNCTION runs_claim(p_worker uuid, p_host text, p_pid int, p_graphs text[], p_limit int, p_solo boolean) RETURNS SETOF runs_candidate
LANGUAGE plpgsql AS $$
DECLARE
    candidate uuid;
    h ledger_head;
    r runs_run;
    cause text;
    problem text;
    taken int := 0;
BEGIN
    FOR candidate IN
        SELECT c.id FROM unnest(p_graphs) AS g(graph)
        CROSS JOIN LATERAL (
            SELECT q.id, q.priority, q.ready_at FROM runs_run q
            WHERE q.graph_id = g.graph AND q.is_solo = p_solo AND q.ready_at <= statement_timestamp()
            ORDER BY q.priority DESC, q.ready_at LIMIT p_limit * 2 + 8
        ) c
        ORDER BY c.priority DESC, c.ready_at LIMIT p_limit * 2 + 8
    LOOP
        EXIT WHEN taken >= p_limit;
        problem := NULL;
        BEGIN
            SELECT * INTO h FROM ledger_head WHERE run_id = candidate FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                CONTINUE WHEN EXISTS (SELECT 1 FROM ledger_head WHERE run_id = candidate);
                problem := 'its head is missing';
            ELSE
                SELECT * INTO r FROM runs_run WHERE id = candidate FOR UPDATE;
                CONTINUE WHEN r.is_solo <> p_solo OR r.ready_at IS NULL OR r.ready_at > clock_timestamp() OR r.state NOT IN ('pending', 'running', 'compensating');
                SELECT CASE e.kind WHEN 'RunCreated' THEN 'start' WHEN 'WorkerLost' THEN 'recovered' WHEN 'RunReleased' THEN 'released'
                                   WHEN 'RunResumed' THEN 'resumed' WHEN 'RunRetried' THEN 'retried' ELSE 'resolved' END
                INTO cause FROM ledger_event e WHERE e.run_id = candidate AND e.seq = h.seq;
                h := runs_take(h, r.state, p_worker, p_host, p_pid, coalesce(cause, 'resolved'));
            END IF;
        EXCEPTION WHEN OTHERS THEN
            IF runs_is_everybodys(SQLSTATE) THEN
                RAISE;
            END IF;
            CONTINUE WHEN left(SQLSTATE, 2) IN ('40', '55');  -- somebody has the row: it is looked at again
            problem := format('%s (%s)', SQLERRM, SQLSTATE);
        END;
        IF problem IS NULL THEN
            taken := taken + 1;
            RETURN NEXT (h.run_id, r.graph_id, r.generation, r.trace_id, r.created_by, h.epoch, h.lease, h.seq, clock_timestamp(),
                         h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, r.is_solo, NULL)::runs_candidate;
        ELSE
            RETURN NEXT (candidate, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp(), NULL, NULL, NULL, NULL, problem)::runs_candidate;
        END IF;
    END LOOP;
END $$;

-- Settle waits whose time has passed: those of `p_kinds`, each with the resolution at its place in `p_resolutions`. One caller at a time
-- works off a batch; for another it answers one row of nulls. Nobody is waited for: a run whose head somebody holds is left for the next
-- batch. Writes what the sweeper's services would write, byte for byte, and rings in the same transaction for each run that woke.
-- Many runs are locked in one transaction, as by a claim: heads are taken only where they are free, so it can't be part of a deadlock.
CREATE OR REPLACE FUNCTION runs_fire_due(p_lock bigint, p_kinds text[], p_resolutions text[], p_passed_over uuid[], p_limit int) RETURNS SETOF runs_fired
LANGUAGE plpgsql AS $$
DECLARE
    due record;
    h ledger_head;
    r runs_run;
    w runs_wait;
    what text;
    line bytea;
    is_awake boolean;
    problem text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(p_lock) THEN
        RETURN NEXT (NULL, NULL, NULL, NULL, NULL)::runs_fired;
        RETURN;
    END IF;
    INSERT INTO runs_sweep (id, at) VALUES (1, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET at = excluded.at WHERE runs_sweep.at < excluded.at - interval '0.5 seconds';
    FOR due IN
        SELECT d.id, d.run_id FROM runs_wait d
        WHERE d.resolved_at IS NULL AND NOT d.is_overdue AND d.deadline <= statement_timestamp()
          AND d.kind = ANY (p_kinds) AND NOT (d.id = ANY (p_passed_over))
        ORDER BY d.deadline LIMIT p_limit
    LOOP
        problem := NULL;
        is_awake := false;
        BEGIN
            SELECT * INTO h FROM ledger_head WHERE run_id = due.run_id FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                CONTINUE WHEN EXISTS (SELECT 1 FROM ledger_head WHERE run_id = due.run_id);
                problem := 'its head is missing';
            ELSE
                SELECT * INTO r FROM runs_run WHERE id = due.run_id FOR UPDATE;
                SELECT * INTO w FROM runs_wait WHERE id = due.id FOR UPDATE;
                CONTINUE WHEN w.resolved_at IS NOT NULL OR w.deadline > clock_timestamp();
                IF r.state IN ('completed', 'failed', 'cancelled') THEN
                    problem := format('it has ended as %s and still waits', r.state);
                ELSE
                    what := p_resolutions[array_position(p_kinds, w.kind)];
                    UPDATE runs_wait SET resolution = what, resolved_by = 'system:sweeper', resolved_at = clock_timestamp() WHERE id = w.id;
                    is_awake := r.owner IS NULL AND r.state IN ('waiting_tool', 'waiting_human', 'waiting_event') AND (h.is_cancel_requested
                        OR NOT EXISTS (SELECT 1 FROM runs_wait o WHERE o.run_id = r.id AND o.kind = 'operator' AND o.resolved_at IS NULL));
                    IF is_awake THEN
                        UPDATE runs_run SET state = 'running', ready_at = clock_timestamp(), updated_at = clock_timestamp() WHERE id = r.id;
                        INSERT INTO django_q_ormq (key, payload, lock) VALUES ('durableagents', r.id::text, clock_timestamp());
                    ELSIF r.owner IS NULL AND r.state = 'paused' THEN
                        UPDATE runs_run SET is_woken = true, updated_at = clock_timestamp() WHERE id = r.id;
                    END IF;
                    -- the same bytes that ledger/events.py gives for WaitResolved
                    line := convert_to(format('{"attempt":%s,"by":"system:sweeper","kind":"WaitResolved","n":%s,"resolution":%s,"slot":%s,"wait":%s}',
                                              w.attempt, w.n, to_json(what), to_json(w.slot), to_json(w.kind)), 'UTF8');
                    h := ledger_append(h, ARRAY[ROW('WaitResolved', w.slot, w.attempt, format('wait_resolved.%s.%s', w.kind, w.n), line, NULL,
                                                    sha256(line || decode(repeat('00', 32), 'hex')))::ledger_line]);
                    PERFORM ledger_store(h);
                END IF;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            IF runs_is_everybodys(SQLSTATE) THEN
                RAISE;
            END IF;
            CONTINUE WHEN left(SQLSTATE, 2) IN ('40', '55');
            problem := format('%s (%s)', SQLERRM, SQLSTATE);
        END;
        IF problem IS NULL THEN
            RETURN NEXT (due.id, due.run_id, h.seq, is_awake, NULL)::runs_fired;
        ELSE
            RETURN NEXT (due.id, due.run_id, NULL, false, problem)::runs_fired;
        END IF;
    END LOOP;
END $$;
