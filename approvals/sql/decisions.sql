-- Return true for an open queue and for a name that is no queue's (a role's). The row stays locked until the transaction ends, so that a queue
-- is closed or removed either before the question, which is then refused (DA059, detail: the queue and its state), or after it.
CREATE OR REPLACE FUNCTION approvals_may_ask(p_name text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    SELECT state INTO found FROM approvals_queue WHERE name = p_name FOR SHARE;
    IF found <> 'open' THEN
        RAISE EXCEPTION 'the queue % is %', p_name, found
        USING ERRCODE = 'DA059', DETAIL = json_build_object('queue', p_name, 'state', found)::text;
    END IF;
    RETURN true;
END $$;

-- Trigger: the seats of a decision. One person, with those they act for, has one seat in all stages of a case. The owner writes them, so a role
-- that may add decisions can neither omit nor remove a seat: the second of two votes by one person cannot be written.
CREATE OR REPLACE FUNCTION approvals_take_seats() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO approvals_seat (case_id, person, decision_id)
    SELECT coalesce(a.case_id, a.id), p.person, NEW.id
    FROM approvals_approval a,
         (SELECT NEW.person UNION SELECT (NEW.standing #>> '{deputy_of,person}')::bigint) AS p (person)
    WHERE a.id = NEW.approval_id AND p.person IS NOT NULL;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_take_seats AFTER INSERT ON approvals_decision
    FOR EACH ROW EXECUTE FUNCTION approvals_take_seats();

-- Trigger: an approval is consumed, in the transaction of the call's intent. Of the approvals of that call, the last of each queue counts. One
-- that a revoked standing approval gave refuses the use (DA003; the detail names its question, which is then asked again). Revoking one locks
-- the waits that it answered until it commits, so it happens either before this statement or after it.
CREATE OR REPLACE FUNCTION approvals_on_use() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    question uuid;
    taken bigint;
BEGIN
    PERFORM 1 FROM approvals_standinguse u JOIN approvals_approval a ON a.id = u.approval_id JOIN runs_wait w ON w.id = a.wait_id
    WHERE u.run_id = NEW.run_id AND w.slot IN (NEW.slot, NEW.consumed_by) AND w.id <> NEW.id
    FOR SHARE OF w;
    SELECT a.id, u.grant_id INTO question, taken
    FROM approvals_standinguse u JOIN approvals_standingend e ON e.grant_id = u.grant_id
    JOIN approvals_approval a ON a.id = u.approval_id AND a.state = 'approved' JOIN runs_wait w ON w.id = a.wait_id
    WHERE u.run_id = NEW.run_id AND w.run_id = NEW.run_id AND w.slot IN (NEW.slot, NEW.consumed_by)
      AND NOT EXISTS (
          SELECT 1 FROM approvals_approval z JOIN runs_wait y ON y.id = z.wait_id
          WHERE z.run_id = NEW.run_id AND z.queue = a.queue AND z.state = 'approved' AND z.opened_at > a.opened_at AND y.slot = w.slot)
    ORDER BY a.opened_at LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'standing grant % was taken back before its yes to slot % of run % was used', taken, NEW.consumed_by, NEW.run_id
            USING ERRCODE = 'DA003', DETAIL = json_build_object('approval', question, 'grant', taken)::text;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_yes_used AFTER UPDATE OF consumed_at ON runs_wait
    FOR EACH ROW WHEN (NEW.kind = 'approval' AND NEW.consumed_at IS NOT NULL AND NEW.consumed_at IS DISTINCT FROM OLD.consumed_at)
    EXECUTE FUNCTION approvals_on_use();
