-- Only the functions in this file remove rows of runs from the database and restore them. The runtime role may call them, so each function
-- checks the conditions itself: the run has ended, a policy makes it due, no hold keeps it, and its archive is recorded with the same last
-- event.

-- Return the newest archive of a run, unless the run was restored from it.
CREATE OR REPLACE FUNCTION retention_standing(p_run uuid) RETURNS SETOF retention_archive
LANGUAGE sql STABLE AS $$
    SELECT a.* FROM retention_archive a
    WHERE a.id = (SELECT max(b.id) FROM retention_archive b WHERE b.run_id = p_run)
      AND NOT EXISTS (SELECT FROM retention_restoration r WHERE r.archive_id = a.id);
$$;

-- Return the values of a run by which policies and holds match, from its rows or, once these are removed, from the register. `since` is the
-- start of its retention period.
CREATE OR REPLACE FUNCTION retention_facts(p_run uuid) RETURNS TABLE (
    agent text, state text, tags text[], effects text[], business_key text, created_at timestamptz, since timestamptz
)
LANGUAGE sql STABLE AS $$
    SELECT r.agent, r.state, ARRAY(SELECT t.tag FROM runs_runtag t WHERE t.run_id = r.id),
           ARRAY(SELECT DISTINCT l.replay_class FROM ledger_ledgerentry l WHERE l.run_id = r.id), coalesce(r.business_key, ''), r.created_at,
           greatest(r.ended_at, (SELECT max(x.at) FROM retention_restoration x JOIN retention_archive a ON a.id = x.archive_id
                                 WHERE a.run_id = r.id))
    FROM runs_run r WHERE r.id = p_run
    UNION ALL
    SELECT a.agent, a.state, ARRAY(SELECT jsonb_array_elements_text(a.tags)), ARRAY(SELECT jsonb_array_elements_text(a.effects)),
           a.business_key, a.created_at, a.at
    FROM retention_standing(p_run) a WHERE NOT EXISTS (SELECT FROM runs_run r WHERE r.id = p_run);
$$;

-- Return the policy that determines when a run loses its old checkpoints ('checkpoints'), is archived ('archive'), or its archive deleted
-- ('delete'): the longest of those that match. Returns no row if none matches.
CREATE OR REPLACE FUNCTION retention_policy_of(p_run uuid, p_what text) RETURNS TABLE (policy bigint, days int)
LANGUAGE sql STABLE AS $$
    SELECT p.id, CASE p_what WHEN 'checkpoints' THEN p.checkpoint_days WHEN 'archive' THEN p.archive_days ELSE p.delete_days END
    FROM retention_facts(p_run) f
    JOIN retention_policy p ON p.agent IN ('', f.agent) AND p.state IN ('', f.state)
        AND (p.tag = '' OR p.tag = ANY (f.tags)) AND (p.effects = '' OR p.effects = ANY (f.effects))
    WHERE NOT EXISTS (SELECT FROM retention_policyend e WHERE e.policy_id = p.id)
    ORDER BY 2 DESC NULLS FIRST, 1 LIMIT 1;
$$;

-- Return the first hold that keeps a run, or null.
CREATE OR REPLACE FUNCTION retention_hold_of(p_run uuid) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT h.id FROM retention_hold h LEFT JOIN retention_facts(p_run) f ON true
    WHERE NOT EXISTS (SELECT FROM retention_holdend e WHERE e.hold_id = h.id)
      AND CASE WHEN h.run_id IS NOT NULL THEN h.run_id = p_run ELSE
            h.agent IN ('', f.agent) AND (h.tag = '' OR h.tag = ANY (f.tags)) AND h.business_key IN ('', f.business_key)
            AND f.created_at BETWEEN coalesce(h.created_from, '-infinity') AND coalesce(h.created_to, 'infinity') END
    ORDER BY h.id LIMIT 1;
$$;

-- Return why this database role may not remove runs that ended at that time, or null. The owner may; other roles only as far as the owner
-- permits.
CREATE OR REPLACE FUNCTION retention_forbids(p_since timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'public.ledger_event'::regclass), 'USAGE') THEN NULL
        WHEN NOT EXISTS (SELECT FROM retention_allowance) THEN
            'this database role may not remove runs: use DURABLEAGENTS_DB_ROLE=owner, or `manage.py retention allow`'
        WHEN p_since + make_interval(days => (SELECT max(days) FROM retention_allowance)) > clock_timestamp() THEN
            'it is younger than what workers may remove (`manage.py retention allow`)'
    END;
