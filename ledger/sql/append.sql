-- The one writer of the journal. Every path that writes, worker or person, goes through ledger_lock and ledger_append.
-- Errors have their own SQLSTATEs: DA001 stale lease, DA404 no such run.

-- Lock a run's head and check the fence. A worker names epoch and lease; an actor (a person, the outside, the system) passes
-- both as null. Whatever else a function wants to know it reads after this lock, in later statements.
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
        RAISE EXCEPTION 'stale lease: run % is at epoch %, the writer came with epoch %', p_run, h.epoch, p_epoch
            USING ERRCODE = 'DA001';
    END IF;
    RETURN h;
END $$;

-- Append events to a locked head and return the head as it must be stored; the caller stores it once. Sequence number and link
-- are assigned here, under the lock, so that seq is gapless and the chain has one order whoever writes.
--     hash = sha256(prev ‖ seq ‖ epoch ‖ microseconds ‖ body)     (see ledger/chain.py)
CREATE OR REPLACE FUNCTION ledger_append(
    h ledger_head, p_kinds text[], p_slots text[], p_attempts int[], p_facts text[], p_clears bytea[], p_seals bytea[], p_bodies bytea[]
) RETURNS ledger_head
LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    link bytea;
BEGIN
    FOR i IN 1 .. coalesce(array_length(p_kinds, 1), 0) LOOP
        t := clock_timestamp();
        h.seq := h.seq + 1;
        link := sha256(h.chain || int8send(h.seq) || int8send(h.epoch)
                       || int8send((extract(epoch FROM t) * 1000000)::bigint) || p_bodies[i]);
        INSERT INTO ledger_event (run_id, seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, hash)
        VALUES (h.run_id, h.seq, h.epoch, t, p_kinds[i], p_slots[i], p_attempts[i], p_facts[i], p_clears[i], p_seals[i], h.chain, link);
        h.chain := link;
    END LOOP;
    RETURN h;
END $$;

-- Store what ledger_append returned.
CREATE OR REPLACE FUNCTION ledger_store(h ledger_head) RETURNS void
LANGUAGE sql AS $$
    UPDATE ledger_head SET
        epoch = h.epoch, lease = h.lease, seq = h.seq, claimed_seq = h.claimed_seq, deaths = h.deaths, chain = h.chain,
        is_pause_requested = h.is_pause_requested, is_cancel_requested = h.is_cancel_requested, is_on_hold = h.is_on_hold,
        steps = h.steps, tokens_in = h.tokens_in, tokens_out = h.tokens_out, usd_micro = h.usd_micro,
        tool_calls = h.tool_calls, model_calls = h.model_calls
    WHERE run_id = h.run_id;
$$;

-- Facts about side effects ride with the journal events that tell of them, in the same transaction.
CREATE OR REPLACE FUNCTION ledger_enter(
    h ledger_head, p_actor text, p_slots text[], p_attempts int[], p_facts text[], p_tools text[], p_classes text[],
    p_keys text[], p_inputs text[], p_externals text[], p_digests text[]
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO ledger_ledgerentry (run_id, seq, slot, attempt, fact, tool, replay_class, key, input_hash, external_id, digest, actor, at)
    SELECT h.run_id, h.seq, s, a, f, t, c, k, i, e, d, p_actor, clock_timestamp()
    FROM unnest(p_slots, p_attempts, p_facts, p_tools, p_classes, p_keys, p_inputs, p_externals, p_digests) AS u(s, a, f, t, c, k, i, e, d);
$$;

-- What a service calls: lock without a lease (the caller is a named actor), append, enter, store.
CREATE OR REPLACE FUNCTION ledger_append_as(
    p_run uuid, p_actor text,
    p_kinds text[], p_slots text[], p_attempts int[], p_facts text[], p_clears bytea[], p_seals bytea[], p_bodies bytea[],
    e_slots text[], e_attempts int[], e_facts text[], e_tools text[], e_classes text[], e_keys text[], e_inputs text[], e_externals text[], e_digests text[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    h ledger_head;
BEGIN
    h := ledger_lock(p_run, NULL, NULL);
    h := ledger_append(h, p_kinds, p_slots, p_attempts, p_facts, p_clears, p_seals, p_bodies);
    IF e_slots IS NOT NULL THEN
        PERFORM ledger_enter(h, p_actor, e_slots, e_attempts, e_facts, e_tools, e_classes, e_keys, e_inputs, e_externals, e_digests);
    END IF;
    PERFORM ledger_store(h);
    RETURN h.seq;
END $$;
