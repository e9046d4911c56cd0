-- An ended session must not be revived: any SQL may delete a row of django_session and insert a copy of it later.

-- Trigger: keep the key of an ended session for a day, and refuse a new row with such a key. A session lasts at most twelve hours.
CREATE OR REPLACE FUNCTION sessions_on_end() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM public.durableagents_endedsession WHERE session_key IN (
            SELECT e.session_key FROM public.durableagents_endedsession e WHERE e.ended_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED);
        INSERT INTO public.durableagents_endedsession (session_key, ended_at) VALUES (OLD.session_key, clock_timestamp()) ON CONFLICT DO NOTHING;
    END IF;
    IF TG_OP <> 'DELETE' AND EXISTS (SELECT FROM public.durableagents_endedsession e WHERE e.session_key = NEW.session_key) THEN
        RAISE EXCEPTION 'session % has ended', NEW.session_key;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER sessions_stay_ended AFTER INSERT OR DELETE OR UPDATE OF session_key ON django_session
    FOR EACH ROW EXECUTE FUNCTION sessions_on_end();
