-- Trigger: close the claims of a question that was decided, expired, withdrawn or amended.
CREATE OR REPLACE FUNCTION approvals_end_claims() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
BEGIN
    UPDATE approvals_claim SET ended_at = greatest(at, least(until, now_at)), why = CASE WHEN until <= now_at THEN 'lapsed' ELSE 'closed' END
    WHERE approval_id = NEW.id AND ended_at IS NULL;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_end_claims AFTER UPDATE OF state ON approvals_approval
    FOR EACH ROW WHEN (OLD.state = 'open' AND NEW.state <> 'open') EXECUTE FUNCTION approvals_end_claims();

-- Trigger: close the claim of a person who has voted, while the question stays open for others.
CREATE OR REPLACE FUNCTION approvals_end_own_claims() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
BEGIN
    UPDATE approvals_claim c SET ended_at = greatest(c.at, least(c.until, now_at)), ended_by = CASE WHEN c.until <= now_at THEN '' ELSE d.by END,
        why = CASE WHEN c.until <= now_at THEN 'lapsed' ELSE 'said' END
    FROM approvals_decision d
    WHERE d.id = NEW.decision_id AND c.approval_id = d.approval_id AND c.person = NEW.person AND c.ended_at IS NULL;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_end_own_claims AFTER INSERT ON approvals_seat
    FOR EACH ROW EXECUTE FUNCTION approvals_end_own_claims();
