-- Deadlines stand still under a halt of their run (of the installation, a tag, its agent, its version). No row is touched while it lasts: a wait whose
-- stored deadline comes is looked at then, and put off by the time in which its run stood still. So a halt costs what falls due, not what waits.
-- While the run still stands, some more is put off by way of precaution (a tenth of the time that it has stood, five minutes at most), or the same
-- would be looked at again and again; `runs_pull_back` takes that back after a lift. `runs_stood` says from when to when it is counted already.

-- For how long a run stood still between two moments: halts that overlap count once.
CREATE OR REPLACE FUNCTION runs_stood_still(p_run uuid, p_from timestamptz, p_to timestamptz) RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(upper(stretch) - lower(stretch)), interval '0') FROM (
        SELECT unnest(range_agg(tstzrange(greatest(h.at, p_from), least(coalesce(f.at, p_to), p_to)))) AS stretch
        FROM runs_run r, runs_halt h LEFT JOIN runs_halt f ON f.halt = h.halt AND f.n = h.n + 1
        WHERE r.id = p_run AND p_from < p_to AND h.kind <> 'starts' AND h.stage <> 'lifted' AND h.scope NOT IN ('tool', 'provider')
          AND h.at < p_to AND (f.at IS NULL OR f.at > p_from)
          AND runs_is_of_scope(h.scope, h.key, r.id, r.agent, r.graph_id, NULL)
          AND NOT runs_is_let_through(h.halt, h.share, h.agents, h.tags, r.id, r.agent)) AS stretches;
$$;

-- How much later something is due whose time has come, and put down that this is counted: null where its run didn't stand still. `p_since`:
-- from when on its deadline ran. Its run is locked.
CREATE OR REPLACE FUNCTION runs_count_still(p_id uuid, p_run uuid, p_since timestamptz) RETURNS interval
LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := clock_timestamp();
    counted timestamptz;
    stood interval;
    ahead interval := interval '0';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM runs_halt) THEN
        RETURN NULL;
    END IF;
    SELECT s.until INTO counted FROM runs_stood s WHERE s.id = p_id;
    stood := runs_stood_still(p_run, greatest(p_since, counted), t);
    IF runs_halted_by(p_run, NULL) IS NOT NULL THEN
        ahead := least(greatest(stood / 10, interval '5 seconds'), interval '5 minutes');
    ELSIF stood = interval '0' THEN
        RETURN NULL;
    END IF;
    INSERT INTO runs_stood AS s (id, run_id, at, until) VALUES (p_id, p_run, t, t + ahead)
    ON CONFLICT (id) DO UPDATE SET at = excluded.at, until = excluded.until;
    RETURN stood + ahead;
END $$;

-- The new deadline of a wait whose stored one has come, or null: it is due. Head, run and wait are locked.
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

-- Take back what was put off by way of precaution, of runs that stand still no more: some at a time, heads only where they are free. Answers the waits.
CREATE OR REPLACE FUNCTION runs_pull_back(p_limit int) RETURNS SETOF uuid
LANGUAGE plpgsql AS $$
DECLARE
    s runs_stood;
    t timestamptz;
    ahead interval;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM runs_halt h WHERE h.n > 0 AND h.at > clock_timestamp() - interval '10 minutes') THEN
        RETURN;
    END IF;
    FOR s IN SELECT x.* FROM runs_stood x WHERE x.until > statement_timestamp() AND runs_halted_by(x.run_id, NULL) IS NULL LIMIT p_limit LOOP
        PERFORM 1 FROM ledger_head WHERE run_id = s.run_id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM 1 FROM runs_run WHERE id = s.run_id FOR UPDATE;
        SELECT * INTO s FROM runs_stood WHERE id = s.id FOR UPDATE;
        t := clock_timestamp();
        CONTINUE WHEN s.id IS NULL OR s.until <= t OR runs_halted_by(s.run_id, NULL) IS NOT NULL;
        ahead := (s.until - s.at) - runs_stood_still(s.run_id, s.at, t);
        UPDATE runs_stood SET until = t WHERE id = s.id;
        IF s.id = s.run_id THEN
            UPDATE runs_run SET time_up_at = time_up_at - ahead WHERE id = s.run_id;
        ELSE
            UPDATE runs_wait SET deadline = deadline - ahead WHERE id = s.id AND resolved_at IS NULL;
            RETURN NEXT s.id;
        END IF;
    END LOOP;
END $$;

-- Due waits as in 0007_claims.sql, but for those whose run stood still: they are put off, each answered without a number and a problem.
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
    IF EXISTS (SELECT 1 FROM runs_haltnow n WHERE n.scope = 'all' AND NOT n.is_staged) THEN
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
