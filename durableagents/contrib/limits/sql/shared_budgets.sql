-- Shared budgets: budgets that many runs share over a period. An intent reserves an amount in each budget of its run, in its own
-- transaction, and the debit settles the reservation. The meter of a budget is one narrow row. A step locks its meters last, in the order
-- of their ids. Steps of such runs are committed alone (`runs_is_pooled`), because two transactions with several of them could wait for
-- each other. The functions `runs_is_pooled`, `runs_counts_reads`, `runs_draw` and `runs_settle` replace the hooks of steps in
-- runs/sql/hooks.sql.
--
-- A call belongs to the period in which it began. The rows of `runs_poolcharge` can be derived from the journal (budget_verify.py).
--
-- DA005: a budget has no room for a call, or other calls wait for it. DA006: a budget is in dollars, and the model has no price. The detail
-- names the budget.

-- Return the amount that a call takes of a resource; null if unknown.
CREATE OR REPLACE FUNCTION runs_pool_amount(p_resource text, p_kind text, p_said json) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_kind = 'ToolInvoked' THEN CASE p_resource WHEN 'tool_calls' THEN 1 ELSE 0 END
        WHEN p_resource = 'tool_calls' THEN 0
        WHEN p_resource = 'model_calls' AND p_kind = 'ModelRouted' THEN 1
        ELSE (p_said ->> p_resource)::bigint END;
$$;

-- Return the calendar period that contains a moment. Days follow the time zone's clock (23 to 25 hours). If midnight occurs twice, the
-- second one counts.
CREATE OR REPLACE FUNCTION runs_pool_period(p_period text, p_zone text, p_at timestamptz, OUT starts_at timestamptz, OUT ends_at timestamptz)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    first timestamp := date_trunc(p_period, p_at AT TIME ZONE p_zone);
    step interval := ('1 ' || p_period)::interval;
BEGIN
    IF first AT TIME ZONE p_zone > p_at THEN
        first := first - step;
    END IF;
    starts_at := first AT TIME ZONE p_zone;
    ends_at := (first + step) AT TIME ZONE p_zone;
END $$;

-- Return the shared budgets of a run, by fields that never change, including those of the model's provider and of any provider (`*`).
CREATE OR REPLACE FUNCTION runs_pools_of(p_run uuid, p_provider text) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    r record;
    found bigint[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM runs_pool WHERE off_at IS NULL) THEN
        RETURN '{}';
    END IF;
    SELECT agent, creator::text AS creator, tags INTO r FROM runs_run WHERE id = p_run;
    SELECT array_agg(p.id ORDER BY p.id) INTO found FROM runs_pool p
    WHERE p.off_at IS NULL AND CASE p.scope
        WHEN 'all' THEN true
        WHEN 'agent' THEN p."of" = r.agent
        WHEN 'person' THEN p."of" = r.creator
        WHEN 'tag' THEN r.tags ? p."of" OR jsonb_typeof(r.tags) = 'object' AND EXISTS (
            SELECT 1 FROM jsonb_each_text(r.tags) t WHERE t.key || ':' || t.value = p."of")
        WHEN 'provider' THEN p_provider = '*' OR p."of" = p_provider
        ELSE false END;
    RETURN coalesce(found, '{}');
END $$;

-- Replaces a hook: return whether a run's steps may touch a shared budget.
CREATE OR REPLACE FUNCTION runs_is_pooled(p_run uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM runs_pool WHERE off_at IS NULL) AND cardinality(runs_pools_of(p_run, '*')) > 0;
END $$;

-- Replaces a hook: return whether a shared budget counts the tool calls of a run, including reads.
CREATE OR REPLACE FUNCTION runs_counts_reads(p_run uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM runs_pool p WHERE p.off_at IS NULL AND p.resource = 'tool_calls' AND p.id = ANY (runs_pools_of(p_run, '*')));
END $$;

-- Advance a locked meter to the current period. The past period is stored with its reservations.
CREATE OR REPLACE FUNCTION runs_pool_turn(m runs_poolmeter) RETURNS runs_poolmeter
LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := clock_timestamp();
    p record;
BEGIN
    IF t < m.ends_at THEN
        RETURN m;
    END IF;
    INSERT INTO runs_poolperiod (pool_id, starts_at, ends_at, most, used, reserved)
    VALUES (m.pool_id, m.starts_at, m.ends_at, m.most, m.used, m.reserved);
    SELECT * INTO p FROM runs_pool_period(m.period, m.zone, t);
    m.starts_at := greatest(p.starts_at, m.ends_at);
    m.ends_at := p.ends_at;
    m.used := 0;
    m.reserved := 0;
    m.warned_at := NULL;
    UPDATE runs_poolmeter SET starts_at = m.starts_at, ends_at = m.ends_at, used = 0, reserved = 0, warned_at = NULL WHERE pool_id = m.pool_id;
    RETURN m;
