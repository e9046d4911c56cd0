-- Versions of agents that accept new runs, ramps, and the migration of runs to another version.

-- Return the rules for an agent's next start: closed versions and its ramp. runs_lock_start holds the lock.
CREATE OR REPLACE FUNCTION releases_rules(p_agent text, p_fresh_seconds float8) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    closed jsonb;
    r runs_ramp;
BEGIN
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

-- Called by processes of the release before, during an upgrade. Remove it in the next release.
CREATE OR REPLACE FUNCTION runs_release(p_agent text, p_fresh_seconds float8) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    of_core jsonb := runs_lock_start(p_agent);
    rules jsonb := releases_rules(p_agent, p_fresh_seconds);
BEGIN
    RETURN of_core || rules || jsonb_build_object('closed', (rules -> 'closed') || (of_core -> 'quarantined'));
END $$;

-- Trigger: set version and generation in the run's row from the event that migrates the run, because the runtime role may not change them.
-- The event names the old values; if the row has others, nothing is written. The writer holds the head's lock and has checked that the run
-- can continue on the new version.
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
