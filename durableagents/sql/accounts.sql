-- Changes of accounts, roles, permissions and API keys are recorded, whichever way they are made: admin pages, a command,
-- raw SQL. The trigger functions run as the owner, the only role that may write the record, so the runtime role can neither omit nor add
-- one. No secret is recorded.

-- Record one act. The application names the actor for the transaction (`durableagents.actor`) and signs this (ledger/acting.py); otherwise the
-- actor is the login role. Any SQL may set the actor, so the signature is kept and verification checks it.
-- Only the trigger functions below can call it: any other caller lacks the right to insert.
CREATE OR REPLACE FUNCTION accounts_record(p_action text, p_subject text, p_subject_person bigint, p_before jsonb, p_after jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    said jsonb := nullif(current_setting('durableagents.actor', true), '')::jsonb;
    code text := said ->> 'code';
BEGIN
    INSERT INTO public.ledger_accountrecord (action, subject, subject_person, by, person, auth, address, before, after, at, reason, tx, code)
    VALUES (p_action, p_subject, p_subject_person, coalesce(said ->> 'by', 'database:' || session_user), (said ->> 'person')::bigint,
            coalesce(said ->> 'auth', 'database'), coalesce(said ->> 'address', ''), p_before,
            p_after || CASE WHEN p_action ~ '^(factor|sign_in)_' AND said ? 'reason' THEN jsonb_build_object('reason', said -> 'reason') ELSE '{}' END,
            clock_timestamp(),
            coalesce(said ->> 'reason', ''),
            pg_current_xact_id()::text || '@' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
            CASE WHEN code ~ '^([0-9a-f]{2})+$' THEN decode(code, 'hex') END);
END $$;

-- Return the name of an account for the record, also if the account is deleted before its memberships.
CREATE OR REPLACE FUNCTION accounts_name(p_user bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN 'user:' || coalesce((SELECT username FROM public.auth_user WHERE id = p_user), '#' || p_user);
END $$;

-- Return those of the given fields in which a row differs from another one. Callers pass no credentials.
CREATE OR REPLACE FUNCTION accounts_difference(p_row jsonb, p_other jsonb, p_fields text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN (SELECT coalesce(jsonb_object_agg(field, p_row -> field), '{}')
            FROM unnest(p_fields) AS field WHERE p_row -> field IS DISTINCT FROM p_other -> field);
END $$;

-- Trigger: record changes of accounts. Sign-in sets last_login, which is not recorded. If it renews an outdated password hash, that has its own action.
CREATE OR REPLACE FUNCTION accounts_on_user() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    fields text[] := ARRAY['username', 'email', 'first_name', 'last_name', 'is_active', 'is_staff', 'is_superuser'];
    was jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}' ELSE to_jsonb(OLD) END;
    is_now jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}' ELSE to_jsonb(NEW) END;
    lost jsonb := accounts_difference(was, is_now, fields);
    got jsonb := accounts_difference(is_now, was, fields);
    subject text := 'user:' || coalesce(is_now ->> 'username', was ->> 'username');
    person bigint := coalesce(is_now ->> 'id', was ->> 'id')::bigint;
    old_kind text := split_part(was ->> 'password', '$', 1);
    new_kind text := split_part(is_now ->> 'password', '$', 1);
    auth text := coalesce(nullif(current_setting('durableagents.actor', true), '')::jsonb ->> 'auth', 'database');
BEGIN
    IF lost <> '{}' OR got <> '{}' OR TG_OP <> 'UPDATE' THEN
        PERFORM accounts_record(CASE TG_OP WHEN 'INSERT' THEN 'account_added' WHEN 'DELETE' THEN 'account_removed' ELSE 'account_changed' END,
                                subject, person, lost, got);
    END IF;
    IF TG_OP = 'UPDATE' AND was -> 'password' <> is_now -> 'password' THEN
        PERFORM accounts_record(
            CASE WHEN old_kind <> new_kind AND auth = 'database' THEN 'password_rehashed' ELSE 'password_changed' END,
            subject, person, jsonb_build_object('kind', old_kind), jsonb_build_object('kind', new_kind));
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_user
    FOR EACH ROW EXECUTE FUNCTION accounts_on_user();

-- Trigger: record changes of the roles themselves, because renaming a role changes its members' rights.
CREATE OR REPLACE FUNCTION accounts_on_role() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    was text := CASE WHEN TG_OP <> 'INSERT' THEN OLD.name END;
    is_now text := CASE WHEN TG_OP <> 'DELETE' THEN NEW.name END;
BEGIN
    IF was IS DISTINCT FROM is_now THEN
        PERFORM accounts_record(CASE TG_OP WHEN 'INSERT' THEN 'role_added' WHEN 'DELETE' THEN 'role_removed' ELSE 'role_renamed' END,
                                'role:' || coalesce(is_now, was), NULL,
                                jsonb_strip_nulls(jsonb_build_object('name', was)), jsonb_strip_nulls(jsonb_build_object('name', is_now)));
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_group
    FOR EACH ROW EXECUTE FUNCTION accounts_on_role();

-- Trigger: record the roles of accounts, and Django's permissions of accounts and roles, which give access to pages under /admin/. A row changed in
-- place is recorded as one taken and one given.
CREATE OR REPLACE FUNCTION accounts_on_grant() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    old_row jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    new_row jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    what text := CASE WHEN TG_TABLE_NAME = 'auth_user_groups' THEN 'role' ELSE 'permission' END;
    one jsonb;
    subject text;
    named jsonb;
BEGIN
    FOREACH one IN ARRAY array_remove(ARRAY[old_row, new_row], NULL) LOOP
        subject := CASE WHEN one ? 'user_id' THEN accounts_name((one ->> 'user_id')::bigint)
                   ELSE 'role:' || coalesce((SELECT name FROM public.auth_group WHERE id = (one ->> 'group_id')::bigint), '#' || (one ->> 'group_id')) END;
        named := jsonb_build_object(what, CASE what WHEN 'role' THEN (SELECT name FROM public.auth_group WHERE id = (one ->> 'group_id')::bigint)
                                          ELSE (SELECT codename FROM public.auth_permission WHERE id = (one ->> 'permission_id')::bigint) END);
        IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND one = old_row) THEN
            PERFORM accounts_record(what || '_taken', subject, (one ->> 'user_id')::bigint, named, '{}');
        ELSE
            PERFORM accounts_record(what || '_given', subject, (one ->> 'user_id')::bigint, '{}', named);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_user_groups
    FOR EACH ROW EXECUTE FUNCTION accounts_on_grant();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_user_user_permissions
    FOR EACH ROW EXECUTE FUNCTION accounts_on_grant();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_group_permissions
    FOR EACH ROW EXECUTE FUNCTION accounts_on_grant();

