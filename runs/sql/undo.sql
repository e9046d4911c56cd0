-- Trigger: once a run has entered the node `_undo` (a name no agent can use), it is `compensating` whichever call wakes or resumes it, and
-- neither a cancel request nor a cap stops it. It fires before the trigger that refuses illegal transitions, because triggers fire in the order
-- of their names.
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
