-- Return true for an open queue, and for a name that belongs to no queue (but to a role). The row stays locked until the transaction ends: a
-- queue is closed or removed either before the question, which is then refused (DA059, detail: the queue and its state), or after it.
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

-- Trigger: write the seats of a decision. A person, with those they act for, has one seat in all stages of a case. The owner writes them, so a role
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