$$;

-- Return why neither policies nor holds let a run be archived ('archive') or its old checkpoints be removed ('checkpoints') now, or null.
CREATE OR REPLACE FUNCTION retention_due_refusal(p_run uuid, p_what text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    r runs_run;
    held bigint;
    why record;
    since timestamptz;
BEGIN
    SELECT * INTO r FROM runs_run WHERE id = p_run;
    IF NOT FOUND THEN
        RETURN 'it is not here';
    ELSIF r.ended_at IS NULL OR r.state NOT IN ('completed', 'failed', 'cancelled') THEN
        RETURN 'it has not ended';
    END IF;
    held := retention_hold_of(p_run);
    IF held IS NOT NULL THEN
        RETURN format('legal hold %s keeps it', held);
    END IF;
    SELECT * INTO why FROM retention_policy_of(p_run, p_what);
    IF NOT FOUND THEN
        RETURN CASE p_what WHEN 'archive' THEN 'no policy archives it' ELSE 'no policy removes its checkpoints' END;
    ELSIF why.days IS NULL THEN
        RETURN format('policy %s keeps it forever', why.policy);
    END IF;
    SELECT f.since INTO since FROM retention_facts(p_run) f;
    IF since + make_interval(days => why.days) > clock_timestamp() THEN
        RETURN format('it is due on %s', (since + make_interval(days => why.days))::date);
    END IF;
    RETURN NULL;
END $$;

-- Return why a run may not be archived now, or null.
CREATE OR REPLACE FUNCTION retention_refusal(p_run uuid) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    r runs_run;
    why text := retention_due_refusal(p_run, 'archive');
BEGIN
    SELECT * INTO r FROM runs_run WHERE id = p_run;
    IF why IS NOT NULL THEN
        RETURN why;
    ELSIF EXISTS (SELECT FROM runs_wait w WHERE w.run_id = p_run AND w.resolved_at IS NULL) THEN
        RETURN 'it has a wait that nobody resolved';
    ELSIF r.parent IS NOT NULL AND NOT r.is_told AND EXISTS (SELECT FROM runs_run p WHERE p.id = r.parent) THEN
        RETURN 'its parent has not been told of its end';
    ELSIF to_regclass('public.approvals_standinggrant') IS NULL THEN
        RETURN NULL;
    ELSIF EXISTS (SELECT FROM approvals_standinggrant g WHERE g.run_id = p_run)
        OR EXISTS (SELECT FROM approvals_standinguse u WHERE u.run_id = p_run) THEN
        RETURN 'it gave or used a standing approval';
    END IF;
    RETURN NULL;
END $$;

-- Return why the archive of a run may not be deleted now, or null.
CREATE OR REPLACE FUNCTION retention_delete_refusal(p_run uuid) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    a retention_archive;
    held bigint := retention_hold_of(p_run);
    why record;
BEGIN
    SELECT * INTO a FROM retention_standing(p_run);
    IF NOT FOUND THEN
        RETURN 'it is not archived';
    ELSIF held IS NOT NULL THEN
        RETURN format('legal hold %s keeps it', held);
    ELSIF EXISTS (SELECT FROM runs_run r WHERE r.id = p_run) THEN
        RETURN 'its rows are still here';
    END IF;
    SELECT * INTO why FROM retention_policy_of(p_run, 'delete');
    IF NOT FOUND THEN
        RETURN 'no policy deletes it';
    ELSIF why.days IS NULL THEN
        RETURN format('policy %s keeps it forever', why.policy);
    ELSIF a.at + make_interval(days => why.days) > clock_timestamp() THEN
        RETURN format('it is due on %s', (a.at + make_interval(days => why.days))::date);
    END IF;
    RETURN NULL;
END $$;

-- Return a run with all runs that began in it or continue from it, at most `p_limit`. They are archived together.
CREATE OR REPLACE FUNCTION retention_family(p_run uuid, p_limit int) RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE f (id) AS (
        SELECT p_run UNION
        SELECT n.id FROM f, LATERAL (
            SELECT c.id FROM runs_run c WHERE c.parent = f.id UNION ALL
            SELECT c.id FROM runs_run c WHERE c.came_from = f.id UNION ALL
            SELECT c.id FROM runs_run c WHERE c.forked_from = f.id) n)
    SELECT id FROM f LIMIT p_limit;
$$;

-- Return a run with all its related runs, in both directions, including archived ones; at most 1,000.
CREATE OR REPLACE FUNCTION retention_relatives(p_run uuid) RETURNS TABLE (id uuid)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE up (id) AS (
        SELECT p_run UNION SELECT n.id FROM up JOIN runs_run r ON r.id = up.id, unnest(ARRAY[r.parent, r.came_from, r.forked_from]) n (id)
        WHERE n.id IS NOT NULL)
    SELECT DISTINCT f.id FROM up, LATERAL retention_family(up.id, 1000) f (id)
    UNION SELECT o.run_id FROM retention_archive a JOIN retention_archive o ON o.family = a.family WHERE a.run_id = p_run;
$$;

-- Return the next runs, by id, that have no origin and ended before `p_before`.
CREATE OR REPLACE FUNCTION retention_roots(p_after uuid, p_before timestamptz, p_limit int) RETURNS TABLE (id uuid, refusal text)
LANGUAGE sql STABLE AS $$
    SELECT r.id, retention_refusal(r.id) FROM (
        SELECT c.id FROM runs_run c
        WHERE c.id > p_after AND c.ended_at <= p_before AND c.parent IS NULL AND c.came_from IS NULL AND c.forked_from IS NULL
        ORDER BY c.id LIMIT p_limit) r;
$$;

-- Return pgtrigger's triggers on tables of runs, in the form of its setting for triggers to ignore.
CREATE OR REPLACE FUNCTION retention_triggers() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(t.tgname::text), '{}')::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    JOIN retention_runtable r ON r.name = c.relname WHERE t.tgname LIKE 'pgtrigger\_%';
$$;

