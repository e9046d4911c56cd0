-- The one writer of the journal: every write goes through ledger_lock and ledger_append.
-- SQLSTATEs: DA001 stale lease, DA404 no such run.

CREATE TYPE ledger_line AS (kind text, slot text, attempt int, fact text, clear bytea, sealed bytea, body bytea);
CREATE TYPE ledger_fact AS (
    slot text, attempt int, fact text, tool text, replay_class text, key text, input_hash text, external_id text, digest text
);

-- Lock a run's head and check the fence. A worker passes epoch and lease; an actor (a person, an outside party, the system) passes null for
-- both. A function must read everything else after this lock, in later statements.
CREATE OR REPLACE FUNCTION ledger_lock(p_run uuid, p_epoch bigint, p_lease uuid) RETURNS ledger_head
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    SELECT * INTO h FROM ledger_head WHERE run_id = p_run FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % does not exist', p_run USING ERRCODE = 'DA404';
    END IF;
    IF p_epoch IS NOT NULL AND (h.epoch <> p_epoch OR h.lease IS DISTINCT FROM p_lease) THEN
        RAISE EXCEPTION 'stale lease: run % is at epoch %, but the writer has epoch %', p_run, h.epoch, p_epoch
            USING ERRCODE = 'DA001';
    END IF;
    RETURN h;
END $$;

-- Append events to a locked head and return the head as it must be stored; the caller stores it once. Sequence number and hash are assigned
-- here, under the lock, so that seq has no gaps and the chain has one order. `line.body` holds the digest (32 bytes) and the keyed code.
--     hash = sha256(prev ‖ seq ‖ epoch ‖ microseconds ‖ body)     (see ledger/chain.py)
CREATE OR REPLACE FUNCTION ledger_append(h ledger_head, p_lines ledger_line[]) RETURNS ledger_head
LANGUAGE plpgsql AS $$
DECLARE
    line ledger_line;
    t timestamptz;
    link bytea;
BEGIN
    FOREACH line IN ARRAY p_lines LOOP
        t := clock_timestamp();
        h.seq := h.seq + 1;
        link := sha256(h.chain || int8send(h.seq) || int8send(h.epoch)
                       || int8send((extract(epoch FROM t) * 1000000)::bigint) || substring(line.body FROM 1 FOR 32));
        INSERT INTO ledger_event (run_id, seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, hash, code)
        VALUES (h.run_id, h.seq, h.epoch, t, line.kind, line.slot, line.attempt, line.fact, line.clear, line.sealed, h.chain, link,
                CASE WHEN length(line.body) > 32 THEN substring(line.body FROM 33) END);
        h.chain := link;
        h.bytes := h.bytes + octet_length(line.clear) + coalesce(octet_length(line.sealed), 0);
    END LOOP;
    RETURN h;
END $$;

-- Store what ledger_append returned. It is PL/pgSQL, like everything that a step runs, because that keeps its plans on every server version.
CREATE OR REPLACE FUNCTION ledger_store(h ledger_head) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger_head SET
        epoch = h.epoch, lease = h.lease, seq = h.seq, claimed_seq = h.claimed_seq, deaths = h.deaths, chain = h.chain,
        is_pause_requested = h.is_pause_requested, is_cancel_requested = h.is_cancel_requested, is_on_hold = h.is_on_hold,
        steps = h.steps, tokens_in = h.tokens_in, tokens_out = h.tokens_out, usd_micro = h.usd_micro,
        tool_calls = h.tool_calls, model_calls = h.model_calls, unpriced_calls = h.unpriced_calls, bytes = h.bytes
    WHERE run_id = h.run_id;
END $$;

-- Write the facts about side effects in the transaction of the events that report them.
CREATE OR REPLACE FUNCTION ledger_enter(h ledger_head, p_actor text, p_facts ledger_fact[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    f ledger_fact;
BEGIN
    FOREACH f IN ARRAY p_facts LOOP
        INSERT INTO ledger_ledgerentry (run_id, seq, slot, attempt, fact, tool, replay_class, key, input_hash, external_id, digest, actor, at)
        VALUES (h.run_id, h.seq, f.slot, f.attempt, f.fact, f.tool, f.replay_class, f.key, f.input_hash, f.external_id, f.digest,
                p_actor, clock_timestamp());
    END LOOP;
END $$;

-- Append for a service: lock without a lease (the caller is a named actor), append, enter, store.
CREATE OR REPLACE FUNCTION ledger_append_as(p_run uuid, p_actor text, p_lines ledger_line[], p_facts ledger_fact[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    h := ledger_lock(p_run, NULL, NULL);
    h := ledger_append(h, p_lines);
    PERFORM ledger_enter(h, p_actor, p_facts);
    PERFORM ledger_store(h);
    RETURN h.seq;
END $$;

-- Return whether a run's rows are being restored from an archive, so that its row already shows the effect of its events. Only the tables'
-- owner can set this, in a function. It is plpgsql, because an SQL function in a trigger's condition would be parsed for each statement.
CREATE OR REPLACE FUNCTION ledger_comes_back() RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(current_setting('durableagents.restores', true), '') = 'on'
       AND current_user = (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'public.ledger_event'::regclass);
END $$;
