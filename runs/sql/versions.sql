-- Versions: which one a start gets, and a run's move to another.

-- Return what decides about a start: closed versions (including those in quarantine), the agent's ramp, and the halts its runs come under, all
-- locked until the start's transaction ends. Acts on releases take the agent's lock exclusively.
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

-- Take the lock of an act on an agent's releases. It waits at most a second for the starts under way, because later ones wait behind it.
CREATE OR REPLACE FUNCTION runs_release_alone(p_agent text) RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('release ' || p_agent, 38));
END $$;

-- Trigger: set the version and generation of the run's row with the event that moves it; the runtime role may not change them. The event names
-- the old values; if the row has others, nothing is written. The writer holds the head's lock and has checked that the run can continue there.
CREATE OR REPLACE FUNCTION runs_move_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    said jsonb := convert_from(NEW.clear, 'UTF8')::jsonb;
BEGIN
    UPDATE runs_run SET version = split_part(said ->> 'to', '@', 2), graph_id = said ->> 'to', generation = (said ->> 'generation')::smallint
    WHERE id = NEW.run_id AND graph_id = said ->> 'of' AND generation = (said ->> 'generation')::smallint - 1
      AND agent = split_part(said ->> 'to', '@', 1) AND owner IS NULL AND ended_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not one of % in generation % that nobody drives', NEW.run_id, said ->> 'of', (said ->> 'generation')::int - 1;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER runs_version_moved AFTER INSERT ON ledger_event
    FOR EACH ROW WHEN (NEW.kind = 'RunMigrated' AND NOT ledger_comes_back()) EXECUTE FUNCTION runs_move_version();