-- Make pgtrigger ignore these triggers until the end of the transaction; return those that it ignored before. (Attached to the function,
-- the setting would require a superuser.)
CREATE OR REPLACE FUNCTION retention_ignore(p_triggers text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    before text := coalesce(nullif(current_setting('pgtrigger.ignore', true), ''), '{}');
BEGIN
    PERFORM set_config('pgtrigger.ignore', p_triggers, true);
    RETURN before;
END $$;

-- Return the number of a run's rows in a table, and a sum over their text, which changes whenever a row does. For tables whose rows never
-- change, the number is sufficient.
CREATE OR REPLACE FUNCTION retention_sum(p_run uuid, p_table text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET timezone = 'UTC' AS $$
DECLARE
    t retention_runtable;
    found jsonb;
BEGIN
    SELECT * INTO STRICT t FROM retention_runtable WHERE name = p_table;
    EXECUTE format('SELECT jsonb_build_array(count(*), %s) FROM %I t WHERE %s',
        CASE WHEN t.is_bulk THEN '''0''' ELSE 'coalesce(sum(hashtextextended(row_to_json(t)::text, 0)::numeric), 0)::text' END, t.name, t.condition)
    INTO found USING p_run;
    RETURN found;
END $$;

-- Return how the rows of an archived run differ from those in its archive, or null.
CREATE OR REPLACE FUNCTION retention_difference(p_run uuid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%s holds %s row(s) of it, the archive %s', t.name, s.found ->> 0, coalesce(a.rows -> t.name ->> 0, '0'))
    FROM retention_standing(p_run) a, retention_runtable t, LATERAL (SELECT retention_sum(p_run, t.name) AS found) s
    WHERE s.found <> coalesce(a.rows -> t.name, '[0, "0"]'::jsonb) ORDER BY t.n LIMIT 1;
$$;

-- Remove the rows of a family, except those in bulk tables, whose runs are noted as pending. It is called in the transaction that records
-- the archive, so other transactions see no state in between. Raises DA080 with the reason.
CREATE OR REPLACE FUNCTION retention_take(p_family uuid) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    a retention_archive;
    t retention_runtable;
    why text;
    runs uuid[];
    removed bigint := 0;
    n bigint;
    ignored text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('retention holds', 89));
    SELECT array_agg(s.run_id ORDER BY s.run_id) INTO runs
    FROM (SELECT DISTINCT x.run_id FROM retention_archive x WHERE x.family = p_family) d, retention_standing(d.run_id) s
    WHERE s.family = p_family;
    PERFORM 1 FROM ledger_head h WHERE h.run_id = ANY (runs) ORDER BY h.run_id FOR UPDATE;
    FOR a IN SELECT s.* FROM unnest(runs) u (id), retention_standing(u.id) s ORDER BY s.run_id LOOP
        why := coalesce(retention_refusal(a.run_id), retention_forbids(a.ended_at));
        IF why IS NULL AND NOT EXISTS (
            SELECT FROM ledger_head h WHERE h.run_id = a.run_id AND h.seq = a.seq AND h.chain = a.chain
        ) THEN
            why := 'it has gone on since it was archived';
        ELSIF why IS NULL AND EXISTS (
            SELECT FROM runs_run c WHERE (c.parent = a.run_id OR c.came_from = a.run_id OR c.forked_from = a.run_id)
                AND NOT c.id = ANY (runs)
        ) THEN
            why := 'a run that began in it is not in its archive';
        END IF;
        why := coalesce(why, retention_difference(a.run_id));
        IF why IS NOT NULL THEN
            RAISE EXCEPTION 'run % stays: %', a.run_id, why USING ERRCODE = 'DA080';
        END IF;
    END LOOP;
    ignored := retention_ignore(retention_triggers());
    FOR t IN SELECT * FROM retention_runtable WHERE NOT is_bulk ORDER BY n DESC LOOP
        FOREACH a.run_id IN ARRAY coalesce(runs, '{}') LOOP
            EXECUTE format('DELETE FROM %I WHERE %s', t.name, t.condition) USING a.run_id;
            GET DIAGNOSTICS n = ROW_COUNT;
            removed := removed + n;
        END LOOP;
    END LOOP;
    PERFORM retention_ignore(ignored);
    INSERT INTO retention_pending (run_id, at) SELECT u.id, clock_timestamp() FROM unnest(runs) u (id) ON CONFLICT DO NOTHING;
    RETURN removed;
END $$;

-- Remove a limited number of further rows of a run whose first rows `retention_take` removed. Returns how many were removed; at 0 nothing
-- is left. Raises DA080.
CREATE OR REPLACE FUNCTION retention_clear(p_run uuid, p_limit int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    t retention_runtable;
    removed bigint := 0;
    n bigint;
    held bigint := retention_hold_of(p_run);
    ignored text;
BEGIN
    IF held IS NOT NULL THEN
        RAISE EXCEPTION 'run % stays: legal hold % keeps it', p_run, held USING ERRCODE = 'DA080';
    ELSIF NOT EXISTS (SELECT FROM retention_pending WHERE run_id = p_run) OR NOT EXISTS (SELECT FROM retention_standing(p_run))
        OR EXISTS (SELECT FROM ledger_head WHERE run_id = p_run) OR EXISTS (SELECT FROM runs_run WHERE id = p_run) THEN
        RAISE EXCEPTION 'run % stays: it was not taken to an archive', p_run USING ERRCODE = 'DA080';
    END IF;
    ignored := retention_ignore(retention_triggers());
    FOR t IN SELECT * FROM retention_runtable WHERE is_bulk ORDER BY n LOOP
        EXECUTE format('DELETE FROM %I WHERE ctid = ANY (ARRAY(SELECT ctid FROM %I WHERE %s LIMIT $2))', t.name, t.name, t.condition)
        USING p_run, p_limit - removed;
        GET DIAGNOSTICS n = ROW_COUNT;
        removed := removed + n;
        EXIT WHEN removed >= p_limit;
    END LOOP;
    PERFORM retention_ignore(ignored);
    IF removed < p_limit THEN
        DELETE FROM retention_pending WHERE run_id = p_run;
    END IF;
    RETURN removed;
END $$;

-- Return how many of a run's oldest checkpoints can be removed, at most `p_limit`, and the event of the newest of them; no row if none can.
-- The run's newest checkpoint is never among them, because a retry, an undo or a message to the run continues from it.
CREATE OR REPLACE FUNCTION retention_old_checkpoints(p_run uuid, p_limit int) RETURNS TABLE (last_seq bigint, number bigint)
LANGUAGE sql STABLE AS $$
    SELECT max(o.seq), count(*) FROM (
        SELECT c.seq FROM runs_checkpoint c
        WHERE c.run_id = p_run AND c.seq < (SELECT max(n.seq) FROM runs_checkpoint n WHERE n.run_id = p_run)
        ORDER BY c.seq LIMIT p_limit) o
    HAVING count(*) > 0;
$$;

-- Remove the checkpoints that an entry of the register names, in the transaction that wrote it. Raises DA080.
CREATE OR REPLACE FUNCTION retention_expire(p_entry bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    x retention_checkpointexpiry;
    why text;
    ignored text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('retention holds', 89));
    SELECT * INTO STRICT x FROM retention_checkpointexpiry WHERE id = p_entry;
    PERFORM 1 FROM ledger_head h WHERE h.run_id = x.run_id FOR UPDATE;
    why := coalesce(
        retention_due_refusal(x.run_id, 'checkpoints'), retention_forbids((SELECT r.ended_at FROM runs_run r WHERE r.id = x.run_id)));
    IF why IS NULL AND NOT EXISTS (
        SELECT FROM retention_old_checkpoints(x.run_id, x.number) o WHERE o.last_seq = x.last_seq AND o.number = x.number
    ) THEN
        why := 'its checkpoints are not those of the entry';
    ELSIF why IS NULL AND (
        SELECT c.checksum <> sha256(convert_to(c.node || '|' || c.visit || '|', 'UTF8') || c.state)
            OR NOT EXISTS (SELECT FROM ledger_event e WHERE e.run_id = c.run_id AND e.seq = c.seq AND e.kind = 'VisitEntered')
        FROM runs_checkpoint c WHERE c.run_id = x.run_id ORDER BY c.seq DESC LIMIT 1
    ) THEN
        why := 'its newest checkpoint is damaged or forged, so that the earlier ones are needed';
    END IF;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'run % keeps its checkpoints: %', x.run_id, why USING ERRCODE = 'DA080';
    END IF;
    ignored := retention_ignore(retention_triggers());
    DELETE FROM runs_checkpoint c WHERE c.run_id = x.run_id AND c.seq <= x.last_seq;
    PERFORM retention_ignore(ignored);
END $$;

-- Restore rows of an archived run, given as one JSON text each. If triggers derive rows, `p_is_first` replaces what they derived. Raises
-- DA080.
CREATE OR REPLACE FUNCTION retention_put(p_run uuid, p_table text, p_rows text[], p_is_first boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    t retention_runtable;
    columns text;
    strange bigint;
    ignored text;
BEGIN
    SELECT * INTO STRICT t FROM retention_runtable WHERE name = p_table;
    IF NOT EXISTS (SELECT FROM retention_standing(p_run)) OR EXISTS (SELECT FROM retention_pending WHERE run_id = p_run) THEN
        RAISE EXCEPTION 'run % is not one whose rows are in an archive only', p_run USING ERRCODE = 'DA080';
    END IF;
    ignored := retention_ignore(retention_triggers());
    PERFORM set_config('durableagents.restores', 'on', true);
    IF p_is_first AND p_table IN ('runs_attribute', 'runs_runtag', 'approvals_seat') THEN
        EXECUTE format('DELETE FROM %I WHERE %s', t.name, t.condition) USING p_run;
    END IF;
    -- Columns that a later release added take their defaults.
    SELECT string_agg(quote_ident(k), ', ') INTO columns FROM json_object_keys(p_rows[1]::json) k;
    EXECUTE format(
        'WITH put AS (INSERT INTO %I (%s) SELECT %s FROM unnest($2) x, json_populate_record(NULL::%I, x::json) RETURNING *)
         SELECT count(*) FROM put WHERE NOT coalesce(%s, false)', t.name, columns, columns, t.name, t.condition)
    INTO strange USING p_run, p_rows;
    IF strange > 0 THEN
        RAISE EXCEPTION 'rows for % are not those of run %', p_table, p_run USING ERRCODE = 'DA080';
    END IF;
    IF p_table = 'runs_run' THEN  -- a trigger computes it from today's limits
        UPDATE runs_run SET lane = p_rows[1]::json ->> 'lane' WHERE id = p_run;
    END IF;
    PERFORM set_config('durableagents.restores', '', true);
    PERFORM retention_ignore(ignored);
END $$;

-- Remove what is left of a run whose archive was deleted, including its key. Raises DA080.
CREATE OR REPLACE FUNCTION retention_forget(p_run uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    a retention_archive;
    why text := retention_delete_refusal(p_run);
BEGIN
    SELECT * INTO a FROM retention_standing(p_run);
    IF why IS NULL AND NOT EXISTS (SELECT FROM retention_deletion d WHERE d.archive_id = a.id) THEN
        why := 'its deletion is not on record';
    END IF;
    why := coalesce(why, retention_forbids(a.ended_at));
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'the archive of run % stays: %', p_run, why USING ERRCODE = 'DA080';
    END IF;
    IF to_regclass('public.encryption_runkey') IS NOT NULL THEN
        EXECUTE 'DELETE FROM encryption_runkey WHERE run_id = $1' USING p_run;
    END IF;
    DELETE FROM retention_pending WHERE run_id = p_run;
END $$;
