-- Second factors, and who may sign in by whom (OpenID Connect), are on record as accounts are: see 0002_accounts.sql. No secret is told.

-- What is added to a record for the reason that was given with the act, if one was.
CREATE OR REPLACE FUNCTION accounts_reason() RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    reason text := nullif(current_setting('durableagents.actor', true), '')::jsonb ->> 'reason';
BEGIN
    RETURN CASE WHEN reason IS NULL THEN '{}' ELSE jsonb_build_object('reason', reason) END;
END $$;

-- How many of ten recovery codes are left, by the mask of those that were used.
CREATE OR REPLACE FUNCTION accounts_codes_left(p_data jsonb) RETURNS integer
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN 10 - bit_count(coalesce((p_data ->> 'used_mask')::bigint, 0)::bit(64));
END $$;

-- Second factors and their recovery codes. That a code of a device was used is no change; that a recovery code was, is.
CREATE OR REPLACE FUNCTION accounts_on_factor() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    one public.mfa_authenticator := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    told jsonb := jsonb_build_object('factor', one.type);
    used text[] := ARRAY['used_step', 'used_mask', 'viewed_at'];
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM accounts_record('factor_added', accounts_name(one.user_id), one.user_id, '{}', told || accounts_reason());
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM accounts_record('factor_removed', accounts_name(one.user_id), one.user_id, told, accounts_reason());
    ELSIF OLD.user_id <> NEW.user_id OR OLD.type <> NEW.type OR OLD.data - used <> NEW.data - used THEN
        PERFORM accounts_record('factor_changed', accounts_name(one.user_id), one.user_id, jsonb_build_object('factor', OLD.type, 'user_id', OLD.user_id),
                                told || jsonb_build_object('user_id', NEW.user_id, 'is_other_secret', OLD.data <> NEW.data) || accounts_reason());
    ELSIF OLD.data -> 'used_mask' IS DISTINCT FROM NEW.data -> 'used_mask' THEN
        PERFORM accounts_record('recovery_code_used', accounts_name(one.user_id), one.user_id,
                                jsonb_build_object('codes_left', accounts_codes_left(OLD.data)), jsonb_build_object('codes_left', accounts_codes_left(NEW.data)));
    END IF;
    RETURN NULL;
END $$;

-- By whose word somebody may sign in: an issuer's, of one of its subjects.
CREATE OR REPLACE FUNCTION accounts_on_link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    was jsonb := CASE WHEN TG_OP <> 'INSERT' THEN jsonb_build_object('issuer', OLD.provider, 'subject', OLD.uid) ELSE '{}' END;
    is_now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN jsonb_build_object('issuer', NEW.provider, 'subject', NEW.uid) ELSE '{}' END;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.user_id = NEW.user_id AND was = is_now THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        PERFORM accounts_record('sign_in_unlinked', accounts_name(OLD.user_id), OLD.user_id, was, accounts_reason());
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM accounts_record('sign_in_linked', accounts_name(NEW.user_id), NEW.user_id, '{}', is_now || accounts_reason());
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON mfa_authenticator
FOR EACH ROW EXECUTE FUNCTION accounts_on_factor();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON socialaccount_socialaccount
FOR EACH ROW EXECUTE FUNCTION accounts_on_link();
