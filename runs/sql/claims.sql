-- Claims. Each candidate has a subtransaction of its own, so that one damaged run does not block the others. A run that the database refuses to
-- hand out is returned with the problem.

CREATE TYPE runs_claimed AS (
    run_id uuid, graph_id text, generation int, trace_id text, created_by text, epoch bigint, lease uuid, seq bigint, at timestamptz,
    is_pause_requested boolean, is_cancel_requested boolean, is_on_hold boolean, is_solo boolean
);
CREATE TYPE runs_candidate AS (
    run_id uuid, graph_id text, generation int, trace_id text, created_by text, epoch bigint, lease uuid, seq bigint, at timestamptz,
    is_pause_requested boolean, is_cancel_requested boolean, is_on_hold boolean, is_solo boolean, problem text
);

-- Return whether an error concerns the server or the caller rather than one row: server unreachable, full, read-only or shutting down, or a
-- missing privilege. Such an error is raised again, because it says nothing about the run.
CREATE OR REPLACE FUNCTION runs_is_everybodys(p_state text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT left(p_state, 2) IN ('08', '0A', '25', '42', '53', '57');
$$;

-- Return the versions that living workers have: `drained:VERSION` if all of its workers drain, and `behind:VERSION` if all of its workers are of
-- the last release, in which case a pending run, or one of this release, waits for another worker.
CREATE OR REPLACE FUNCTION runs_drivable(p_fresh_seconds float8) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT unnest(s.graph_id || CASE WHEN bool_and(s.is_draining) THEN ARRAY['drained:' || s.graph_id] ELSE '{}' END
                                 || CASE WHEN max(p.protocol) < ledger_protocol() THEN ARRAY['behind:' || s.graph_id] ELSE '{}' END)
        FROM runs_served s JOIN runs_process p ON p.id = s.worker
        WHERE NOT s.is_quarantined AND p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_fresh_seconds)
        GROUP BY s.graph_id);
END $$;

-- Wake a worker for a run that is ready. One is enough: among the workers that have the version and room, one is drawn at random, weighted by
-- its room. Its protocol must not be older, and draining workers are drawn only for runs that have begun. If there is none, or the run must be
-- driven alone, all workers are woken. A worker that is woken and cannot take the run wakes all. A wake-up may be lost, so the commit does not
-- wait for the disk.
CREATE OR REPLACE FUNCTION runs_call(p_channel text, p_run uuid, p_fresh_seconds float8) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify(p_channel, coalesce((
        SELECT p.id::text FROM runs_run r
        JOIN runs_served s ON s.graph_id = r.graph_id AND NOT s.is_quarantined AND NOT (s.is_draining AND r.state = 'pending' AND r.came_from IS NULL AND r.parent IS NULL)
        JOIN runs_process p ON p.id = s.worker AND p.kind = 'worker' AND p.ended_at IS NULL AND p.protocol >= r.protocol
        WHERE r.id = p_run AND NOT r.is_solo AND p.slots_used < p.slots_total
          AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => p_fresh_seconds)
        ORDER BY -ln(1 - random()) / (p.slots_total - p.slots_used) LIMIT 1), ''));
END $$;

-- Give a locked run to a worker: a new epoch and lease fence off the previous one.
CREATE OR REPLACE FUNCTION runs_take(h ledger_head, p_state text, p_worker uuid, p_host text, p_pid int, p_cause text) RETURNS ledger_head
LANGUAGE plpgsql AS $$
DECLARE
    line bytea;
BEGIN
    h.epoch := h.epoch + 1;
    h.lease := gen_random_uuid();
    -- the same bytes that ledger/events.py gives for RunClaimed
    line := convert_to(format('{"attempt":0,"cause":"%s","epoch":%s,"host":%s,"kind":"RunClaimed","pid":%s,"slot":null,"worker":"%s"}',
                              p_cause, h.epoch, to_json(p_host), p_pid, p_worker), 'UTF8');
    h := ledger_append(h, ARRAY[ROW('RunClaimed', NULL, 0, NULL, line, NULL, sha256(line || decode(repeat('00', 32), 'hex')))::ledger_line]);
    h.claimed_seq := h.seq;
    PERFORM ledger_store(h);
    UPDATE runs_run SET state = CASE p_state WHEN 'pending' THEN 'running' ELSE p_state END, owner = p_worker, ready_at = NULL,
        started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
    WHERE id = h.run_id;
    RETURN h;
