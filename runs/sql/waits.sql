-- Due waits and signals.

CREATE TYPE runs_fired AS (wait_id uuid, run_id uuid, seq bigint, is_awake boolean, problem text);

-- Return the new deadline of a wait whose stored deadline has passed, or null if it is due. Head, run and wait must be locked.
CREATE OR REPLACE FUNCTION runs_put_off(p_wait uuid, p_run uuid, p_since timestamptz, p_deadline timestamptz) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    later interval := runs_count_still(p_wait, p_run, p_since);
BEGIN
    IF later IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE runs_wait SET deadline = p_deadline + later WHERE id = p_wait;
    RETURN CASE WHEN p_deadline + later > clock_timestamp() THEN p_deadline + later END;
END $$;

-- Settle waits whose deadline has passed, and make their runs ready. If the run of a wait was halted, the wait is deferred and returned without
-- a number and a problem. Heads are taken only if free, and one damaged run does not block the others.
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
    IF runs_is_halted_whole(NULL) THEN
        RETURN NEXT (NULL, NULL, NULL, NULL, NULL)::runs_fired;  -- nothing falls due
        RETURN;
    END IF;
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
                IF runs_put_off(w.id, w.run_id, w.opened_at, w.deadline) IS NOT NULL THEN
                    RETURN NEXT (w.id, w.run_id, NULL, false, NULL)::runs_fired;
                    CONTINUE;
                END IF;
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

-- Give the oldest unclaimed signal of a name to the oldest open wait for that name, and return whether there were both. Both the sender and the
-- waiting step call it. The head's lock is held already, or taken here.
CREATE OR REPLACE FUNCTION runs_hand_over(p_run uuid, p_name text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    w runs_wait;
    s runs_signal;
    line bytea;
BEGIN
    h := ledger_lock(p_run, NULL, NULL);
    SELECT * INTO w FROM runs_wait
    WHERE run_id = p_run AND kind = 'signal' AND resolved_at IS NULL AND detail ->> 'name' = p_name ORDER BY opened_at, slot LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT * INTO s FROM runs_signal WHERE run_id = p_run AND name = p_name AND taken_by IS NULL ORDER BY n LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE runs_wait SET resolution = 'received', resolved_by = 'system:engine', resolved_at = clock_timestamp() WHERE id = w.id;
    UPDATE runs_signal SET taken_by = w.slot WHERE id = s.id;
    -- the same bytes that ledger/events.py gives for SignalTaken
    line := convert_to(format('{"attempt":%s,"kind":"SignalTaken","n":%s,"name":%s,"slot":%s}',
                              w.attempt, s.n, to_json(p_name), to_json(w.slot)), 'UTF8');
    h := ledger_append(h, ARRAY[ROW('SignalTaken', w.slot, w.attempt, 'result', line, NULL,
                                 sha256(line || decode(repeat('00', 32), 'hex')))::ledger_line]);
    PERFORM ledger_store(h);
    RETURN true;
END $$;
