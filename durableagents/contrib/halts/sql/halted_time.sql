-- Deadlines do not run while a halt of the installation, a tag, the agent or its version is in force. No row is changed when the halt begins: a
-- wait whose stored deadline comes is deferred by the time for which its run was halted, so the cost depends on how many waits fall due, not on
-- how many exist. While the halt lasts, the wait is deferred a little further (a tenth of that time, at most five minutes), so that the same rows
-- aren't checked again and again; `runs_pull_back` corrects this after the halt is lifted. `runs_stood` records which time is already included.

-- Return the versions that a run had, and when. If a server's clock was set back between two events, the first version lasted no time.
CREATE OR REPLACE FUNCTION runs_was_of(p_run uuid) RETURNS TABLE (version text, during tstzrange)
LANGUAGE sql STABLE AS $$
    WITH moves AS (
        SELECT e.seq, max(e.at) OVER (ORDER BY e.seq) AS at, convert_from(e.clear, 'UTF8')::json ->> 'of' AS gone
        FROM ledger_event e WHERE e.run_id = p_run AND e.kind = 'RunMigrated')
    SELECT m.gone, tstzrange(lag(m.at) OVER (ORDER BY m.seq), m.at) FROM moves m
    UNION ALL SELECT r.graph_id, tstzrange((SELECT max(m.at) FROM moves m), NULL) FROM runs_run r WHERE r.id = p_run;
$$;

-- Return when a run was halted between two moments. Overlapping halts count once, and a halt of a version counts only while the run had it.
CREATE OR REPLACE FUNCTION runs_stood_during(p_run uuid, p_from timestamptz, p_to timestamptz) RETURNS SETOF tstzrange
LANGUAGE sql STABLE AS $$
    SELECT unnest(range_agg(of.during * tstzrange(greatest(h.at, p_from), least(coalesce(f.at, p_to), p_to))))
    FROM runs_run r, runs_halt h LEFT JOIN runs_halt f ON f.halt = h.halt AND f.n = h.n + 1
    CROSS JOIN LATERAL (
        SELECT tstzrange(NULL, NULL) AS during
        WHERE (h.scope <> 'version' OR r.generation = 0) AND runs_is_of_scope(h.scope, h.key, r.id, r.agent, r.graph_id, NULL)
        UNION ALL SELECT w.during FROM runs_was_of(r.id) w WHERE h.scope = 'version' AND r.generation > 0 AND w.version = h.key
    ) AS of
    WHERE r.id = p_run AND p_from < p_to AND h.kind <> 'starts' AND h.stage <> 'lifted' AND h.scope NOT IN ('tool', 'provider')
      AND h.at < p_to AND (f.at IS NULL OR f.at > p_from)
      AND NOT runs_is_let_through(h.halt, h.share, h.agents, h.tags, r.id, r.agent);
$$;

-- Return how long a run was halted between two moments.
CREATE OR REPLACE FUNCTION runs_stood_still(p_run uuid, p_from timestamptz, p_to timestamptz) RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(upper(s) - lower(s)), interval '0') FROM runs_stood_during(p_run, p_from, p_to) AS s;
$$;

-- Return by how much a due wait is deferred because its run was halted, and record that this time is included; null if the run was not halted.
-- `p_since` is when its deadline began to run. The run is locked.
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

-- Count halted time of a wait only from `p_at` on, because it got a new deadline.
CREATE OR REPLACE FUNCTION runs_count_from(p_id uuid, p_run uuid, p_at timestamptz) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO runs_stood (id, run_id, at, until) SELECT p_id, p_run, p_at, p_at WHERE EXISTS (SELECT 1 FROM runs_halt)
    ON CONFLICT (id) DO UPDATE SET at = excluded.at, until = excluded.until;
$$;

-- Return the time up to which halted time is already included in the deadline of a wait or run, or null.
CREATE OR REPLACE FUNCTION runs_counted_until(p_id uuid) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT s.until FROM runs_stood s WHERE s.id = p_id;
$$;

-- Undo the part by which deadlines were deferred in advance, for runs that are no longer halted, in batches. Skips heads that are locked.
-- Returns the waits.
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