END $$;

-- Claim the worker's own run again after an unknown commit (CP5) or an unknown claim. Waiting for the row lock ensures that the old backend is
-- done or fenced off by the new epoch, so data read from here on are final.
CREATE OR REPLACE FUNCTION runs_reclaim(p_run uuid, p_worker uuid, p_host text, p_pid int) RETURNS SETOF runs_claimed
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    r runs_run;
BEGIN
    h := ledger_lock(p_run, NULL, NULL);
    SELECT * INTO r FROM runs_run WHERE id = p_run FOR UPDATE;
    IF r.owner IS DISTINCT FROM p_worker THEN
        RAISE EXCEPTION 'stale lease: run % is no longer driven by worker %', p_run, p_worker USING ERRCODE = 'DA001';
    END IF;
    h := runs_take(h, r.state, p_worker, p_host, p_pid, 'reconnected');
    RETURN NEXT (h.run_id, r.graph_id, r.generation, r.trace_id, r.created_by, h.epoch, h.lease, h.seq, clock_timestamp(),
                 h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, r.is_solo)::runs_claimed;
END $$;

-- Claim the best ready runs by shares and caps. Versions that are halted as a whole are skipped, and a candidate under another halt is put
-- aside. A last row of nulls says that some were put aside, so there may be more to claim. Of a drained version only runs that have begun are
-- claimed. A run of a newer protocol than the worker's is left to newer workers. A process without a row belongs to a test.
CREATE OR REPLACE FUNCTION runs_claim(p_worker uuid, p_host text, p_pid int, p_graphs text[], p_limit int, p_solo boolean) RETURNS SETOF runs_candidate
LANGUAGE plpgsql AS $$
DECLARE
    candidate record;
    h ledger_head;
    r runs_run;
    cause text;
    problem text;
    taken int := 0;
    is_ruled boolean;
    is_capped boolean;
    is_by_age boolean := random() < 0.125;
    drives int := coalesce((SELECT p.protocol FROM runs_process p WHERE p.id = p_worker), ledger_protocol());
    is_draining boolean := EXISTS (SELECT 1 FROM runs_served s WHERE s.worker = p_worker AND s.is_draining);
    driven jsonb;
    full_of jsonb := '{}';
    more int := runs_claim_halts();  -- null: nothing is halted
    has_halts boolean := more IS NOT NULL;
    aside int := 0;
    -- Runs whose keys the worker lacks, set for one statement (journal/claims.py).
    skipped uuid[] := coalesce(nullif(current_setting('durableagents.skipped', true), ''), '{}')::uuid[];
