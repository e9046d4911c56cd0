-- Signals that came before anybody waited for them. Both sides end here: whoever sends one, and a wait that opens.
-- Lock order as everywhere: Head, Run, Wait, the rest. The caller holds the head's lock, or takes it here.

-- Give the oldest signal of a name that no call took to the wait for that name that has been open the longest, if there are both.
-- Returns whether it did.
CREATE OR REPLACE FUNCTION runs_hand_over(p_run uuid, p_name text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    w runs_wait;
    s runs_signal;
    line bytea;
BEGIN
    h := ledger_lock(p_run, NULL, NULL);
    SELECT * INTO w FROM runs_wait
    WHERE run_id = p_run AND kind = 'signal' AND resolved_at IS NULL AND detail ->> 'name' = p_name ORDER BY opened_at, slot LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT * INTO s FROM runs_signal WHERE run_id = p_run AND name = p_name AND taken_by IS NULL ORDER BY n LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE runs_wait SET resolution = 'received', resolved_by = 'system:engine', resolved_at = clock_timestamp() WHERE id = w.id;
    UPDATE runs_signal SET taken_by = w.slot WHERE id = s.id;
    -- the same bytes that ledger/events.py gives for SignalTaken
    line := convert_to(format('{"attempt":%s,"kind":"SignalTaken","n":%s,"name":%s,"slot":%s}',
                              w.attempt, s.n, to_json(p_name), to_json(w.slot)), 'UTF8');
    h := ledger_append(h, ARRAY[ROW('SignalTaken', w.slot, w.attempt, 'result', line, NULL,
                                 sha256(line || decode(repeat('00', 32), 'hex')))::ledger_line]);
    PERFORM ledger_store(h);
    RETURN true;
END $$;
