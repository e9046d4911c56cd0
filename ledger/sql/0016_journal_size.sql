-- How large a run's journal is: the head counts its bytes as they are stored. Of journals from before there was a count nobody knows it
-- (null), and it stays so.

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
        h.bytes := h.bytes + octet_length(line.clear) + coalesce(octet_length(line.sealed), 0);
    END LOOP;
    RETURN h;
END $$;

-- Store what ledger_append returned. PL/pgSQL, like all that a step runs, because it keeps its plans on every server version.
CREATE OR REPLACE FUNCTION ledger_store(h ledger_head) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger_head SET
        epoch = h.epoch, lease = h.lease, seq = h.seq, claimed_seq = h.claimed_seq, deaths = h.deaths, chain = h.chain,
        is_pause_requested = h.is_pause_requested, is_cancel_requested = h.is_cancel_requested, is_on_hold = h.is_on_hold,
        steps = h.steps, tokens_in = h.tokens_in, tokens_out = h.tokens_out, usd_micro = h.usd_micro,
        tool_calls = h.tool_calls, model_calls = h.model_calls, unpriced_calls = h.unpriced_calls, bytes = h.bytes
    WHERE run_id = h.run_id;
END $$;
