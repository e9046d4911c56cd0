-- Store what ledger_append returned. PL/pgSQL, like all that a step runs, because it keeps its plans on every server version.
CREATE OR REPLACE FUNCTION ledger_store(h ledger_head) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger_head SET
        epoch = h.epoch, lease = h.lease, seq = h.seq, claimed_seq = h.claimed_seq, deaths = h.deaths, chain = h.chain,
        is_pause_requested = h.is_pause_requested, is_cancel_requested = h.is_cancel_requested, is_on_hold = h.is_on_hold,
        steps = h.steps, tokens_in = h.tokens_in, tokens_out = h.tokens_out, usd_micro = h.usd_micro,
        tool_calls = h.tool_calls, model_calls = h.model_calls, unpriced_calls = h.unpriced_calls
    WHERE run_id = h.run_id;
END $$;
