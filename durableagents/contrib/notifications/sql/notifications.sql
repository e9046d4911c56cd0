-- Notices are written in the transaction of the event that they report, so they exist if and only if it is committed. The sender determines
-- recipients and texts later. The triggers' conditions are checked before any function is called, so a step without a notice costs nothing.

-- Add a notice of an event. It is added only once, however often the event is reported. All notices are added by this function.
CREATE OR REPLACE FUNCTION approvals_tell(
    p_fact text, p_kind text, p_run uuid, p_approval uuid, p_wait uuid, p_person bigint, p_about text, p_due timestamptz
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO approvals_notice (fact, kind, run_id, approval_id, wait_id, person, about, state, note, at, due_at)
    VALUES (p_fact, p_kind, p_run, p_approval, p_wait, p_person, p_about, 'new', '', clock_timestamp(), coalesce(p_due, clock_timestamp()))
    ON CONFLICT (fact) DO NOTHING;
$$;

-- Trigger: a question was opened. If a standing approval may answer it, the notice waits some seconds, because the answer usually comes first.
CREATE OR REPLACE FUNCTION approvals_on_gate() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM approvals_tell(
        'opened:' || NEW.id || CASE WHEN TG_OP = 'UPDATE' THEN ':' || extract(epoch FROM clock_timestamp()) ELSE '' END,
        'opened', NEW.run_id, NEW.id, NEW.wait_id, NULL, '',
        CASE WHEN NEW.same IS NOT NULL AND approvals_may_be_answered(NEW.same) THEN clock_timestamp() + interval '5 seconds' END);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_gate_opened AFTER INSERT ON approvals_approval
    FOR EACH ROW WHEN (NEW.state = 'open') EXECUTE FUNCTION approvals_on_gate();
CREATE OR REPLACE TRIGGER approvals_gate_reopened AFTER UPDATE OF state ON approvals_approval
    FOR EACH ROW WHEN (NEW.state = 'open' AND OLD.state <> 'open') EXECUTE FUNCTION approvals_on_gate();

-- Trigger: a run waits for people (operator, unknown outcome, question, budget), or has waited longer than allowed.
CREATE OR REPLACE FUNCTION approvals_on_wait() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    kind text := CASE WHEN TG_OP = 'UPDATE' THEN 'overdue' WHEN NEW.kind = 'reconcile' THEN 'unknown_outcome'
                      WHEN NEW.kind = 'operator' THEN 'operator_stop' WHEN NEW.kind = 'input' THEN 'question' ELSE NEW.kind END;
BEGIN
    PERFORM approvals_tell(kind || ':' || NEW.id, kind, NEW.run_id, NULL, NEW.id, NULL, '', NULL);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_wait_opened AFTER INSERT ON runs_wait
    FOR EACH ROW WHEN (NEW.kind IN ('reconcile', 'operator', 'input', 'budget') AND NEW.resolved_at IS NULL)
    EXECUTE FUNCTION approvals_on_wait();
CREATE OR REPLACE TRIGGER approvals_wait_overdue AFTER UPDATE OF is_overdue ON runs_wait
    FOR EACH ROW WHEN (NEW.is_overdue AND NOT OLD.is_overdue AND NEW.kind IN ('reconcile', 'operator', 'budget'))
    EXECUTE FUNCTION approvals_on_wait();

-- Trigger: a run failed. After a retry it may fail again, at another event.
CREATE OR REPLACE FUNCTION approvals_on_failure() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM approvals_tell('failed:' || NEW.id || ':' || coalesce(NEW.end_seq, extract(epoch FROM clock_timestamp())::bigint),
                           'failed', NEW.id, NULL, NULL, NULL, '', NULL);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_run_failed AFTER UPDATE OF state ON runs_run
    FOR EACH ROW WHEN (NEW.state = 'failed' AND OLD.state <> 'failed') EXECUTE FUNCTION approvals_on_failure();

-- Trigger: a run completed or was cancelled. Its starter is notified if they chose to be. A run that was continued as another one doesn't
-- count as ended.
CREATE OR REPLACE FUNCTION approvals_on_end() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM approvals_preference p WHERE p.person = NEW.creator AND p.ways -> 'ended' ->> 0 IS NOT NULL) THEN
        PERFORM approvals_tell('ended:' || NEW.id || ':' || coalesce(NEW.end_seq, extract(epoch FROM clock_timestamp())::bigint),
                               'ended', NEW.id, NULL, NULL, NEW.creator, '', NULL);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_run_ended AFTER UPDATE OF state ON runs_run
    FOR EACH ROW WHEN (NEW.state IN ('completed', 'cancelled') AND OLD.state <> NEW.state AND NEW.creator IS NOT NULL
                       AND NEW.parent IS NULL AND NEW.goes_on_as IS NULL)
    EXECUTE FUNCTION approvals_on_end();