-- Trigger: record changes of API keys, including the budget that a key may give to a run. Of its digest, only the fact of a change is recorded.
CREATE OR REPLACE FUNCTION accounts_on_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    fields text[] := ARRAY['user_id', 'name', 'prefix', 'expires_at', 'revoked_at', 'budget'];
    was jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}' ELSE to_jsonb(OLD) END;
    is_now jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}' ELSE to_jsonb(NEW) END;
    owner bigint := coalesce(is_now ->> 'user_id', was ->> 'user_id')::bigint;
    lost jsonb := accounts_difference(was, is_now, fields);
    got jsonb := accounts_difference(is_now, was, fields);
    is_other_key boolean := TG_OP = 'UPDATE' AND was -> 'hash' <> is_now -> 'hash';
BEGIN
    IF lost <> '{}' OR got <> '{}' OR is_other_key THEN
        PERFORM accounts_record(
            CASE WHEN TG_OP = 'INSERT' THEN 'key_issued' WHEN TG_OP = 'DELETE' THEN 'key_removed'
                 WHEN was ->> 'revoked_at' IS NULL AND is_now ->> 'revoked_at' IS NOT NULL THEN 'key_revoked' ELSE 'key_changed' END,
            'key:' || substr(accounts_name(owner), 6) || '/' || coalesce(is_now ->> 'name', was ->> 'name'), owner, lost,
            got || CASE WHEN is_other_key THEN '{"is_other_key": true}'::jsonb ELSE '{}' END);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON durableagents_apikey
    FOR EACH ROW EXECUTE FUNCTION accounts_on_key();

-- Trigger: record own tags, whose runs an account may see. An administrator gives and takes them with a reason; the row keeps both reasons.
CREATE OR REPLACE FUNCTION accounts_on_own_tag() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.taken_at IS NULL AND (TG_OP = 'DELETE' OR NEW.taken_at IS NOT NULL OR (NEW.user_id, NEW.tag) <> (OLD.user_id, OLD.tag)) THEN
        PERFORM accounts_record('tag_taken', accounts_name(OLD.user_id), OLD.user_id, jsonb_build_object('tag', OLD.tag),
                                jsonb_build_object('reason', CASE TG_OP WHEN 'DELETE' THEN '' ELSE NEW.taken_for END));
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.taken_at IS NULL
       AND (TG_OP = 'INSERT' OR OLD.taken_at IS NOT NULL OR (NEW.user_id, NEW.tag) <> (OLD.user_id, OLD.tag)) THEN
        PERFORM accounts_record('tag_given', accounts_name(NEW.user_id), NEW.user_id, '{}',
                                jsonb_build_object('tag', NEW.tag, 'reason', NEW.given_for));
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON durableagents_owntag
    FOR EACH ROW EXECUTE FUNCTION accounts_on_own_tag();
