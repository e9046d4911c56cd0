-- Records that belong to no run: acts of people (`acts`) and changes of accounts (`accounts`). The database numbers and links
-- each list row by row, so that a row that was changed, removed, inserted or moved is found. The functions run as the owner; the
-- runtime role may only read where a list ends.

-- Return the end of a list, locked until the transaction ends, so that no number is left out.
CREATE OR REPLACE FUNCTION ledger_next(p_name text) RETURNS ledger_register
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r public.ledger_register;
BEGIN
    IF p_name NOT IN ('acts', 'accounts') THEN
        RAISE EXCEPTION 'there is no list of %', p_name;
    END IF;
    SELECT * INTO r FROM public.ledger_register WHERE name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        -- New, or taken away: then the list goes on from its last row, for what is done to accounts must not wait for the row to be put back.
        INSERT INTO public.ledger_register (name, n, chain)
        SELECT p_name, coalesce(last.n, 0), coalesce(last.hash, sha256(convert_to('register:' || p_name, 'UTF8')))
        FROM (SELECT 1) AS one LEFT JOIN LATERAL (
            SELECT n, hash FROM public.ledger_actrecord WHERE p_name = 'acts' AND n IS NOT NULL
            UNION ALL SELECT n, hash FROM public.ledger_accountrecord WHERE p_name = 'accounts' AND n IS NOT NULL
            ORDER BY n DESC LIMIT 1
        ) AS last ON true
        ON CONFLICT DO NOTHING;
        SELECT * INTO r FROM public.ledger_register WHERE name = p_name FOR UPDATE;
    END IF;
    RETURN r;
END $$;

-- Return the content of an act's row as one canonical text.
CREATE OR REPLACE FUNCTION ledger_act_body(r ledger_actrecord) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN jsonb_build_array(r.id, r.action, r.subject, r.queue, r."by", r.person, r.role, r.auth, r.address, r.justification, r.seq,
                             encode(r.chain, 'hex'), r.before, r.after, extract(epoch FROM r.at)::text, encode(r.code, 'hex'))::text;
END $$;

-- Return the content of a row about an account as one canonical text.
CREATE OR REPLACE FUNCTION ledger_account_body(r ledger_accountrecord) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN jsonb_build_array(r.id, r.action, r.subject, r.subject_person, r."by", r.person, r.auth, r.address, r.before, r.after,
                             extract(epoch FROM r.at)::text, r.reason, r.tx, encode(r.code, 'hex'))::text;
END $$;

-- Return the hash of a row: sha256(prev ‖ n ‖ content).
CREATE OR REPLACE FUNCTION ledger_link(p_prev bytea, p_n bigint, p_body text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN sha256(p_prev || int8send(p_n) || convert_to(p_body, 'UTF8'));
END $$;

-- Trigger: number and link an act that belongs to no run. A writer with the key has named its number, because its code covers it.
CREATE OR REPLACE FUNCTION ledger_number_act() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r public.ledger_register := public.ledger_next('acts');
BEGIN
    IF NEW.n IS NULL THEN
        NEW.n := r.n + 1;
        NEW.prev_hash := r.chain;
    ELSIF NEW.n <> r.n + 1 OR NEW.prev_hash IS DISTINCT FROM r.chain THEN
        RAISE EXCEPTION 'act % does not follow act %', NEW.n, r.n;
    END IF;
    NEW.hash := public.ledger_link(NEW.prev_hash, NEW.n, public.ledger_act_body(NEW));
    UPDATE public.ledger_register SET n = NEW.n, chain = NEW.hash WHERE name = 'acts';
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER acts_are_numbered BEFORE INSERT ON ledger_actrecord
    FOR EACH ROW WHEN (NEW.run_id IS NULL) EXECUTE FUNCTION ledger_number_act();

-- Trigger: number and link a change of an account. Only the triggers on accounts write it, and they have no key.
CREATE OR REPLACE FUNCTION ledger_number_account() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r public.ledger_register := public.ledger_next('accounts');
BEGIN
    NEW.n := r.n + 1;
    NEW.prev_hash := r.chain;
    NEW.hash := public.ledger_link(NEW.prev_hash, NEW.n, public.ledger_account_body(NEW));
    UPDATE public.ledger_register SET n = NEW.n, chain = NEW.hash WHERE name = 'accounts';
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_numbered BEFORE INSERT ON ledger_accountrecord
    FOR EACH ROW EXECUTE FUNCTION ledger_number_account();
