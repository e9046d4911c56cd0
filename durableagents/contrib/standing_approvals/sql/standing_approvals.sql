-- Trigger: an approval is consumed, in the transaction of the call's intent. Of the approvals of that call, the last one of each queue
-- counts. An approval that a revoked standing approval gave can't be used: DA003 is raised, its detail names the question, and the question
-- is asked again. A revocation locks the waits that the standing approval answered until it commits, so it happens either before this
-- statement or after it.
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

-- Return whether a standing approval may answer a question with this digest of the call. If so, the question's notice can wait.
CREATE OR REPLACE FUNCTION approvals_may_be_answered(p_same text) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM approvals_standinggrant g WHERE g.same = p_same AND g.until > clock_timestamp());
$$;
