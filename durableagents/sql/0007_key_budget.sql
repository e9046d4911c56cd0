-- What a key may give to a run is part of what is told of it: raising it by hand is a change of the key.
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
