-- Budgets of one run. Counters and caps are columns of the head, which a step has locked anyway. The worker checks the caps before it sends an
-- intent (runs/engine/budget.py); the check here applies if a cap was lowered meanwhile (DA004).

-- Refuse an intent that would exceed a cap (DA004). A run that is over a cap may still begin a call that doesn't use that resource: the worker
-- counts in the same way (runs/engine/budget.py), and would otherwise retry forever. The worker knows the reservations of other calls; the head
-- doesn't. A child uses its whole budget.
CREATE OR REPLACE FUNCTION runs_afford(h ledger_head, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
    said json;
    broken text;
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        broken := NULL;
        IF line.kind = 'ToolInvoked' THEN
            broken := CASE WHEN h.steps + 1 > h.cap_steps THEN 'steps' WHEN h.tool_calls + 1 > h.cap_tool_calls THEN 'tool_calls' END;
        ELSIF line.kind IN ('ModelRouted', 'ChildStarted') THEN
            said := convert_from(line.clear, 'UTF8')::json;
            said := CASE line.kind WHEN 'ChildStarted' THEN said -> 'caps' ELSE (said::jsonb || '{"steps": 1, "model_calls": 1}')::json END;
            broken := CASE
                WHEN (said ->> 'steps')::bigint > 0 AND h.steps + (said ->> 'steps')::bigint > h.cap_steps THEN 'steps'
                WHEN (said ->> 'tool_calls')::bigint > 0 AND h.tool_calls + (said ->> 'tool_calls')::bigint > h.cap_tool_calls THEN 'tool_calls'
                WHEN (said ->> 'model_calls')::bigint > 0 AND h.model_calls + (said ->> 'model_calls')::bigint > h.cap_model_calls THEN 'model_calls'
                WHEN (said ->> 'tokens_in')::bigint > 0 AND h.tokens_in + (said ->> 'tokens_in')::bigint > h.cap_tokens_in THEN 'tokens_in'
                WHEN (said ->> 'tokens_out')::bigint > 0 AND h.tokens_out + (said ->> 'tokens_out')::bigint > h.cap_tokens_out THEN 'tokens_out'
                WHEN (said ->> 'usd_micro')::bigint > 0 AND h.usd_micro + (said ->> 'usd_micro')::bigint > h.cap_usd_micro THEN 'usd_micro'
            END;
        END IF;
        IF broken IS NOT NULL THEN
            RAISE EXCEPTION 'the budget of run % has no % left for slot %', h.run_id, broken, line.slot USING ERRCODE = 'DA004';
        END IF;
    END LOOP;
END $$;

-- Book a debit on a locked head, which the caller stores.
CREATE OR REPLACE FUNCTION runs_debit(h ledger_head, p_line ledger_line) RETURNS ledger_head
LANGUAGE plpgsql AS $$
DECLARE
    said json := convert_from(p_line.clear, 'UTF8')::json;
BEGIN
    h.model_calls := h.model_calls + (said ->> 'model_calls')::int;
    h.tokens_in := h.tokens_in + (said ->> 'tokens_in')::bigint;
    h.tokens_out := h.tokens_out + (said ->> 'tokens_out')::bigint;
    h.usd_micro := h.usd_micro + coalesce((said ->> 'usd_micro')::bigint, 0);
    IF said ->> 'usd_micro' IS NULL THEN
        h.unpriced_calls := h.unpriced_calls + (said ->> 'model_calls')::int;
    END IF;
    RETURN h;
END $$;
