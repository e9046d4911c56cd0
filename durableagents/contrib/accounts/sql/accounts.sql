-- Changes of second factors and linked sign-ins are recorded like those of accounts (durableagents/sql/accounts.sql).

-- Trigger: record changes of second factors and recovery codes. Of a passkey, the record has its name and the digest of its public key. Using a code
-- or a passkey is no change; using one of the ten recovery codes is.
CREATE OR REPLACE FUNCTION accounts_on_factor() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    one public.mfa_authenticator := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    was jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}'
                 ELSE jsonb_strip_nulls(jsonb_build_object('factor', OLD.type, 'name', OLD.data -> 'name', 'key', OLD.data -> 'key')) END;
    is_now jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}'
                    ELSE jsonb_strip_nulls(jsonb_build_object('factor', NEW.type, 'name', NEW.data -> 'name', 'key', NEW.data -> 'key')) END;
    used text[] := ARRAY['used_step', 'used_mask', 'viewed_at', 'sign_count'];
BEGIN
    IF TG_OP <> 'UPDATE' THEN
        PERFORM accounts_record(CASE TG_OP WHEN 'INSERT' THEN 'factor_added' ELSE 'factor_removed' END, accounts_name(one.user_id), one.user_id, was, is_now);
    ELSIF OLD.user_id <> NEW.user_id OR OLD.type <> NEW.type OR OLD.data - used <> NEW.data - used THEN
        PERFORM accounts_record('factor_changed', accounts_name(one.user_id), one.user_id, was || jsonb_build_object('user_id', OLD.user_id),
            is_now || jsonb_build_object('user_id', NEW.user_id, 'is_other_secret', OLD.data - used - 'name' <> NEW.data - used - 'name'));
    ELSIF OLD.data -> 'used_mask' IS DISTINCT FROM NEW.data -> 'used_mask' THEN
        PERFORM accounts_record('recovery_code_used', accounts_name(one.user_id), one.user_id,
            jsonb_build_object('codes_left', 10 - bit_count(coalesce((OLD.data ->> 'used_mask')::bigint, 0)::bit(64))),
            jsonb_build_object('codes_left', 10 - bit_count(coalesce((NEW.data ->> 'used_mask')::bigint, 0)::bit(64))));
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON mfa_authenticator
    FOR EACH ROW EXECUTE FUNCTION accounts_on_factor();

-- Trigger: record the identities (issuer and subject) by which an account may sign in.
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
        PERFORM accounts_record('sign_in_unlinked', accounts_name(OLD.user_id), OLD.user_id, was, '{}');
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM accounts_record('sign_in_linked', accounts_name(NEW.user_id), NEW.user_id, '{}', is_now);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON socialaccount_socialaccount
    FOR EACH ROW EXECUTE FUNCTION accounts_on_link();

-- Return what else the code of an account covers (ledger/sql/protected.sql): its second factors and linked sign-ins. Columns that change when
-- a factor is used are left out, because they give no access.
CREATE OR REPLACE FUNCTION ledger_account_parts(p_user bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN jsonb_build_object(
        'factors', (SELECT jsonb_agg(jsonb_build_array(x.id, x.type, CASE WHEN jsonb_typeof(x.data) = 'object'
                        THEN x.data - '{used_step,sign_count,viewed_at}'::text[] ELSE x.data END) ORDER BY x.id)
                    FROM public.mfa_authenticator x WHERE x.user_id = p_user),
        'sign_ins', (SELECT jsonb_agg(jsonb_build_array(x.provider, x.uid) ORDER BY x.id)
                     FROM public.socialaccount_socialaccount x WHERE x.user_id = p_user));
END $$;
