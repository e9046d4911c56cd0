-- Claims as in 0043_migrated.sql, but for runs under a halt: versions that are halted whole aren't looked at, and what stands in front and is under
-- another halt is put aside. A last row of nulls says that some were: there may be more to take.
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
    is_capped boolean := false;
    is_by_age boolean := random() < 0.125;
    is_draining boolean := EXISTS (SELECT 1 FROM runs_served s WHERE s.worker = p_worker AND s.is_draining);
    driven jsonb;
    full_of jsonb := '{}';
    has_halts boolean := EXISTS (SELECT 1 FROM runs_haltnow);
    more int := 0;
    aside int := 0;
    hit runs_haltnow;
BEGIN
    IF has_halts THEN
        p_graphs := ARRAY(SELECT g FROM unnest(p_graphs) g WHERE NOT runs_is_halted_whole(g));
        IF cardinality(p_graphs) = 0 THEN
            RETURN;
        END IF;
        -- Of what stands in front some may have to be put aside: more is looked at, and whoever asks does so again at once.
        more := CASE WHEN EXISTS (SELECT 1 FROM runs_haltnow n WHERE n.scope NOT IN ('tool', 'provider')
                                  AND (n.scope = 'tag' OR n.kind = 'starts' OR n.is_staged)) THEN 256 ELSE 0 END;
    END IF;
    is_ruled := EXISTS (SELECT 1 FROM runs_limit l WHERE starts_with(l.key, 'agent:') OR starts_with(l.key, 'tag:'));
    IF is_ruled THEN
        is_capped := EXISTS (SELECT 1 FROM runs_limit l WHERE (starts_with(l.key, 'agent:') OR starts_with(l.key, 'tag:')) AND coalesce(l.given, l.declared) ->> 'at_once' IS NOT NULL);
    END IF;
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
                 WHERE NOT is_draining AND q.graph_id = o.graph AND q.is_solo = p_solo AND q.lane = o.lane AND q.priority * -1 = o.urgency AND q.ready_at <= statement_timestamp()
                   AND (q.start_before IS NULL OR q.state <> 'pending' OR q.start_before > statement_timestamp())
                 ORDER BY q.ready_at LIMIT more + least(p_limit * 2 + 8, 2 + (p_limit * 2 + 8) * 4 * o.weight / o.weights, o.agent_room + 8, o.lane_room + 8))
                UNION ALL
                (SELECT q.id, q.priority, q.ready_at FROM runs_run q
                 WHERE is_draining AND q.graph_id = o.graph AND q.is_solo = p_solo AND q.lane = o.lane AND q.priority * -1 = o.urgency
                   AND q.ready_at <= statement_timestamp() AND q.ready_at IS NOT NULL
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
        CONTINUE WHEN coalesce((full_of ->> candidate.of_agent)::int, 0) >= candidate.agent_room OR coalesce((full_of ->> candidate.of_lane)::int, 0) >= candidate.lane_room;
        problem := NULL;
        BEGIN
            SELECT * INTO h FROM ledger_head WHERE run_id = candidate.id FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                CONTINUE WHEN EXISTS (SELECT 1 FROM ledger_head WHERE run_id = candidate.id);
                problem := 'its head is missing';
            ELSE
                SELECT * INTO r FROM runs_run WHERE id = candidate.id FOR UPDATE;
                CONTINUE WHEN r.graph_id <> ALL (p_graphs) OR r.is_solo <> p_solo OR r.ready_at IS NULL OR r.ready_at > clock_timestamp() OR r.state NOT IN ('pending', 'running', 'compensating')
                    OR (r.state = 'pending' AND (is_draining AND r.came_from IS NULL AND r.parent IS NULL OR r.is_queued OR r.start_before <= clock_timestamp()));
                IF has_halts THEN
                    hit := runs_halt_on(r.id, r.agent, r.graph_id, r.started_at IS NULL AND r.came_from IS NULL, NULL);
                    IF hit.halt IS NOT NULL THEN
                        PERFORM runs_put_aside(r.id, hit, NULL);
                        aside := aside + 1;
                        CONTINUE;
                    END IF;
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
            CONTINUE WHEN left(SQLSTATE, 2) IN ('40', '55');  -- somebody has the row: it is looked at again
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

-- TX1 as in 0060_policies.sql, but for halts: in the scope of one no intent is made (DA007).
CREATE OR REPLACE FUNCTION runs_intend(
    p_run uuid, p_epoch bigint, p_lease uuid, p_actor text,
    p_lines ledger_line[], p_facts ledger_fact[], g_slot text, g_hash text, w runs_opening
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    line ledger_line;
    invoked ledger_line;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is_answered(p_run, p_lines) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    PERFORM runs_check_halts(p_run, p_lines);
    FOREACH line IN ARRAY p_lines LOOP
        IF line.kind = 'ToolInvoked' THEN
            invoked := line;
        END IF;
    END LOOP;
    IF invoked.attempt > 0 AND runs_is_belied(p_run, invoked.slot, invoked.attempt) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    IF NOT (h.cap_steps, h.cap_tokens_in, h.cap_tokens_out, h.cap_tool_calls, h.cap_model_calls, h.cap_usd_micro) IS NULL THEN
        PERFORM runs_afford(h, p_lines);
    END IF;
    PERFORM runs_check_policies(p_lines);
    IF g_slot IS NOT NULL THEN
        PERFORM runs_use_grant(p_run, g_slot, g_hash, invoked.slot, invoked.attempt);
    ELSIF invoked.attempt > 0 AND EXISTS (
        SELECT 1 FROM ledger_event e WHERE e.run_id = p_run AND e.slot = invoked.slot AND e.attempt < invoked.attempt
        AND e.kind = 'ToolInvoked' AND convert_from(e.clear, 'UTF8')::json ->> 'grant' IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'slot % of run % went out under an approval before, and has none now', invoked.slot, p_run USING ERRCODE = 'DA002';
    END IF;
    PERFORM runs_draw(p_run, p_lines);
    h := ledger_append(h, p_lines);
    IF cardinality(p_facts) > 0 THEN
        PERFORM ledger_enter(h, p_actor, p_facts);
    END IF;
    IF w.id IS NOT NULL THEN
        INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, token_hash, is_overdue)
        VALUES (w.id, p_run, w.slot, w.attempt, w.kind, w.n, clock_timestamp(), w.deadline, w.detail, w.token, false);
    END IF;
    PERFORM ledger_store(h);
    RETURN runs_reply_of(h, true);
END $$;
