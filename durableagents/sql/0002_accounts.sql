-- What is done to accounts, roles, permissions and API keys is a record, whoever does it and however: the admin's pages, a command, raw SQL.
-- The trigger functions run as the owner, who alone may write there. So the runtime role can neither leave a line out nor add one.

-- Put one act on record. Who acts, the application says for the transaction (`durableagents.actor`, see accounts.py); what comes past it is
-- the login role's. Called by the trigger functions below; called by anybody else it fails for want of the right to insert.
CREATE OR REPLACE FUNCTION accounts_record(p_action text, p_subject text, p_subject_person bigint, p_before jsonb, p_after jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    said jsonb := nullif(current_setting('durableagents.actor', true), '')::jsonb;
BEGIN
    INSERT INTO public.ledger_accountrecord (action, subject, subject_person, by, person, auth, address, before, after, at)
    VALUES (p_action, p_subject, p_subject_person, coalesce(said ->> 'by', 'database:' || session_user), (said ->> 'person')::bigint,
            coalesce(said ->> 'auth', 'database'), coalesce(said ->> 'address', ''), p_before, p_after, clock_timestamp());
END $$;

-- How records name an account, also one that is gone by the time its memberships go.
CREATE OR REPLACE FUNCTION accounts_name(p_user bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN 'user:' || coalesce((SELECT username FROM public.auth_user WHERE id = p_user), '#' || p_user);
END $$;

-- What of a row differs from another: for before and after. Nothing that could be used to sign in is among it.
CREATE OR REPLACE FUNCTION accounts_difference(p_row jsonb, p_other jsonb, p_fields text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN (SELECT coalesce(jsonb_object_agg(field, p_row -> field), '{}')
            FROM unnest(p_fields) AS field WHERE p_row -> field IS DISTINCT FROM p_other -> field);
END $$;

-- Accounts. Signing in touches last_login, which is no change; an older kind of password hash is renewed at sign-in, which is told apart.
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
BEGIN
    IF lost <> '{}' OR got <> '{}' OR TG_OP <> 'UPDATE' THEN
        PERFORM accounts_record(CASE TG_OP WHEN 'INSERT' THEN 'account_added' WHEN 'DELETE' THEN 'account_removed' ELSE 'account_changed' END,
                                subject, person, lost, got);
    END IF;
    IF TG_OP = 'UPDATE' AND was -> 'password' <> is_now -> 'password' THEN
        PERFORM accounts_record(
            CASE WHEN old_kind <> new_kind AND nullif(current_setting('durableagents.actor', true), '') IS NULL
                 THEN 'password_rehashed' ELSE 'password_changed' END,
            subject, person, jsonb_build_object('kind', old_kind), jsonb_build_object('kind', new_kind));
    END IF;
    RETURN NULL;
END $$;

-- Who has which role. A membership that is changed in place is one taken and one given.
CREATE OR REPLACE FUNCTION accounts_on_membership() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM accounts_record('role_taken', accounts_name(OLD.user_id), OLD.user_id,
                                jsonb_build_object('role', (SELECT name FROM public.auth_group WHERE id = OLD.group_id)), '{}');
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM accounts_record('role_given', accounts_name(NEW.user_id), NEW.user_id, '{}',
                                jsonb_build_object('role', (SELECT name FROM public.auth_group WHERE id = NEW.group_id)));
    END IF;
    RETURN NULL;
END $$;

-- The roles themselves: one that is renamed gives its members other rights.
CREATE OR REPLACE FUNCTION accounts_on_role() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    was text := CASE WHEN TG_OP <> 'INSERT' THEN OLD.name END;
    is_now text := CASE WHEN TG_OP <> 'DELETE' THEN NEW.name END;
BEGIN
    IF was IS DISTINCT FROM is_now THEN
        PERFORM accounts_record(CASE TG_OP WHEN 'INSERT' THEN 'role_added' WHEN 'DELETE' THEN 'role_removed' ELSE 'role_renamed' END,
                                'role:' || coalesce(is_now, was), NULL,
                                CASE WHEN was IS NULL THEN '{}' ELSE jsonb_build_object('name', was) END,
                                CASE WHEN is_now IS NULL THEN '{}' ELSE jsonb_build_object('name', is_now) END);
    END IF;
    RETURN NULL;
END $$;

-- Django's permissions, of accounts and of roles: they open the pages under /admin/.
CREATE OR REPLACE FUNCTION accounts_on_permission() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    old_row jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    new_row jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    one jsonb;
    subject text;
    told jsonb;
BEGIN
    FOREACH one IN ARRAY array_remove(ARRAY[old_row, new_row], NULL) LOOP
        subject := CASE WHEN one ? 'user_id' THEN accounts_name((one ->> 'user_id')::bigint)
                   ELSE 'role:' || coalesce((SELECT name FROM public.auth_group WHERE id = (one ->> 'group_id')::bigint), '#' || (one ->> 'group_id')) END;
        told := jsonb_build_object('permission', (SELECT codename FROM public.auth_permission WHERE id = (one ->> 'permission_id')::bigint));
        IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND one = old_row) THEN
            PERFORM accounts_record('permission_taken', subject, (one ->> 'user_id')::bigint, told, '{}');
        ELSE
            PERFORM accounts_record('permission_given', subject, (one ->> 'user_id')::bigint, '{}', told);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- API keys. That one was used is no change; its digest is told to nobody, that it was changed is.
CREATE OR REPLACE FUNCTION accounts_on_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    fields text[] := ARRAY['user_id', 'name', 'prefix', 'expires_at', 'revoked_at'];
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

CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_user
FOR EACH ROW EXECUTE FUNCTION accounts_on_user();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_user_groups
FOR EACH ROW EXECUTE FUNCTION accounts_on_membership();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_group
FOR EACH ROW EXECUTE FUNCTION accounts_on_role();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_user_user_permissions
FOR EACH ROW EXECUTE FUNCTION accounts_on_permission();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON auth_group_permissions
FOR EACH ROW EXECUTE FUNCTION accounts_on_permission();
CREATE OR REPLACE TRIGGER accounts_are_recorded AFTER INSERT OR UPDATE OR DELETE ON durableagents_apikey
FOR EACH ROW EXECUTE FUNCTION accounts_on_key();
