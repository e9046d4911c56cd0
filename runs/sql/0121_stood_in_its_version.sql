-- For how long a run stood still, where it was moved from one version to another: a version's halt counts for as long as it was of that version,
-- not by what it is now. Else as in 0072_standing_still.sql.

-- Which versions a run was of, and when. The clock of a server may be set back between two events: then it was of the first for no time.
CREATE OR REPLACE FUNCTION runs_was_of(p_run uuid) RETURNS TABLE (version text, during tstzrange)
LANGUAGE sql STABLE AS $$
    WITH moves AS (
        SELECT e.seq, max(e.at) OVER (ORDER BY e.seq) AS at, convert_from(e.clear, 'UTF8')::json ->> 'of' AS gone
        FROM ledger_event e WHERE e.run_id = p_run AND e.kind = 'RunMigrated')
    SELECT m.gone, tstzrange(lag(m.at) OVER (ORDER BY m.seq), m.at) FROM moves m
    UNION ALL SELECT r.graph_id, tstzrange((SELECT max(m.at) FROM moves m), NULL) FROM runs_run r WHERE r.id = p_run;
$$;

-- When a run stood still between two moments, one stretch after the other: halts that overlap count once.
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

-- For how long.
CREATE OR REPLACE FUNCTION runs_stood_still(p_run uuid, p_from timestamptz, p_to timestamptz) RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(upper(s) - lower(s)), interval '0') FROM runs_stood_during(p_run, p_from, p_to) AS s;
$$;
