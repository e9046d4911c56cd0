-- Halts: nothing begins in their scope. `runs_halt` is the append-only record; `runs_haltnow` holds one row per halt in force, written by the
-- record's trigger alone. The claim and TX1 therefore read a table that is nearly always empty.
--
-- Lifting a halt needs the number whose digest is in the halt's row. The number is derived from the installation's key, which is not in the
-- database, so a row that wasn't written by the application lifts nothing.
--
-- Acts on halts take the lock `runs_halts` exclusively and each intent takes it shared, so after a halt's commit no intent is made in its scope.
-- The functions that the core calls replace the defaults in runs/sql/hooks.sql.

-- Return whether a run is in a halt's scope. `p_keys` are its next calls, such as tool:charge.
CREATE OR REPLACE FUNCTION runs_is_of_scope(p_scope text, p_key text, p_run uuid, p_agent text, p_graph text, p_keys text[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE p_scope WHEN 'all' THEN true WHEN 'agent' THEN p_key = p_agent WHEN 'version' THEN p_key = p_graph
        WHEN 'tag' THEN EXISTS (SELECT 1 FROM runs_runtag t WHERE t.run_id = p_run AND t.tag = p_key)
        ELSE coalesce(p_scope || ':' || p_key = ANY (p_keys), false) END;
$$;

-- Return a run's position from 0 to 9,999, by which a halt is lifted for a share of the runs. It is constant as long as the halt exists.
CREATE OR REPLACE FUNCTION runs_halt_place(p_halt uuid, p_run uuid) RETURNS int
LANGUAGE sql IMMUTABLE AS $$
    SELECT mod(hashtextextended(p_halt::text || p_run::text, 65) & 9223372036854775807, 10000)::int;
$$;

-- Return whether a halt is lifted for a run in its scope.
CREATE OR REPLACE FUNCTION runs_is_let_through(p_halt uuid, p_share int, p_agents text[], p_tags text[], p_run uuid, p_agent text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT runs_halt_place(p_halt, p_run) < p_share OR p_agent = ANY (p_agents)
        OR EXISTS (SELECT 1 FROM runs_runtag t WHERE t.run_id = p_run AND t.tag = ANY (p_tags));
$$;

-- Return the halts of a run, oldest first.
CREATE OR REPLACE FUNCTION runs_halts_on(p_run uuid, p_agent text, p_graph text, p_is_unbegun boolean, p_keys text[]) RETURNS SETOF runs_haltnow
LANGUAGE sql STABLE AS $$
    SELECT h.* FROM runs_haltnow h
    WHERE (h.kind <> 'starts' OR p_is_unbegun) AND runs_is_of_scope(h.scope, h.key, p_run, p_agent, p_graph, p_keys)
      AND NOT runs_is_let_through(h.halt, h.share, h.agents, h.tags, p_run, p_agent)
    ORDER BY h.since, h.id;
$$;

-- Return the oldest halt of a run, or null columns.
CREATE OR REPLACE FUNCTION runs_halt_on(p_run uuid, p_agent text, p_graph text, p_is_unbegun boolean, p_keys text[]) RETURNS runs_haltnow
LANGUAGE plpgsql STABLE AS $$
DECLARE
    h runs_haltnow;
BEGIN
    SELECT * INTO h FROM runs_halts_on(p_run, p_agent, p_graph, p_is_unbegun, p_keys) LIMIT 1;
    RETURN h;
END $$;

-- Return whether every run of a version (null: every run) is halted. Then a claim reads none of them.
CREATE OR REPLACE FUNCTION runs_is_halted_whole(p_graph text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM runs_haltnow h WHERE h.kind <> 'starts' AND NOT h.is_staged AND (
        h.scope = 'all' OR h.scope = 'version' AND h.key = p_graph OR h.scope = 'agent' AND h.key = split_part(p_graph, '@', 1)));
$$;

-- Return how many more candidates a claim reads, because it may have to put some of the first ones aside; null if nothing is halted.
CREATE OR REPLACE FUNCTION runs_claim_halts() RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT max(CASE WHEN h.scope NOT IN ('tool', 'provider') AND (h.scope = 'tag' OR h.kind = 'starts' OR h.is_staged) THEN 256 ELSE 0 END)
    FROM runs_haltnow h;
$$;

-- Return an agent's versions in quarantine (`quarantined`), and the halts that apply to its new runs (`halts`).
CREATE OR REPLACE FUNCTION runs_start_halts(p_agent text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    quarantined jsonb := '[]';
    halts jsonb := '[]';
BEGIN
    IF EXISTS (SELECT 1 FROM runs_haltnow) THEN
        SELECT coalesce(jsonb_agg(split_part(n.key, '@', 2)), '[]') INTO quarantined FROM runs_haltnow n
        WHERE n.kind = 'quarantine' AND n.scope = 'version' AND NOT n.is_staged AND split_part(n.key, '@', 1) = p_agent;
        SELECT coalesce(jsonb_agg(to_jsonb(y) - 'agents' - 'tags' ORDER BY y.since, y.id), '[]') INTO halts FROM runs_haltnow y
        WHERE NOT y.is_staged AND (y.scope IN ('all', 'tag') OR y.scope = 'agent' AND y.key = p_agent
                                   OR y.scope = 'version' AND split_part(y.key, '@', 1) = p_agent);
    END IF;
    RETURN jsonb_build_object('quarantined', quarantined, 'halts', halts);
END $$;

-- Return the oldest halt of a run that hasn't ended, or of the call at which it was put aside; null without one.
CREATE OR REPLACE FUNCTION runs_halt_of(p_run uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM runs_haltnow) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT jsonb_build_object('kind', n.kind, 'scope', n.scope, 'key', n.key, 'by', n.by, 'why', n.why, 'since', n.since)
            FROM runs_run r LEFT JOIN runs_held x ON x.run_id = r.id
            CROSS JOIN LATERAL runs_halts_on(r.id, r.agent, r.graph_id, r.started_at IS NULL AND r.came_from IS NULL, x.keys) n
            WHERE r.id = p_run AND r.ended_at IS NULL LIMIT 1);
END $$;

-- Return the calls that the events of a step announce, such as tool:charge.
CREATE OR REPLACE FUNCTION runs_called_by(p_lines ledger_line[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    line ledger_line;
    keys text[] := '{}';
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        IF line.kind IN ('ToolInvoked', 'ToolRedispatched') THEN
            keys := keys || ('tool:' || (convert_from(line.clear, 'UTF8')::json ->> 'tool'));
        ELSIF line.kind = 'ModelRouted' THEN
            keys := keys || ('provider:' || split_part(convert_from(line.clear, 'UTF8')::json ->> 'model', ':', 1));
        END IF;
    END LOOP;
    RETURN keys;
END $$;

-- Take the lock for an act on halts. Waits at most half a second for intents in progress, because later intents queue behind it.
CREATE OR REPLACE FUNCTION runs_halts_alone() RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = '500ms' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('runs_halts', 65));
END $$;

-- Refuse an intent in the scope of a halt (DA007). The shared lock is held until the transaction ends, and later reads see everything that was
-- committed before it was taken. A step in the same transaction already has the lock.
CREATE OR REPLACE FUNCTION runs_check_halts(p_run uuid, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    r record;
    h runs_haltnow;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('runs_halts', 65));
    IF NOT EXISTS (SELECT 1 FROM runs_haltnow) THEN
        RETURN;
    END IF;
    SELECT agent, graph_id INTO r FROM runs_run WHERE id = p_run;
    h := runs_halt_on(p_run, r.agent, r.graph_id, false, runs_called_by(p_lines));
    IF h.halt IS NOT NULL THEN
        RAISE EXCEPTION 'run % is under the halt of % %', p_run, h.scope, h.key USING ERRCODE = 'DA007', DETAIL =
            json_build_object('halt', h.halt, 'scope', h.scope, 'key', h.key)::text;
    END IF;
END $$;

-- Return the halt of a call that is sent without a new intent, or null. Writes nothing.
CREATE OR REPLACE FUNCTION runs_halted_by(p_run uuid, p_keys text[]) RETURNS uuid
LANGUAGE plpgsql STABLE AS $$
DECLARE
    r record;
    h runs_haltnow;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM runs_haltnow) THEN
        RETURN NULL;
    END IF;
    SELECT agent, graph_id INTO r FROM runs_run WHERE id = p_run;
    h := runs_halt_on(p_run, r.agent, r.graph_id, false, p_keys);
    RETURN h.halt;
END $$;

-- Put a locked run aside until its halt changes. A `ready_at` in the year 9000 hides it from claims, so that they reach the runs behind it;
-- `runs_held` says why.
CREATE OR REPLACE FUNCTION runs_put_aside(p_run uuid, h runs_haltnow, p_keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runs_held AS x (run_id, halt, seen, keys, at) VALUES (p_run, h.halt, h.id, p_keys, clock_timestamp())
    ON CONFLICT (run_id) DO UPDATE SET halt = excluded.halt, seen = excluded.seen, keys = excluded.keys, at = x.at;
    UPDATE runs_run SET ready_at = timestamptz '9000-01-01 00:00:00+00', updated_at = clock_timestamp() WHERE id = p_run;
END $$;

-- Put a locked run aside if it is halted, and return whether it was.
CREATE OR REPLACE FUNCTION runs_hold_back(p_run uuid, p_is_unbegun boolean, p_keys text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    r record;
    h runs_haltnow;
BEGIN
    SELECT agent, graph_id INTO r FROM runs_run WHERE id = p_run;
    h := runs_halt_on(p_run, r.agent, r.graph_id, p_is_unbegun, p_keys);
    IF h.halt IS NOT NULL THEN
        PERFORM runs_put_aside(p_run, h, p_keys);
    END IF;
    RETURN h.halt IS NOT NULL;
END $$;

-- Release runs that were put aside under a halt that has changed. Each is checked once per row of the halt's record. Returns how many were
-- checked. One caller at a time; heads that are locked are skipped.
CREATE OR REPLACE FUNCTION runs_let_go(p_lock bigint, p_limit int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    due record;
    r runs_run;
    hit runs_haltnow;
    stale bigint[];
    done int := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(p_lock) THEN
        RETURN 0;
    END IF;
    WITH RECURSIVE s(seen) AS (
        SELECT min(seen) FROM runs_held
        UNION ALL SELECT (SELECT min(x.seen) FROM runs_held x WHERE x.seen > s.seen) FROM s WHERE s.seen IS NOT NULL)
    SELECT array_agg(s.seen) INTO stale FROM s WHERE s.seen IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs_haltnow n WHERE n.id = s.seen);
    IF stale IS NULL THEN
        RETURN 0;
    END IF;
    FOR due IN SELECT run_id, keys FROM runs_held WHERE seen = ANY (stale) LIMIT p_limit LOOP
        PERFORM 1 FROM ledger_head WHERE run_id = due.run_id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND AND EXISTS (SELECT 1 FROM ledger_head WHERE run_id = due.run_id);
        done := done + 1;
        SELECT * INTO r FROM runs_run WHERE id = due.run_id FOR UPDATE;
        hit := NULL;
        IF r.ended_at IS NULL AND r.owner IS NULL AND r.ready_at = timestamptz '9000-01-01 00:00:00+00' THEN
            hit := runs_halt_on(r.id, r.agent, r.graph_id, r.started_at IS NULL AND r.came_from IS NULL, due.keys);
            IF hit.halt IS NULL THEN
                UPDATE runs_run SET ready_at = clock_timestamp(), updated_at = clock_timestamp() WHERE id = r.id;
            END IF;
        END IF;
        IF hit.halt IS NULL THEN
            DELETE FROM runs_held WHERE run_id = due.run_id;
        ELSE
            UPDATE runs_held SET halt = hit.halt, seen = hit.id WHERE run_id = due.run_id;
        END IF;
    END LOOP;
    RETURN done;
END $$;

-- Trigger: check that a row of the record follows the last one of its halt and has the proof for that, then update the halts in force.
CREATE OR REPLACE FUNCTION runs_keep_halt() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    b runs_halt;
BEGIN
    IF NEW.at NOT BETWEEN clock_timestamp() - interval '30 seconds' AND clock_timestamp() THEN
        RAISE EXCEPTION 'row % of halt % was not written when it says', NEW.n, NEW.halt;  -- deadlines go by it
    END IF;
    SELECT * INTO b FROM runs_halt WHERE halt = NEW.halt AND n = NEW.n - 1;
    IF NEW.n = 0 THEN
        IF NEW.stage <> 'whole' OR NEW.opens IS NOT NULL THEN
            RAISE EXCEPTION 'halt % begins whole', NEW.halt;
        END IF;
    ELSIF b.id IS NULL OR b.stage = 'lifted' OR b.lock IS NULL OR NEW.opens IS NULL OR sha256(NEW.opens) <> b.lock
          OR (NEW.kind, NEW.scope, NEW.key, NEW.refuses) IS DISTINCT FROM (b.kind, b.scope, b.key, b.refuses) THEN
        RAISE EXCEPTION 'row % of halt % does not follow the one before: the halt holds', NEW.n, NEW.halt;
    END IF;
    DELETE FROM runs_haltnow WHERE halt = NEW.halt;
    IF NEW.stage <> 'lifted' THEN
        INSERT INTO runs_haltnow (halt, id, n, kind, scope, key, refuses, is_staged, share, agents, tags, by, why, since)
        SELECT NEW.halt, NEW.id, NEW.n, NEW.kind, NEW.scope, NEW.key, NEW.refuses, NEW.stage = 'staged', NEW.share, NEW.agents, NEW.tags,
               f.by, f.why, f.at FROM runs_halt f WHERE f.halt = NEW.halt AND f.n = 0;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER runs_keep_halt AFTER INSERT ON runs_halt FOR EACH ROW EXECUTE FUNCTION runs_keep_halt();
