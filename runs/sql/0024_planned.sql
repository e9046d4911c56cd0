-- Runs that are not to be begun yet, or not any more: a claim leaves them alone.

-- Take the best ready runs of the versions that this worker has. Candidates are read without a lock, one short look into the index for
-- each version, so that what is ready of versions that nobody has costs nothing. Then each head is taken if it is free, and the run is
-- looked at again: two workers never wait for one another and never take the same run.
-- Of one priority, versions take turns: first comes whose runs this worker drives the fewest of, and of one version the run that is ready
-- for the longest. So ten thousand runs of one agent keep no other's waiting for longer than it takes a slot to fall free.
-- A run that is queued behind others of its key, or that was to be begun by a time that has passed, is not taken whatever its row says.
-- A run that workers keep dying on is given to one that asks for such a run, and will drive nothing beside it.
CREATE OR REPLACE FUNCTION runs_claim(p_worker uuid, p_host text, p_pid int, p_graphs text[], p_limit int, p_solo boolean) RETURNS SETOF runs_candidate
LANGUAGE plpgsql AS $$
DECLARE
    candidate uuid;
    h ledger_head;
    r runs_run;
    cause text;
    problem text;
    taken int := 0;
BEGIN
    FOR candidate IN
        WITH mine AS (
            SELECT d.graph_id, count(*) AS driven FROM runs_run d WHERE d.owner = p_worker GROUP BY d.graph_id
        ), best AS (
            SELECT c.*, coalesce(mine.driven, 0) + row_number() OVER (PARTITION BY g.graph ORDER BY c.priority DESC, c.ready_at) AS turn
            FROM unnest(p_graphs) AS g(graph) LEFT JOIN mine ON mine.graph_id = g.graph
            CROSS JOIN LATERAL (
                SELECT q.id, q.priority, q.ready_at FROM runs_run q
                WHERE q.graph_id = g.graph AND q.is_solo = p_solo AND q.ready_at <= statement_timestamp()
                  AND (q.start_before IS NULL OR q.state <> 'pending' OR q.start_before > statement_timestamp())
                ORDER BY q.priority DESC, q.ready_at LIMIT p_limit * 2 + 8
            ) c
        )
        SELECT id FROM best ORDER BY priority DESC, turn, ready_at LIMIT p_limit * 2 + 8
    LOOP
        EXIT WHEN taken >= p_limit;
        problem := NULL;
        BEGIN
            SELECT * INTO h FROM ledger_head WHERE run_id = candidate FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                CONTINUE WHEN EXISTS (SELECT 1 FROM ledger_head WHERE run_id = candidate);
                problem := 'its head is missing';
            ELSE
                SELECT * INTO r FROM runs_run WHERE id = candidate FOR UPDATE;
                CONTINUE WHEN r.is_solo <> p_solo OR r.ready_at IS NULL OR r.ready_at > clock_timestamp() OR r.state NOT IN ('pending', 'running', 'compensating')
                    OR (r.state = 'pending' AND (r.is_queued OR r.start_before <= clock_timestamp()));
                SELECT CASE e.kind WHEN 'RunCreated' THEN 'start' WHEN 'StartPlanned' THEN 'start' WHEN 'RunAdmitted' THEN 'start'
                                   WHEN 'WorkerLost' THEN 'recovered' WHEN 'RunReleased' THEN 'released'
                                   WHEN 'RunResumed' THEN 'resumed' WHEN 'RunRetried' THEN 'retried' ELSE 'resolved' END
                INTO cause FROM ledger_event e WHERE e.run_id = candidate AND e.seq = h.seq;
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
            RETURN NEXT (h.run_id, r.graph_id, r.generation, r.trace_id, r.created_by, h.epoch, h.lease, h.seq, clock_timestamp(),
                         h.is_pause_requested, h.is_cancel_requested, h.is_on_hold, r.is_solo, NULL)::runs_candidate;
        ELSE
            RETURN NEXT (candidate, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp(), NULL, NULL, NULL, NULL, problem)::runs_candidate;
        END IF;
    END LOOP;
END $$;
