-- Passkeys are second factors, several of an account: each is on record by the name that its owner gave it and the digest of its public key,
-- so that whoever reads a decision that one signed can tell whose it was, and since when. In the place of the function of 0014_factors.sql.

-- A passkey is one account's. What a browser answers with is looked for by this.
CREATE UNIQUE INDEX IF NOT EXISTS durableagents_passkey_once ON mfa_authenticator ((data -> 'id')) WHERE type = 'webauthn';

-- Second factors and their recovery codes. That a code or a passkey was used is no change; that a recovery code was, is.
CREATE OR REPLACE FUNCTION accounts_on_factor() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    one public.mfa_authenticator := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    told jsonb := jsonb_build_object('factor', one.type) || accounts_passkey(one.type, one.data);
    used text[] := ARRAY['used_step', 'used_mask', 'viewed_at', 'sign_count'];
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM accounts_record('factor_added', accounts_name(one.user_id), one.user_id, '{}', told || accounts_reason());
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM accounts_record('factor_removed', accounts_name(one.user_id), one.user_id, told, accounts_reason());
    ELSIF OLD.user_id <> NEW.user_id OR OLD.type <> NEW.type OR OLD.data - used <> NEW.data - used THEN
        PERFORM accounts_record('factor_changed', accounts_name(one.user_id), one.user_id,
                                jsonb_build_object('factor', OLD.type, 'user_id', OLD.user_id) || accounts_passkey(OLD.type, OLD.data),
                                told || jsonb_build_object('user_id', NEW.user_id, 'is_other_secret', OLD.data - used - 'name' <> NEW.data - used - 'name')
                                     || accounts_reason());
    ELSIF OLD.data -> 'used_mask' IS DISTINCT FROM NEW.data -> 'used_mask' THEN
        PERFORM accounts_record('recovery_code_used', accounts_name(one.user_id), one.user_id,
                                jsonb_build_object('codes_left', accounts_codes_left(OLD.data)), jsonb_build_object('codes_left', accounts_codes_left(NEW.data)));
    END IF;
    RETURN NULL;
END $$;

-- What a record says of a passkey: nothing that could be used.
CREATE OR REPLACE FUNCTION accounts_passkey(p_type text, p_data jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN CASE WHEN p_type = 'webauthn' THEN jsonb_build_object('name', p_data -> 'name', 'key', p_data -> 'key') ELSE '{}' END;
END $$;
