-- Facts to count, written in the transaction of the event itself. The triggers' conditions are checked before any function is called, so an
-- ordinary call costs nothing. Rows that retention restores are not counted again.

-- Trigger: an event that is counted. The collector reads it by run and number.
CREATE OR REPLACE FUNCTION metrics_on_event() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('durableagents.restores', true) IS DISTINCT FROM 'on' THEN
        INSERT INTO metrics_fact (kind, run_id, seq, name, queue) VALUES ('event', NEW.run_id, NEW.seq, NEW.kind, '');
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER metrics_event AFTER INSERT ON ledger_event
    FOR EACH ROW WHEN (NEW.kind IN ('RunCreated', 'RunCompleted', 'RunFailed', 'RunCancelled', 'BudgetDebited', 'ModelRouted', 'ModelFailed',
                                    'ToolOutcomeUnknown', 'ToolRedispatched'))
    EXECUTE FUNCTION metrics_on_event();

-- Trigger: a recovery.
CREATE OR REPLACE FUNCTION metrics_on_incident() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('durableagents.restores', true) IS DISTINCT FROM 'on' THEN
        INSERT INTO metrics_fact (kind, run_id, seq, name, queue) VALUES ('incident', NEW.run_id, NEW.seq, NEW.cause, '');
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER metrics_incident AFTER INSERT ON runs_incident FOR EACH ROW EXECUTE FUNCTION metrics_on_incident();

-- Trigger: a wait was resolved, in any way.
CREATE OR REPLACE FUNCTION metrics_on_wait() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO metrics_fact (kind, run_id, name, queue, seconds)
    VALUES ('wait', NEW.run_id, NEW.kind,
            coalesce(CASE NEW.kind WHEN 'approval' THEN NEW.detail ->> 'queue' WHEN 'input' THEN NEW.detail ->> 'of' END, ''),
            greatest(extract(epoch FROM NEW.resolved_at - NEW.opened_at), 0));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER metrics_wait AFTER UPDATE OF resolved_at ON runs_wait
    FOR EACH ROW WHEN (OLD.resolved_at IS NULL AND NEW.resolved_at IS NOT NULL) EXECUTE FUNCTION metrics_on_wait();
