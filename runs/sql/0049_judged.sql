-- What living workers drive, and, as `drained:` before the version, what none of them begins: a pending run of such a version waits for another
-- worker, and says so. In one answer, for whoever starts a run or shows one asks for it anyway.
CREATE OR REPLACE FUNCTION runs_drivable(p_fresh_seconds float8) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT unnest(CASE WHEN bool_and(s.is_draining) THEN ARRAY[s.graph_id, 'drained:' || s.graph_id] ELSE ARRAY[s.graph_id] END)
        FROM runs_served s JOIN runs_process p ON p.id = s.worker
        WHERE NOT s.is_quarantined AND p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_fresh_seconds)
        GROUP BY s.graph_id);
END $$;
