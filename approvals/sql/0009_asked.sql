-- Whether people may be asked at a queue, asked in the transaction that opens the question.

-- True of an open queue, and of a name that is no queue's (a role's). The row is held until the transaction ends: a queue is closed or removed
-- wholly before the question, which is refused then (DA059, with the queue and its state in the detail), or wholly after, and sees it open.
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
