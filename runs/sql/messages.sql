-- Messages: requests that a run takes while it waits or works. The sender writes the row with its event, under the head's lock.
-- `outcome` is empty until the message is answered.

-- Record the outcome of the run's oldest unanswered message, and resolve the waits that end with it. If one of those has ended meanwhile (its
-- time ran out), nothing is written and the reply says so. An answer to any other message is refused, because messages are handled once, in
-- order.
CREATE OR REPLACE FUNCTION runs_answer_message(
    p_run uuid, p_epoch bigint, p_lease uuid, p_actor text, p_lines ledger_line[], p_n int, p_outcome text, p_waits uuid[]
) RETURNS runs_reply
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
    reply runs_reply;
    oldest int;
BEGIN
    h := ledger_lock(p_run, p_epoch, p_lease);
    IF EXISTS (SELECT 1 FROM runs_wait WHERE run_id = p_run AND id = ANY (p_waits) AND resolved_at IS NOT NULL) THEN
        RETURN runs_reply_of(h, false);
    END IF;
    SELECT n INTO oldest FROM runs_message WHERE run_id = p_run AND outcome = '' ORDER BY n LIMIT 1;
    IF oldest IS DISTINCT FROM p_n THEN
        RAISE EXCEPTION 'message % of run % is not the one to be answered, that is %', p_n, p_run, coalesce(oldest::text, 'none');
    END IF;
    reply := runs_record(p_run, p_epoch, p_lease, p_actor, p_lines, ARRAY[]::ledger_fact[], NULL, ROW(0, 0, 0, 0, 0)::runs_usage, NULL);
    UPDATE runs_wait SET resolution = 'received', resolved_by = 'system:engine', resolved_at = clock_timestamp()
    WHERE run_id = p_run AND id = ANY (p_waits);
    UPDATE runs_message SET outcome = p_outcome, answered_seq = e.seq
    FROM ledger_event e
    WHERE runs_message.run_id = p_run AND n = p_n AND e.run_id = p_run AND e.kind = 'MessageHandled'
      AND e.seq > reply.seq - cardinality(p_lines) AND e.seq <= reply.seq;
    RETURN reply;
END $$;

-- Close the messages of an ended run that were never answered. A retry doesn't reopen them.
CREATE OR REPLACE FUNCTION runs_end_messages(p_run uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE runs_message SET outcome = 'ended'
    WHERE run_id = p_run AND outcome = ''
      AND EXISTS (SELECT 1 FROM runs_run WHERE id = p_run AND state IN ('completed', 'failed', 'cancelled'));
END $$;
