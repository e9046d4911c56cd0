-- What decides about a start, as in 0038_releases.sql, but for halts: a version in quarantine is closed to new starts; and which halts a run of the agent
-- comes under, so that whoever starts one is told at once, or refused. Acts about starts take the agent's lock alone, too.
CREATE OR REPLACE FUNCTION runs_release(p_agent text, p_fresh_seconds float8) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    closed jsonb;
    r runs_ramp;
    halted jsonb := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('release ' || p_agent, 38));
    SELECT coalesce(jsonb_agg(g.version), '[]') INTO closed FROM runs_versiongate g WHERE g.agent = p_agent AND g.is_closed;
    IF EXISTS (SELECT 1 FROM runs_haltnow) THEN
        SELECT closed || coalesce(jsonb_agg(split_part(n.key, '@', 2)), '[]') INTO closed FROM runs_haltnow n
        WHERE n.kind = 'quarantine' AND n.scope = 'version' AND NOT n.is_staged AND split_part(n.key, '@', 1) = p_agent;
        SELECT jsonb_build_object('halts', coalesce(jsonb_agg(to_jsonb(y) - 'agents' - 'tags' ORDER BY y.since, y.id), '[]')) INTO halted FROM runs_haltnow y
        WHERE NOT y.is_staged AND (y.scope IN ('all', 'tag') OR y.scope = 'agent' AND y.key = p_agent
                                   OR y.scope = 'version' AND split_part(y.key, '@', 1) = p_agent);
    END IF;
    SELECT * INTO r FROM runs_ramp x WHERE x.agent = p_agent AND x.ended_at IS NULL;
    IF r.id IS NULL THEN
        RETURN halted || jsonb_build_object('closed', closed);
    END IF;
    RETURN halted || jsonb_build_object('closed', closed, 'ramp', to_jsonb(r), 'is_served', EXISTS (
        SELECT 1 FROM runs_served s JOIN runs_process p ON p.id = s.worker
        WHERE s.graph_id = r.agent || '@' || r.to_version AND NOT s.is_quarantined AND NOT s.is_draining
          AND p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_fresh_seconds)));
END $$;
