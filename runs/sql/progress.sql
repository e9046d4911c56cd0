-- Store progress of nodes outside the journal and its chain: one run's batch, from the worker that drives it or was the last to do so. A worker
-- that lost the run stores nothing. Repeated lines of a replay are recognised by their number. Missing numbers belong to lines that were
-- dropped, and are counted. The newest `p_most` lines are kept. This takes none of a step's locks and does not wait for the disk.
CREATE OR REPLACE FUNCTION runs_keep_told(p_run uuid, p_epoch bigint, p_lease uuid, p_told jsonb, p_most int) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    t runs_telling;
    one jsonb;
    place text;
    said int;
    gone bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF NOT EXISTS (SELECT 1 FROM ledger_head WHERE run_id = p_run AND epoch = p_epoch AND (lease = p_lease OR lease IS NULL)) THEN
        RETURN false;
    END IF;
    INSERT INTO runs_telling (run_id, lines, lost, seen, note) VALUES (p_run, 0, 0, '{}', '') ON CONFLICT DO NOTHING;
    SELECT * INTO t FROM runs_telling WHERE run_id = p_run FOR UPDATE;
    FOR one IN SELECT * FROM jsonb_array_elements(p_told) LOOP
        place := one ->> 'place';
        said := coalesce((t.seen ->> place)::int, 0);
        CONTINUE WHEN (one ->> 'n')::int < said;
        IF NOT t.seen ? place THEN  -- visits before this one are over: nobody says anything of them again
            t.seen := coalesce((SELECT jsonb_object_agg(key, value) FROM jsonb_each(t.seen)
                                WHERE split_part(key, '/', 1) = split_part(place, '/', 1)), '{}');
        END IF;
        t.seen := t.seen || jsonb_build_object(place, (one ->> 'n')::int + 1);
        IF one ->> 'done' IS NOT NULL THEN
            t.done := one ->> 'done';
            t.total := one ->> 'of';
            t.note := one ->> 'text';
            t.at := (one ->> 'at')::timestamptz;
            IF t.since_epoch IS DISTINCT FROM p_epoch OR t.since_done > t.done THEN
                t.since_epoch := p_epoch;
                t.since_at := t.at;
                t.since_done := t.done;
            END IF;
        ELSE
            t.lost := t.lost + (one ->> 'n')::int - said;
            t.lines := t.lines + 1;
            INSERT INTO runs_logline (run_id, at, level, text) VALUES (p_run, (one ->> 'at')::timestamptz, one ->> 'level', one ->> 'text');
        END IF;
    END LOOP;
    IF t.lines > p_most THEN
        DELETE FROM runs_logline WHERE run_id = p_run
            AND id <= (SELECT id FROM runs_logline WHERE run_id = p_run ORDER BY id DESC OFFSET p_most LIMIT 1);
        GET DIAGNOSTICS gone = ROW_COUNT;
        t.lines := t.lines - gone;
        t.lost := t.lost + gone;
    END IF;
    UPDATE runs_telling SET lines = t.lines, lost = t.lost, seen = t.seen, done = t.done, total = t.total, note = t.note, at = t.at,
        since_epoch = t.since_epoch, since_at = t.since_at, since_done = t.since_done WHERE run_id = p_run;
    RETURN true;
END $$;
