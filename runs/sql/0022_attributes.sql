-- What runs are found by. Whoever writes an `AttributesSet` (a start, a step, a parent that starts a child) writes its rows with it: the
-- journal's table makes them itself, in the same transaction, so no writer can leave them out and none has to be told of them.

-- Trigger: the rows of what an event sets. What it names and gives no value is unset. The head's lock orders two events of one run, and
-- nobody else touches its rows, so none waits here for another run. It writes as the owner: whoever runs the product may only read them.
CREATE OR REPLACE FUNCTION runs_set_attributes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    said jsonb := convert_from(NEW.clear, 'UTF8')::jsonb;
BEGIN
    DELETE FROM runs_attribute WHERE run_id = NEW.run_id AND name IN (SELECT jsonb_array_elements_text(said -> 'named'));
    INSERT INTO runs_attribute (run_id, name, n, kind, word, number, created_at)
    SELECT NEW.run_id, v.name, row_number() OVER (PARTITION BY v.name ORDER BY v.place) - 1, v.kind,
           CASE WHEN v.kind NOT IN ('number', 'money') THEN v.value END,
           CASE WHEN v.kind IN ('number', 'money') THEN v.value::numeric END, r.created_at
    FROM ROWS FROM (
        jsonb_array_elements_text(said -> 'names'), jsonb_array_elements_text(said -> 'kinds'), jsonb_array_elements_text(said -> 'values')
    ) WITH ORDINALITY AS v (name, kind, value, place)
    JOIN runs_run r ON r.id = NEW.run_id;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER runs_attributes_set AFTER INSERT ON ledger_event
    FOR EACH ROW WHEN (NEW.kind = 'AttributesSet') EXECUTE FUNCTION runs_set_attributes();
