-- Erasure of a run's content (../erasure.py). The runtime role may neither delete keys nor change the rows below; these functions run as the
-- tables' owner and check everything themselves, since a compromised process may call them: it can erase only runs that have ended, and only
-- those whose journal ends with the event of the erasure.
-- SQLSTATE: DA087 refused; nothing was changed.

-- Return why a run can't be erased now, or null. The caller has locked its head.
CREATE OR REPLACE FUNCTION encryption_why_not(p_run uuid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r public.runs_run;
    other uuid;
    n bigint;
BEGIN
    SELECT * INTO r FROM public.runs_run WHERE id = p_run;
    IF NOT FOUND THEN
        RETURN 'it does not exist';
    ELSIF r.ended_at IS NULL OR r.state NOT IN ('completed', 'failed', 'cancelled') OR r.owner IS NOT NULL OR r.ready_at IS NOT NULL THEN
        RETURN format('it is %s: only a run that has ended can be erased', CASE r.state
            WHEN 'waiting_human' THEN 'waiting for a person' WHEN 'waiting_tool' THEN 'waiting for a tool'
            WHEN 'waiting_event' THEN 'waiting for an event' ELSE r.state END);
    ELSIF EXISTS (SELECT FROM public.runs_wait w WHERE w.run_id = p_run AND w.resolved_at IS NULL) THEN
        RETURN 'something is still waited for in it';
    ELSIF r.business_key <> '' AND NOT r.is_passed_on THEN
        RETURN 'runs of its business key have not heard of its end yet: try again in a moment';
    ELSIF r.parent IS NOT NULL AND NOT r.is_told THEN
        RETURN 'its parent has not heard of its end yet: try again in a moment';
    END IF;
    -- A call was sent, or may have been, and no outcome is on record.
    SELECT count(*) INTO n FROM public.ledger_ledgerentry p
    WHERE p.run_id = p_run AND p.fact IN ('pending', 'unknown') AND NOT EXISTS (
        SELECT FROM public.ledger_ledgerentry s WHERE s.run_id = p.run_id AND s.slot = p.slot AND s.attempt >= p.attempt AND s.id > p.id
        AND s.fact IN ('committed', 'failed', 'reconciled', 'compensated'));
    IF n > 0 THEN
        RETURN CASE WHEN n = 1 THEN '1 of its calls has no known outcome: settle it on Reconcile'
            ELSE format('%s of its calls have no known outcome: settle them on Reconcile', n) END;
    END IF;
    -- Active relatives may still read its content, or undo its effects.
    WITH RECURSIVE above AS (
        SELECT p.id, p.parent, p.ended_at FROM public.runs_run p WHERE p.id = r.parent
        UNION ALL SELECT p.id, p.parent, p.ended_at FROM public.runs_run p JOIN above ON p.id = above.parent)
    SELECT id INTO other FROM above WHERE ended_at IS NULL LIMIT 1;
    IF other IS NOT NULL THEN
        RETURN format('run %s, which started it, is still active and may undo or read it', other);
    END IF;
    SELECT id INTO other FROM public.runs_run WHERE parent = p_run AND (ended_at IS NULL OR NOT is_told) LIMIT 1;
    IF other IS NOT NULL THEN
        RETURN format('run %s, its child, is still active', other);
    END IF;
    IF to_regclass('public.approvals_standinggrant') IS NOT NULL THEN
        SELECT g.id INTO n FROM public.approvals_standinggrant g
        WHERE g.run_id = p_run AND NOT g.is_of_run AND g.until > clock_timestamp()
          AND NOT EXISTS (SELECT FROM public.approvals_standingend x WHERE x.grant_id = g.id) LIMIT 1;
        IF FOUND THEN
            RETURN format('standing approval %s, given in it, is in force and holds some of its arguments: revoke it first', n);
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- Destroy the key of a run that has ended, and every copy of its content that the key doesn't cover; add an entry to the register. Who, when and
-- why come from the run's last event. All of it happens in one transaction. Digests and codes of the journal stay, so its chain still verifies.
CREATE OR REPLACE FUNCTION encryption_erase(p_run uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    h public.ledger_head;
    event public.ledger_event;
    said jsonb;
    why text;
    ignored text := coalesce(nullif(current_setting('pgtrigger.ignore', true), ''), '{}');
BEGIN
    SELECT * INTO h FROM public.ledger_head WHERE run_id = p_run FOR UPDATE;
    PERFORM FROM public.runs_run WHERE id = p_run FOR UPDATE;
    why := public.encryption_why_not(p_run);
    SELECT * INTO event FROM public.ledger_event WHERE run_id = p_run AND seq = h.seq;
    IF why IS NULL AND event.kind IS DISTINCT FROM 'ContentErased' THEN
        why := 'its journal does not end with the event that says so';
    END IF;
    IF why IS NULL THEN
        DELETE FROM public.encryption_runkey WHERE run_id = p_run;
        why := CASE WHEN NOT FOUND THEN 'it has no key: it is not encrypted, or was erased before' END;
    END IF;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'run % can not be erased: %', p_run, why USING ERRCODE = 'DA087';
    END IF;
    said := convert_from(event.clear, 'UTF8')::jsonb;
    INSERT INTO public.encryption_erasure (run_id, seq, by, role, reason, at, tx)
    VALUES (p_run, event.seq, said ->> 'by', said ->> 'role', said ->> 'reason', event.at, txid_current());
    UPDATE public.runs_run SET erased_at = event.at WHERE id = p_run;
    -- Rows that are never changed otherwise.
    PERFORM set_config('pgtrigger.ignore', (
        SELECT array_agg(tgname)::text FROM pg_trigger WHERE NOT tgisinternal AND tgname LIKE 'pgtrigger\_%' AND tgrelid = ANY (ARRAY[
            'public.ledger_overriderecord', 'public.ledger_actrecord', 'public.ledger_ledgerentry', 'public.approvals_approval',
            'public.approvals_decision', 'public.approvals_inquiry', 'public.approvals_delegation']::regclass[] || to_regclass('public.approvals_standinggrant') || to_regclass('public.approvals_document'))
    ), true);
    PERFORM public.encryption_blank(p_run);
    PERFORM set_config('pgtrigger.ignore', ignored, true);
END $$;

-- Delete or blank copies of a run's content outside its payloads. Called by the function above; the runtime role has no right to do this.
CREATE OR REPLACE FUNCTION encryption_blank(p_run uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_digests text[];
    -- What people said and did outside the journal keeps these facts; all other members go.
    v_facts text[] := '{state,node,visit,epoch,is_owned,is_pause_requested,is_cancel_requested,fork,how,version,generation,caps,verdict,proposal,batch}';
    -- What a wait is about, without its content.
    v_waited text[] := '{queue,tool,approval_id,of,kind,attempt,child,agent,run,pool,resource,period,limit,class,system,undo}';
    v_standing text[] := '{queue,deputy_of}';
BEGIN
    -- Documents are stored once, by digest. One that another run's question shows too stays.
    SELECT array_agg(DISTINCT d ->> 'sha256') INTO v_digests
    FROM public.approvals_approval a, jsonb_array_elements(CASE jsonb_typeof(a.documents)
        WHEN 'array' THEN a.documents ELSE coalesce(a.documents -> 'shown', '[]') END) AS d
    WHERE a.run_id = p_run;
    IF to_regclass('public.approvals_document') IS NOT NULL THEN
        DELETE FROM public.approvals_document x WHERE x.digest = ANY (v_digests) AND NOT EXISTS (
            SELECT FROM public.approvals_approval a
            WHERE a.run_id <> p_run AND (a.documents @> jsonb_build_array(jsonb_build_object('sha256', x.digest))
                OR a.documents -> 'shown' @> jsonb_build_array(jsonb_build_object('sha256', x.digest))));
    END IF;

    IF to_regclass('public.runs_searchterm') IS NOT NULL THEN
        DELETE FROM public.runs_searchterm WHERE run_id = p_run;
    END IF;
    DELETE FROM public.runs_cachedread WHERE run_id = p_run;
    DELETE FROM public.runs_logline WHERE run_id = p_run;
    DELETE FROM public.runs_telling WHERE run_id = p_run;
    DELETE FROM public.runs_overheard WHERE run_id = p_run;
    UPDATE public.runs_run SET about = '' WHERE id = p_run;
    UPDATE public.runs_wait SET detail = encryption_members(detail, v_waited), lacking = NULL WHERE run_id = p_run;
    UPDATE public.approvals_approval SET title = '', effect = '', plan = '', evidence = '[]', documents = '[]', why = '', same = NULL, call = NULL, amount = NULL
    WHERE run_id = p_run;
    UPDATE public.approvals_decision
    SET justification = '', before = encryption_members(before, v_facts), after = encryption_members(after, v_facts),
        standing = CASE WHEN standing IS NOT NULL THEN encryption_members(standing, v_standing) END, proof = NULL
    WHERE approval_id IN (SELECT id FROM public.approvals_approval WHERE run_id = p_run);
    UPDATE public.approvals_inquiry SET question = '', answer = '' WHERE run_id = p_run;
    UPDATE public.approvals_delegation SET reason = '' WHERE run_id = p_run;
    IF to_regclass('public.approvals_standinggrant') IS NOT NULL THEN
        UPDATE public.approvals_standinggrant SET fields = '{}', reason = '' WHERE run_id = p_run;
    END IF;
    UPDATE public.ledger_overriderecord
    SET justification = '', before = encryption_members(before, v_facts), after = encryption_members(after, v_facts) WHERE run_id = p_run;
    UPDATE public.ledger_actrecord
    SET justification = '', before = encryption_members(before, v_facts), after = encryption_members(after, v_facts) WHERE run_id = p_run;
    -- A digest without a key lets everybody check a guess at a short result.
    UPDATE public.ledger_ledgerentry SET digest = NULL WHERE run_id = p_run AND digest LIKE 'sha256:%';
    -- Answers to requests name their run and quote it. A repeat is answered with this instead of acting again.
    UPDATE public.runs_idempotencyrecord i
    SET status = 410, body_hash = '', body = to_jsonb(jsonb_build_object(
        'id', p_run, 'run_id', p_run, 'type', 'urn:durableagents:problem:erased', 'title', 'Erased', 'status', 410, 'code', 'erased',
        'detail', format('Run %s has no content any more.', p_run))::text)
    FROM public.runs_run r
    WHERE r.id = p_run AND i.created_at >= r.created_at - interval '1 minute' AND i.body #>> '{}' LIKE '%' || p_run || '%';
END $$;

-- Return an object with only these members; null for null, and an empty object for any other value.
CREATE OR REPLACE FUNCTION encryption_members(p_value jsonb, p_names text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce((SELECT jsonb_object_agg(x.key, x.value)
                     FROM jsonb_each(CASE jsonb_typeof(p_value) WHEN 'object' THEN p_value ELSE '{}' END) AS x WHERE x.key = ANY (p_names)), '{}')
$$;

-- Store new codes in rows that were blanked in this transaction. The caller computes them, because the database has no key. `p_codes` has them by
-- row id.
CREATE OR REPLACE FUNCTION encryption_recode(p_run uuid, p_table text, p_codes jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    ignored text := coalesce(nullif(current_setting('pgtrigger.ignore', true), ''), '{}');
    mine text := CASE p_table WHEN 'approvals_decision' THEN 'approval_id IN (SELECT id FROM public.approvals_approval WHERE run_id = $1)'
                 ELSE 'run_id = $1' END;
BEGIN
    IF p_table <> ALL (ARRAY['ledger_overriderecord', 'ledger_actrecord', 'approvals_decision', 'approvals_inquiry', 'approvals_delegation',
                             'approvals_standinggrant'])
       OR NOT EXISTS (SELECT FROM public.encryption_erasure WHERE run_id = p_run AND tx = txid_current()) THEN
        RAISE EXCEPTION 'run % was not erased in this transaction, or % has no such rows', p_run, p_table USING ERRCODE = 'DA087';
    END IF;
    PERFORM set_config('pgtrigger.ignore', (SELECT array_agg(tgname)::text FROM pg_trigger
        WHERE NOT tgisinternal AND tgname LIKE 'pgtrigger\_%' AND tgrelid = format('public.%I', p_table)::regclass), true);
    EXECUTE format('UPDATE public.%I t SET code = decode($2 ->> t.id::text, ''hex'') WHERE %s AND $2 ? t.id::text', p_table, mine)
    USING p_run, p_codes;
    PERFORM set_config('pgtrigger.ignore', ignored, true);
END $$;