END $$;

-- Record, once per period, that a shared budget is nearly used up or that calls wait for it.
CREATE OR REPLACE FUNCTION runs_pool_notice(m runs_poolmeter, p_kind text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runs_poolnotice (pool_id, starts_at, kind, at, most, used, reserved)
    VALUES (m.pool_id, m.starts_at, p_kind, clock_timestamp(), m.most, m.used, m.reserved) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE runs_poolmeter SET is_untold = true WHERE pool_id = m.pool_id;
    END IF;
END $$;

-- Return the amount that a waiting call needs. For a damaged row it is nothing, so that it doesn't block other calls.
CREATE OR REPLACE FUNCTION runs_pool_wanted(p_detail jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_detail ->> 'wanted' ~ '^[0-9]{1,18}$' THEN (p_detail ->> 'wanted')::bigint ELSE 0 END;
$$;

-- Replaces a hook: reserve what an intent needs in each shared budget of its run, or RAISE. A tool call counts as used when it begins.
-- Calls of an undo are counted, but never refused for lack of room.
CREATE OR REPLACE FUNCTION runs_draw(p_run uuid, p_lines ledger_line[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
    m runs_poolmeter;
    said json;
    wanted bigint;
    is_let_in boolean;
    pools bigint[];
    is_undoing boolean;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM runs_pool WHERE off_at IS NULL) THEN
        RETURN;
    END IF;
    is_undoing := EXISTS (SELECT 1 FROM runs_run WHERE id = p_run AND node = '_undo');
    FOREACH line IN ARRAY p_lines LOOP
        CONTINUE WHEN line.kind NOT IN ('ToolInvoked', 'ModelRouted');
        said := convert_from(line.clear, 'UTF8')::json;
        pools := runs_pools_of(p_run, split_part(said ->> 'model', ':', 1));
        FOR m IN SELECT * FROM runs_poolmeter WHERE pool_id = ANY (pools) ORDER BY pool_id FOR UPDATE LOOP
            wanted := runs_pool_amount(m.resource, line.kind, said);
            CONTINUE WHEN wanted = 0 OR NOT m.is_on;
            m := runs_pool_turn(m);
            IF wanted IS NULL THEN
                RAISE EXCEPTION 'shared budget % counts dollars, and % has no price', m.pool_id, said ->> 'model'
                    USING ERRCODE = 'DA006', DETAIL = json_build_object('pool', m.pool_id, 'model', said ->> 'model')::text;
            END IF;
            is_let_in := m.gate_at IS NOT NULL AND EXISTS (
                SELECT 1 FROM runs_wait WHERE run_id = p_run AND slot = line.slot AND attempt = line.attempt AND kind = 'pool'
                AND resolution = 'let_in' AND detail ->> 'pool' = m.pool_id::text);
            IF NOT is_undoing AND (m.used + m.reserved + wanted > m.most OR m.gate_at IS NOT NULL AND NOT is_let_in) THEN
                RAISE EXCEPTION 'shared budget % has no room for slot % of run %', m.pool_id, line.slot, p_run USING ERRCODE = 'DA005', DETAIL = (
                    SELECT json_build_object('pool', m.pool_id, 'name', p.name, 'resource', m.resource, 'wanted', wanted, 'most', m.most,
                                             'refills_at', m.ends_at)::text FROM runs_pool p WHERE p.id = m.pool_id);
            END IF;
            IF m.resource = 'tool_calls' THEN
                m.used := m.used + wanted;
            ELSE
                m.reserved := m.reserved + wanted;
            END IF;
            UPDATE runs_poolmeter SET used = m.used, reserved = m.reserved, promised = CASE WHEN is_let_in THEN greatest(0, promised - wanted) ELSE promised END,
                warned_at = CASE WHEN (m.used + m.reserved) * 5 >= m.most * 4 THEN coalesce(warned_at, clock_timestamp()) ELSE warned_at END
            WHERE pool_id = m.pool_id;
            IF m.warned_at IS NULL AND (m.used + m.reserved) * 5 >= m.most * 4 THEN
                PERFORM runs_pool_notice(m, 'warning');
            END IF;
            INSERT INTO runs_poolcharge (run_id, slot, attempt, n, pool_id, starts_at, reserved, used)
            VALUES (p_run, line.slot, line.attempt, coalesce((said ->> 'n')::int, 0), m.pool_id, m.starts_at, wanted,
                    CASE m.resource WHEN 'tool_calls' THEN wanted END);
        END LOOP;
    END LOOP;
END $$;

-- Move one charge from reserved to used, in the period in which it was made.
CREATE OR REPLACE FUNCTION runs_settle_charge(c runs_poolcharge, p_used bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM runs_poolmeter WHERE pool_id = c.pool_id FOR UPDATE;
    UPDATE runs_poolmeter SET reserved = reserved - c.reserved, used = used + p_used WHERE pool_id = c.pool_id AND starts_at = c.starts_at;
    IF NOT FOUND THEN
        UPDATE runs_poolperiod SET reserved = reserved - c.reserved, used = used + p_used WHERE pool_id = c.pool_id AND starts_at = c.starts_at;
    END IF;
    UPDATE runs_poolcharge SET used = p_used
    WHERE run_id = c.run_id AND slot = c.slot AND attempt = c.attempt AND n = c.n AND pool_id = c.pool_id;
END $$;

-- Replaces a hook: settle the reservation of a debit's request; the journal has one debit per request. A child run as such has no charge;
-- its calls have charges.
CREATE OR REPLACE FUNCTION runs_settle(p_run uuid, p_line ledger_line) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    said json := convert_from(p_line.clear, 'UTF8')::json;
    c runs_poolcharge;
BEGIN
    FOR c IN
        SELECT * FROM runs_poolcharge
        WHERE run_id = p_run AND slot = p_line.slot AND attempt = p_line.attempt AND n = (said ->> 'n')::int ORDER BY pool_id
    LOOP
        PERFORM runs_settle_charge(c, coalesce((
            SELECT runs_pool_amount(m.resource, p_line.kind, said) FROM runs_poolmeter m WHERE m.pool_id = c.pool_id), c.reserved));
    END LOOP;
END $$;

-- Settle all reservations of an ended run as estimated, because nothing more will be reported about them.
CREATE OR REPLACE FUNCTION runs_settle_rest(p_run uuid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    c runs_poolcharge;
BEGIN
    FOR c IN
        SELECT * FROM runs_poolcharge WHERE run_id = p_run AND used IS NULL
        AND EXISTS (SELECT 1 FROM runs_run WHERE id = p_run AND state IN ('completed', 'failed', 'cancelled')) ORDER BY pool_id
    LOOP
        PERFORM runs_settle_charge(c, c.reserved);
    END LOOP;
END $$;

-- Let a call wait for a shared budget; later calls queue behind it. A call that needs more than a whole period waits for a higher limit,
-- and doesn't block others.
CREATE OR REPLACE FUNCTION runs_gate(p_detail jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m runs_poolmeter;
BEGIN
    SELECT * INTO m FROM runs_poolmeter WHERE pool_id = (p_detail ->> 'pool')::bigint FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    m := runs_pool_turn(m);
    IF NOT m.is_on OR runs_pool_wanted(p_detail) <= m.most THEN
        UPDATE runs_poolmeter SET gate_at = coalesce(gate_at, clock_timestamp()) WHERE pool_id = m.pool_id;
    END IF;
    PERFORM runs_pool_notice(m, 'breach');
END $$;

-- Trigger: a call begins to wait for a shared budget.
CREATE OR REPLACE FUNCTION runs_on_pool_wait() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM runs_gate(NEW.detail);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER runs_pool_wait AFTER INSERT ON runs_wait FOR EACH ROW WHEN (NEW.kind = 'pool') EXECUTE FUNCTION runs_on_pool_wait();

-- Admit calls that wait for a shared budget, in order, as far as there is room. A call that needs more than a whole period is skipped.
-- `promised` is the amount that was admitted a moment ago and is not reserved yet.
--
-- One caller at a time processes a batch; any other gets one row of nulls. Heads are only locked if they are free, and a damaged run
-- doesn't block the others. When no more calls wait, new calls no longer have to queue.
CREATE OR REPLACE FUNCTION runs_open_gate(p_lock bigint, p_pool bigint, p_passed_over uuid[], p_limit int) RETURNS SETOF runs_fired
LANGUAGE plpgsql AS $$
DECLARE
    m runs_poolmeter;
    room bigint;
    due record;
    h ledger_head;
    r runs_run;
    line bytea;
    is_awake boolean;
    problem text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(p_lock) THEN
        RETURN NEXT (NULL, NULL, NULL, NULL, NULL)::runs_fired;
        RETURN;
    END IF;
    SELECT * INTO m FROM runs_poolmeter WHERE pool_id = p_pool;
    IF NOT FOUND OR m.is_on AND m.ends_at <= clock_timestamp() THEN
        RETURN;  -- the period is over: the meter is turned first
    END IF;
    IF m.promised_at IS NULL OR m.promised_at < clock_timestamp() - interval '5 seconds' THEN
        m.promised := 0;
    END IF;
    room := m.most - m.used - m.reserved - m.promised;
    FOR due IN
        SELECT w.id, w.run_id, w.slot, w.attempt, w.n, runs_pool_wanted(w.detail) AS wanted FROM runs_wait w
        WHERE w.kind = 'pool' AND w.resolved_at IS NULL AND w.detail ->> 'pool' = p_pool::text
          AND (NOT m.is_on OR runs_pool_wanted(w.detail) <= m.most) AND NOT (w.id = ANY (p_passed_over))
        ORDER BY w.opened_at, w.id LIMIT p_limit
    LOOP
        EXIT WHEN m.is_on AND due.wanted > room;
        problem := NULL;
        is_awake := false;
        BEGIN
            SELECT * INTO h FROM ledger_head WHERE run_id = due.run_id FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                CONTINUE WHEN EXISTS (SELECT 1 FROM ledger_head WHERE run_id = due.run_id);
                problem := 'its head is missing';
            ELSE
                SELECT * INTO r FROM runs_run WHERE id = due.run_id FOR UPDATE;
                CONTINUE WHEN NOT EXISTS (SELECT 1 FROM runs_wait WHERE id = due.id AND resolved_at IS NULL);
                IF r.state IN ('completed', 'failed', 'cancelled') THEN
                    problem := format('it has ended as %s and still waits', r.state);
                ELSE
                    UPDATE runs_wait SET resolution = 'let_in', resolved_by = 'system:sweeper', resolved_at = clock_timestamp() WHERE id = due.id;
                    is_awake := r.owner IS NULL AND r.state IN ('waiting_tool', 'waiting_human', 'waiting_event') AND (h.is_cancel_requested
                        OR NOT EXISTS (SELECT 1 FROM runs_wait o WHERE o.run_id = r.id AND o.kind = 'operator' AND o.resolved_at IS NULL));
                    IF is_awake THEN
                        UPDATE runs_run SET state = 'running', ready_at = clock_timestamp(), updated_at = clock_timestamp() WHERE id = r.id;
                        INSERT INTO django_q_ormq (key, payload, lock) VALUES ('durableagents', r.id::text, clock_timestamp());
                    ELSIF r.owner IS NULL AND r.state = 'paused' THEN
                        UPDATE runs_run SET is_woken = true, updated_at = clock_timestamp() WHERE id = r.id;
                    END IF;
                    -- the same bytes that ledger/events.py gives for WaitResolved
                    line := convert_to(format('{"attempt":%s,"by":"system:sweeper","kind":"WaitResolved","n":%s,"resolution":"let_in","slot":%s,"wait":"pool"}',
                                              due.attempt, due.n, to_json(due.slot)), 'UTF8');
                    h := ledger_append(h, ARRAY[ROW('WaitResolved', due.slot, due.attempt, format('wait_resolved.pool.%s', due.n), line, NULL,
                                                    sha256(line || decode(repeat('00', 32), 'hex')))::ledger_line]);
                    PERFORM ledger_store(h);
                    room := room - due.wanted;
                    m.promised := m.promised + due.wanted;
                END IF;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            IF runs_is_everybodys(SQLSTATE) THEN
                RAISE;
            END IF;
            CONTINUE WHEN left(SQLSTATE, 2) IN ('40', '55');
            problem := format('%s (%s)', SQLERRM, SQLSTATE);
        END;
        IF problem IS NULL THEN
            RETURN NEXT (due.id, due.run_id, h.seq, is_awake, NULL)::runs_fired;
        ELSE
            RETURN NEXT (due.id, due.run_id, NULL, false, problem)::runs_fired;
        END IF;
    END LOOP;
    PERFORM 1 FROM runs_poolmeter WHERE pool_id = p_pool FOR UPDATE;
    UPDATE runs_poolmeter SET promised = m.promised, promised_at = clock_timestamp(),
        gate_at = CASE WHEN EXISTS (
            SELECT 1 FROM runs_wait w WHERE w.kind = 'pool' AND w.resolved_at IS NULL AND w.detail ->> 'pool' = p_pool::text
            AND (NOT is_on OR runs_pool_wanted(w.detail) <= most) AND NOT (w.id = ANY (p_passed_over))) THEN gate_at END
    WHERE pool_id = p_pool;
END $$;

-- Advance the meters whose period is over. Locked ones are skipped, because a draw advances its own meter.
CREATE OR REPLACE FUNCTION runs_turn_pools() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    m runs_poolmeter;
    turned int := 0;
BEGIN
    FOR m IN SELECT * FROM runs_poolmeter WHERE is_on AND ends_at <= clock_timestamp() ORDER BY pool_id FOR UPDATE SKIP LOCKED LOOP
        PERFORM runs_pool_turn(m);
        turned := turned + 1;
    END LOOP;
    RETURN turned;
END $$;
