-- Undo: a run that is to end may have effects that can be undone. From the commit on that enters the node `_undo` (which no agent can have) it is
-- at work as `compensating`, whoever wakes or resumes it, and neither a wish to cancel nor a cap of its own stands in its way any more.

-- Trigger: the state of a run that undoes. It fires before the one that refuses illegal moves: triggers go by their names.
CREATE OR REPLACE FUNCTION runs_keep_undoing() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.node <> NEW.node THEN
        NEW.time_up_at := NULL;
        UPDATE ledger_head SET is_cancel_requested = false, cap_steps = NULL, cap_tokens_in = NULL, cap_tokens_out = NULL, cap_usd_micro = NULL,
            cap_tool_calls = NULL, cap_model_calls = NULL
        WHERE run_id = NEW.id;
    END IF;
    IF NEW.state = 'running' THEN
        NEW.state := 'compensating';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER keeps_undoing BEFORE UPDATE ON runs_run
    FOR EACH ROW WHEN (NEW.node = '_undo') EXECUTE FUNCTION runs_keep_undoing();

-- Set aside what an intent wants, in each pool that it belongs to; or RAISE, and nothing is written. A tool's call is used by being begun.
-- What a run undoes counts too, and is refused for want of room nowhere.
CREATE OR REPLACE FUNCTION runs_draw(p_run uuid, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
    m runs_poolmeter;
    said json;
    wanted bigint;
    is_let_in boolean;
    pools bigint[];
    is_undoing boolean;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM runs_pool WHERE off_at IS NULL) THEN
        RETURN;
    END IF;
    is_undoing := EXISTS (SELECT 1 FROM runs_run WHERE id = p_run AND node = '_undo');
    FOREACH line IN ARRAY p_lines LOOP
        CONTINUE WHEN line.kind NOT IN ('ToolInvoked', 'ModelRouted');
        said := convert_from(line.clear, 'UTF8')::json;
        pools := runs_pools_of(p_run, split_part(said ->> 'model', ':', 1));
        FOR m IN SELECT * FROM runs_poolmeter WHERE pool_id = ANY (pools) ORDER BY pool_id FOR UPDATE LOOP
            wanted := runs_pool_amount(m.resource, line.kind, said);
            CONTINUE WHEN wanted = 0 OR NOT m.is_on;
            m := runs_pool_turn(m);
            IF wanted IS NULL THEN
                RAISE EXCEPTION 'pool % counts dollars, and % has no price', m.pool_id, said ->> 'model'
                    USING ERRCODE = 'DA006', DETAIL = json_build_object('pool', m.pool_id, 'model', said ->> 'model')::text;
            END IF;
            is_let_in := m.gate_at IS NOT NULL AND EXISTS (
                SELECT 1 FROM runs_wait WHERE run_id = p_run AND slot = line.slot AND attempt = line.attempt AND kind = 'pool'
                AND resolution = 'let_in' AND detail ->> 'pool' = m.pool_id::text);
            IF NOT is_undoing AND (m.used + m.reserved + wanted > m.most OR m.gate_at IS NOT NULL AND NOT is_let_in) THEN
                RAISE EXCEPTION 'pool % has no room for slot % of run %', m.pool_id, line.slot, p_run USING ERRCODE = 'DA005', DETAIL = (
                    SELECT json_build_object('pool', m.pool_id, 'name', p.name, 'resource', m.resource, 'wanted', wanted, 'most', m.most,
                                             'refills_at', m.ends_at)::text FROM runs_pool p WHERE p.id = m.pool_id);
            END IF;
            IF m.resource = 'tool_calls' THEN
                m.used := m.used + wanted;
            ELSE
                m.reserved := m.reserved + wanted;
            END IF;
            UPDATE runs_poolmeter SET used = m.used, reserved = m.reserved, promised = CASE WHEN is_let_in THEN greatest(0, promised - wanted) ELSE promised END,
                warned_at = CASE WHEN (m.used + m.reserved) * 5 >= m.most * 4 THEN coalesce(warned_at, clock_timestamp()) ELSE warned_at END
            WHERE pool_id = m.pool_id;
            IF m.warned_at IS NULL AND (m.used + m.reserved) * 5 >= m.most * 4 THEN
                PERFORM runs_pool_notice(m, 'warning');
            END IF;
            INSERT INTO runs_poolcharge (run_id, slot, attempt, n, pool_id, starts_at, reserved, used)
            VALUES (p_run, line.slot, line.attempt, coalesce((said ->> 'n')::int, 0), m.pool_id, m.starts_at, wanted,
                    CASE m.resource WHEN 'tool_calls' THEN wanted END);
        END LOOP;
    END LOOP;
END $$;
