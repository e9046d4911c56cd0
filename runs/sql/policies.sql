-- Policies: a call may be sent by the policies in force when its intent is written, not by older ones that a worker has cached.

-- Refuse a call that was not judged by the policies in force (DA060); the worker then judges it again. A change of policies takes the same lock
-- exclusively, so no call is sent by the old ones after it. The statement after the lock sees the previous holder's commit.
CREATE OR REPLACE FUNCTION runs_check_policies(p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
    is_call boolean := false;
    judged bigint;
    now_revision bigint;
    now_live int;
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        IF line.kind IN ('ToolInvoked', 'ToolRedispatched') THEN
            is_call := true;
        ELSIF line.kind = 'PolicyApplied' THEN
            judged := (convert_from(line.clear, 'UTF8')::json ->> 'revision')::bigint;
        END IF;
    END LOOP;
    IF NOT is_call THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('policies', 60));
    SELECT p.revision, p.live INTO now_revision, now_live FROM runs_policyrevision p ORDER BY p.revision DESC LIMIT 1;
    IF judged IS NOT DISTINCT FROM now_revision OR judged IS NULL AND now_live = 0 THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'the call was judged by the policies of revision %, in force are those of %', coalesce(judged, 0), coalesce(now_revision, 0)
        USING ERRCODE = 'DA060';
END $$;

-- Take the lock for a change of policies. It waits at most a second for intents in progress, because later ones queue behind it.
CREATE OR REPLACE FUNCTION runs_policies_alone() RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('policies', 60));
END $$;
