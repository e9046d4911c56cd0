-- Events carry a keyed code (ledger/codes.py). A writer hands it in behind the digest, in `line.body`: the type stays as it is, so that
-- processes of the version before, whose body is the digest alone, write beside newer ones while an upgrade is under way.

-- Append events to a locked head and return the head as it must be stored; the caller stores it once. Sequence number and link
-- are assigned here, under the lock, so that seq is gapless and the chain has one order whoever writes.
--     hash = sha256(prev ‖ seq ‖ epoch ‖ microseconds ‖ body)     (see ledger/chain.py)
CREATE OR REPLACE FUNCTION ledger_append(h ledger_head, p_lines ledger_line[]) RETURNS ledger_head
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
    t timestamptz;
    link bytea;
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        t := clock_timestamp();
        h.seq := h.seq + 1;
        link := sha256(h.chain || int8send(h.seq) || int8send(h.epoch)
                       || int8send((extract(epoch FROM t) * 1000000)::bigint) || substring(line.body FROM 1 FOR 32));
        INSERT INTO ledger_event (run_id, seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, hash, code)
        VALUES (h.run_id, h.seq, h.epoch, t, line.kind, line.slot, line.attempt, line.fact, line.clear, line.sealed, h.chain, link,
                CASE WHEN length(line.body) > 32 THEN substring(line.body FROM 33) END);
        h.chain := link;
    END LOOP;
    RETURN h;
END $$;

-- The upgrade is over: from here on every event must have its code. What lacks one is noted down, run by run, as far as it goes.
-- For the owner alone: the runtime role may only read the table. Locks it first, so that two who say so at once don't meet.
CREATE OR REPLACE FUNCTION ledger_demand_codes(p_kinds text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    marked bigint := 0;
BEGIN
    LOCK TABLE ledger_uncoded IN EXCLUSIVE MODE;
    IF EXISTS (SELECT 1 FROM ledger_uncoded WHERE run_id = '00000000-0000-0000-0000-000000000000') THEN
        INSERT INTO ledger_uncoded (run_id, seq)
        SELECT run_id, max(seq) FROM ledger_event WHERE code IS NULL AND kind <> ALL (p_kinds) GROUP BY run_id
        ON CONFLICT (run_id) DO UPDATE SET seq = greatest(ledger_uncoded.seq, excluded.seq);
        GET DIAGNOSTICS marked = ROW_COUNT;
        DELETE FROM ledger_uncoded WHERE run_id = '00000000-0000-0000-0000-000000000000';
    END IF;
    RETURN marked;
END $$;
