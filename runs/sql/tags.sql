-- Tags: the rows that decide which runs a viewer sees. Triggers write them in the transaction of their run, so that no writer can omit them.

-- Return a run's tags by the names used elsewhere: for a list each item; for an object each name, and each name:value.
CREATE OR REPLACE FUNCTION runs_tags_of(p_tags jsonb) RETURNS SETOF text
LANGUAGE sql IMMUTABLE AS $$
    SELECT a FROM jsonb_array_elements_text(CASE jsonb_typeof(p_tags) WHEN 'array' THEN p_tags ELSE '[]' END) a
    UNION SELECT t FROM jsonb_each_text(CASE jsonb_typeof(p_tags) WHEN 'object' THEN p_tags ELSE '{}' END) o,
                        unnest(ARRAY[o.key, o.key || ':' || o.value]) t
$$;

-- Trigger: the visibility tags of a new run.
CREATE OR REPLACE FUNCTION runs_keep_tags() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO runs_runtag (run_id, tag, created_at) SELECT NEW.id, t, NEW.created_at FROM runs_tags_of(NEW.tags) t
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER runs_keep_tags AFTER INSERT ON runs_run
    FOR EACH ROW WHEN (NEW.tags <> '[]'::jsonb AND NEW.tags <> '{}'::jsonb) EXECUTE FUNCTION runs_keep_tags();

-- Trigger: copy a run's visibility tags to its child runs and continuations, once, when these are created.
CREATE OR REPLACE FUNCTION runs_hand_tags_on() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO runs_runtag (run_id, tag, created_at)
    SELECT DISTINCT NEW.id, t.tag, NEW.created_at FROM runs_runtag t WHERE t.run_id IN (NEW.parent, NEW.came_from)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER runs_hand_tags_on AFTER UPDATE OF parent, came_from ON runs_run
    FOR EACH ROW WHEN (NEW.parent IS DISTINCT FROM OLD.parent OR NEW.came_from IS DISTINCT FROM OLD.came_from)
    EXECUTE FUNCTION runs_hand_tags_on();
