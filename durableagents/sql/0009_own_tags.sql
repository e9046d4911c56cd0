-- Whose own a tag is: an account sees the runs that carry it. Given and taken by an administrator, with a reason; a row says both, and stays.
-- Each is a record, whoever does it and however (see 0002_accounts.sql).
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