BEGIN
    IF drives < ledger_protocol() - 1 THEN
        RAISE EXCEPTION 'worker % has protocol %, but the database has protocol % and takes only workers of this and the one before: restart it with newer code',
            p_worker, drives, ledger_protocol() USING ERRCODE = 'DA090';
    END IF;
    IF has_halts THEN
        p_graphs := ARRAY(SELECT g FROM unnest(p_graphs) g WHERE NOT runs_is_halted_whole(g));
        IF cardinality(p_graphs) = 0 THEN
            RETURN;
        END IF;
    END IF;
    more := greatest(more, cardinality(skipped));
    SELECT l.is_ruled, l.is_capped INTO is_ruled, is_capped FROM runs_claim_limits() l;
    IF is_capped THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('runs_claim', 28));
        SELECT jsonb_agg(d) INTO driven FROM (
            SELECT x.graph_id AS graph, x.agent, x.lane, count(*) AS n, count(*) FILTER (WHERE x.owner = p_worker) AS own
            FROM runs_run x WHERE x.owner IS NOT NULL GROUP BY 1, 2, 3) d;
    ELSE
        SELECT jsonb_agg(d) INTO driven FROM (
            SELECT x.graph_id AS graph, x.agent, x.lane, count(*) AS n, count(*) AS own
            FROM runs_run x WHERE x.owner = p_worker GROUP BY 1, 2, 3) d;
    END IF;
    FOR candidate IN
        WITH RECURSIVE groups(graph, lane, urgency) AS (
            SELECT g.graph, f.lane, f.urgency FROM unnest(p_graphs) AS g(graph) CROSS JOIN LATERAL (
                SELECT q.lane, q.priority * -1 AS urgency FROM runs_run q
                WHERE q.graph_id = g.graph AND q.is_solo = p_solo AND q.ready_at IS NOT NULL
                ORDER BY q.lane, q.priority * -1 LIMIT 1) f
            UNION ALL
            SELECT p.graph, n.lane, n.urgency FROM groups p CROSS JOIN LATERAL (
                SELECT q.lane, q.priority * -1 AS urgency FROM runs_run q
                WHERE q.graph_id = p.graph AND q.is_solo = p_solo AND q.ready_at IS NOT NULL AND (q.lane, q.priority * -1) > (p.lane, p.urgency)
                ORDER BY q.lane, q.priority * -1 LIMIT 1) n
        ), mine AS MATERIALIZED (
            SELECT * FROM jsonb_to_recordset(coalesce(driven, '[]')) AS d(graph text, agent text, lane text, n int, own int)
        ), rules AS MATERIALIZED (
            SELECT k.key, runs_limit_rule(k.key) AS rule FROM (
                SELECT 'agent:' || split_part(x.graph, '@', 1) FROM groups x WHERE is_ruled
                UNION SELECT 'tag:' || x.lane FROM groups x WHERE is_ruled AND x.lane <> '') AS k(key)
        ), ruled AS (
            SELECT g.*, split_part(g.graph, '@', 1) AS agent, a.rule AS of_agent, t.rule AS of_lane FROM groups g
            LEFT JOIN rules a ON a.key = 'agent:' || split_part(g.graph, '@', 1) LEFT JOIN rules t ON t.key = 'tag:' || g.lane
        ), open AS (
            SELECT u.*, CASE WHEN u.lane = '' THEN u.graph ELSE 'tag:' || u.lane END AS share,
                   coalesce((CASE WHEN u.lane = '' THEN u.of_agent ELSE u.of_lane END ->> 'weight')::double precision, 1) AS weight,
                   (u.of_agent ->> 'at_once')::int - (SELECT coalesce(sum(m.n), 0)::int FROM mine m WHERE m.agent = u.agent) AS agent_room,
                   (u.of_lane ->> 'at_once')::int - (SELECT coalesce(sum(m.n), 0)::int FROM mine m WHERE m.lane = u.lane) AS lane_room FROM ruled u
        ), able AS MATERIALIZED (
            SELECT o.*, sum(o.weight) OVER () AS weights FROM open o WHERE coalesce(o.agent_room, 1) > 0 AND coalesce(o.lane_room, 1) > 0
        ), found AS (
            SELECT o.graph, o.agent, o.lane, o.share, o.weight, o.agent_room, o.lane_room, c.id, c.ready_at,
                   CASE WHEN is_by_age AND c.ready_at < statement_timestamp() - interval '1 minute' THEN max(c.priority) OVER () ELSE c.priority END AS priority
            FROM able o CROSS JOIN LATERAL (
                (SELECT q.id, q.priority, q.ready_at FROM runs_run q
                 WHERE NOT is_draining AND q.graph_id = o.graph AND q.is_solo = p_solo AND q.lane = o.lane AND q.priority * -1 = o.urgency AND q.ready_at <= statement_timestamp() AND q.protocol <= drives
                   AND (q.start_before IS NULL OR q.state <> 'pending' OR q.start_before > statement_timestamp())
                 ORDER BY q.ready_at LIMIT more + least(p_limit * 2 + 8, 2 + (p_limit * 2 + 8) * 4 * o.weight / o.weights, o.agent_room + 8, o.lane_room + 8))
                UNION ALL
                (SELECT q.id, q.priority, q.ready_at FROM runs_run q
                 WHERE is_draining AND q.graph_id = o.graph AND q.is_solo = p_solo AND q.lane = o.lane AND q.priority * -1 = o.urgency
                   AND q.ready_at <= statement_timestamp() AND q.ready_at IS NOT NULL AND q.protocol <= drives
                   AND (q.state <> 'pending' OR q.came_from IS NOT NULL OR q.parent IS NOT NULL)
                 ORDER BY q.ready_at LIMIT more + p_limit * 2 + 8)
            ) c
        ), turned AS (
            SELECT f.*, coalesce((SELECT sum(m.own) FROM mine m WHERE m.graph = f.graph AND m.lane = f.lane), 0)
                        + row_number() OVER (PARTITION BY f.graph, f.lane ORDER BY f.priority DESC, f.ready_at) AS version_turn FROM found f
        ), best AS (
            SELECT t.*, (coalesce((SELECT sum(m.own) FROM mine m WHERE CASE WHEN t.lane = '' THEN m.graph = t.graph AND m.lane = '' ELSE m.lane = t.lane END), 0)
                         + row_number() OVER (PARTITION BY t.share ORDER BY t.priority DESC, t.version_turn, t.ready_at)) / t.weight AS turn FROM turned t
        )
        SELECT id, 'agent:' || agent AS of_agent, 'tag:' || lane AS of_lane, agent_room, lane_room
        FROM best ORDER BY priority DESC, turn, ready_at LIMIT more + p_limit * 2 + 8
    LOOP
        EXIT WHEN taken >= p_limit;
        CONTINUE WHEN candidate.id = ANY (skipped);
        CONTINUE WHEN coalesce((full_of ->> candidate.of_agent)::int, 0) >= candidate.agent_room OR coalesce((full_of ->> candidate.of_lane)::int, 0) >= candidate.lane_room;
        problem := NULL;
        BEGIN
            SELECT * INTO h FROM ledger_head WHERE run_id = candidate.id FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                CONTINUE WHEN EXISTS (SELECT 1 FROM ledger_head WHERE run_id = candidate.id);
                problem := 'its head is missing';
            ELSE
                SELECT * INTO r FROM runs_run WHERE id = candidate.id FOR UPDATE;
                CONTINUE WHEN r.graph_id <> ALL (p_graphs) OR r.is_solo <> p_solo OR r.protocol > drives OR r.ready_at IS NULL OR r.ready_at > clock_timestamp() OR r.state NOT IN ('pending', 'running', 'compensating')
                    OR (r.state = 'pending' AND (is_draining AND r.came_from IS NULL AND r.parent IS NULL OR r.is_queued OR r.start_before <= clock_timestamp()));
                IF has_halts AND runs_hold_back(r.id, r.started_at IS NULL AND r.came_from IS NULL, NULL) THEN
                    aside := aside + 1;
                    CONTINUE;
                END IF;
                SELECT CASE e.kind WHEN 'RunCreated' THEN 'start' WHEN 'StartPlanned' THEN 'start' WHEN 'RunAdmitted' THEN 'start'
                                   WHEN 'VersionAssigned' THEN 'start'
                                   WHEN 'RunMigrated' THEN 'migrated' WHEN 'WorkerLost' THEN 'recovered' WHEN 'RunReleased' THEN 'released'
                                   WHEN 'RunResumed' THEN 'resumed' WHEN 'RunRetried' THEN 'retried' ELSE 'resolved' END
                INTO cause FROM ledger_event e WHERE e.run_id = candidate.id AND e.seq = h.seq;
                h := runs_take(h, r.state, p_worker, p_host, p_pid, coalesce(cause, 'resolved'));
            END IF;
        EXCEPTION WHEN OTHERS THEN
            IF runs_is_everybodys(SQLSTATE) THEN
                RAISE;
            END IF;
            CONTINUE WHEN left(SQLSTATE, 2) IN ('40', '55');  -- someone has the row: it is looked at again
            problem := format('%s (%s)', SQLERRM, SQLSTATE);
        END;
        IF problem IS NULL THEN
            taken := taken + 1;
            full_of := full_of || jsonb_build_object(candidate.of_agent, coalesce((full_of ->> candidate.of_agent)::int, 0) + 1,
                                                     candidate.of_lane, coalesce((full_of ->> candidate.of_lane)::int, 0) + 1);
            RETURN NEXT (h.run_id, r.graph_id, r.generation, r.trace_id, r.created_by, h.epoch, h.lease, h.seq, clock_timestamp(),
                         h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, r.is_solo, NULL)::runs_candidate;
        ELSE
            RETURN NEXT (candidate.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp(), NULL, NULL, NULL, NULL, problem)::runs_candidate;
        END IF;
    END LOOP;
    IF aside > 0 THEN
        RETURN NEXT (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp(), NULL, NULL, NULL, NULL, NULL)::runs_candidate;
    END IF;
END $$;
