-- Which version a start gets is data: versions that are closed to new starts, and one ramp of an agent at a time.

-- What decides about a start of an agent, as it stands until the start's transaction ends: whoever closes a version or moves a ramp takes the
-- same lock alone, so after that act nothing begins by what was before it. `is_served`: a living worker begins runs of the ramp's newer version.
-- A statement of its own after the lock sees what whoever had it committed.
CREATE OR REPLACE FUNCTION runs_release(p_agent text, p_fresh_seconds float8) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    closed jsonb;
    r runs_ramp;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('release ' || p_agent, 38));
    SELECT coalesce(jsonb_agg(g.version), '[]') INTO closed FROM runs_versiongate g WHERE g.agent = p_agent AND g.is_closed;
    SELECT * INTO r FROM runs_ramp x WHERE x.agent = p_agent AND x.ended_at IS NULL;
    IF r.id IS NULL THEN
        RETURN jsonb_build_object('closed', closed);
    END IF;
    RETURN jsonb_build_object('closed', closed, 'ramp', to_jsonb(r), 'is_served', EXISTS (
        SELECT 1 FROM runs_served s JOIN runs_process p ON p.id = s.worker
        WHERE s.graph_id = r.agent || '@' || r.to_version AND NOT s.is_quarantined AND NOT s.is_draining
          AND p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_fresh_seconds)));
END $$;

-- The lock that an act about an agent's releases takes: it waits for the starts under way, for a second at most, for they wait behind it.
CREATE OR REPLACE FUNCTION runs_release_alone(p_agent text) RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('release ' || p_agent, 38));
END $$;
