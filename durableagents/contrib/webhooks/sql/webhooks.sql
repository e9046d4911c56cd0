-- Messages are written in the transaction of the change that they report, so they exist if and only if it is committed. The triggers'
-- conditions are checked before any function is called, so a step that neither ends nor parks a run costs nothing. Without webhooks, other
-- steps only read an empty table.

-- Write a message for each webhook that matches. Messages for a paused webhook are kept until it is resumed.
CREATE OR REPLACE FUNCTION webhooks_tell(p_event text, p_run uuid, p_queue text, p_facts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM webhooks_webhook w WHERE w.state IN ('active', 'paused') AND p_event = ANY (w.events)) THEN
        RETURN;
    END IF;
    INSERT INTO webhooks_message (webhook_id, message, event, run_id, facts, at, state, due_at, attempts, note)
    SELECT w.id, gen_random_uuid(), p_event, p_run, p_facts || jsonb_build_object(
               'agent', r.agent, 'version', r.version, 'business_key', nullif(r.business_key, '')),
           clock_timestamp(), 'waiting', clock_timestamp(), 0, ''
    FROM webhooks_webhook w JOIN runs_run r ON r.id = p_run
    WHERE w.state IN ('active', 'paused') AND p_event = ANY (w.events)
      AND (w.agent = '' OR w.agent = r.agent)
      AND (w.key_prefix = '' OR starts_with(r.business_key, w.key_prefix))
      AND (w.started_by IS NULL OR w.started_by = r.creator)
      AND (w.queue = '' OR p_queue IS NULL OR w.queue = p_queue)
      AND (w.tag = '' OR EXISTS (SELECT FROM runs_runtag t WHERE t.run_id = p_run AND t.tag = w.tag));
END $$;

-- Trigger: a run ended or began to wait.
CREATE OR REPLACE FUNCTION webhooks_on_run() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM webhooks_tell(
        'run.' || CASE WHEN NEW.state LIKE 'waiting%' THEN 'waiting' ELSE NEW.state END, NEW.id, NULL,
        jsonb_build_object('state', NEW.state, 'error_code', nullif(NEW.error_code, ''), 'continued_as', NEW.goes_on_as, 'parent', NEW.parent));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER webhooks_run_changed AFTER UPDATE OF state ON runs_run
    FOR EACH ROW WHEN (OLD.state <> NEW.state
        AND NEW.state IN ('completed', 'failed', 'cancelled', 'waiting_human', 'waiting_tool', 'waiting_event'))
    EXECUTE FUNCTION webhooks_on_run();

-- Trigger: a run stopped for an operator or its budget, or the outcome of a call is unknown.
CREATE OR REPLACE FUNCTION webhooks_on_wait() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM webhooks_tell(
        CASE WHEN NEW.kind = 'reconcile' THEN 'run.outcome_unknown' ELSE 'run.stopped' END, NEW.run_id, NULL,
        jsonb_build_object('wait_id', NEW.id, 'wait', NEW.kind, 'slot', NEW.slot, 'attempt', NEW.attempt));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER webhooks_wait_opened AFTER INSERT ON runs_wait
    FOR EACH ROW WHEN (NEW.kind IN ('reconcile', 'operator', 'budget') AND NEW.resolved_at IS NULL)
    EXECUTE FUNCTION webhooks_on_wait();

-- Trigger: an approval was opened or reopened, or is no longer open.
CREATE OR REPLACE FUNCTION webhooks_on_approval() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM webhooks_tell(
        CASE WHEN NEW.state = 'open' THEN 'approval.opened' ELSE 'approval.decided' END, NEW.run_id, NEW.queue,
        jsonb_build_object('approval_id', NEW.id, 'queue', NEW.queue, 'tool', NEW.tool, 'state', NEW.state, 'revision', NEW.revision,
                           'deadline', to_char(NEW.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER webhooks_approval_opened AFTER INSERT ON approvals_approval
    FOR EACH ROW WHEN (NEW.state = 'open') EXECUTE FUNCTION webhooks_on_approval();
CREATE OR REPLACE TRIGGER webhooks_approval_changed AFTER UPDATE OF state ON approvals_approval
    FOR EACH ROW WHEN (OLD.state <> NEW.state AND 'open' IN (OLD.state, NEW.state)) EXECUTE FUNCTION webhooks_on_approval();

-- Remove a limited number of messages older than 30 days, with their attempts. Return how many were removed. This is the only way in which
-- the runtime role can remove attempts.
CREATE OR REPLACE FUNCTION webhooks_forget(p_limit int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    ignored text := coalesce(nullif(current_setting('pgtrigger.ignore', true), ''), '{}');
    ids bigint[];
BEGIN
    SELECT array_agg(m.id) INTO ids FROM (
        SELECT id FROM public.webhooks_message WHERE at < clock_timestamp() - interval '30 days' ORDER BY at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) m;
    PERFORM set_config('pgtrigger.ignore', (SELECT array_agg(tgname)::text FROM pg_trigger
        WHERE NOT tgisinternal AND tgname LIKE 'pgtrigger\_%' AND tgrelid = 'public.webhooks_attempt'::regclass), true);
    DELETE FROM public.webhooks_attempt WHERE message_id = ANY (ids);
    PERFORM set_config('pgtrigger.ignore', ignored, true);
    DELETE FROM public.webhooks_message WHERE id = ANY (ids);
    RETURN coalesce(cardinality(ids), 0);
END $$;
