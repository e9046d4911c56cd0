-- Rows by which runs are found. They are written in the transaction of the start or event to which they belong, so that no writer can omit
-- them.

-- Replaces the hook of starts: store a new run's search terms.
CREATE OR REPLACE FUNCTION runs_index_terms(p_run uuid, p_terms text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runs_searchterm (term, run_id) SELECT unnest(p_terms), p_run ON CONFLICT DO NOTHING;
END $$;

-- Replaces the hook of continuations: a run is also found by the words of the run before it, except the end of that run's id.
CREATE OR REPLACE FUNCTION runs_pass_terms_on(p_run uuid, p_successor uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runs_searchterm (term, run_id)
    SELECT term, p_successor FROM runs_searchterm WHERE run_id = p_run AND term NOT LIKE '…%' ON CONFLICT DO NOTHING;
END $$;

-- Trigger: write the attribute rows of an event. A name without a value is removed. The head's lock orders two events of one run, and
-- nothing else touches the run's rows, so no event waits for another run. The trigger writes as the owner, because the runtime role may
-- only read the rows.
CREATE OR REPLACE FUNCTION runs_set_attributes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    told jsonb := convert_from(NEW.clear, 'UTF8')::jsonb;
BEGIN
    DELETE FROM runs_attribute WHERE run_id = NEW.run_id AND name IN (SELECT jsonb_array_elements_text(told -> 'named'));
    INSERT INTO runs_attribute (run_id, name, n, kind, word, number, created_at)
    SELECT NEW.run_id, v.name, row_number() OVER (PARTITION BY v.name ORDER BY v.place) - 1, v.kind,
           CASE WHEN v.kind NOT IN ('number', 'money') THEN v.value END,
           CASE WHEN v.kind IN ('number', 'money') THEN v.value::numeric END, r.created_at
    FROM ROWS FROM (
        jsonb_array_elements_text(told -> 'names'), jsonb_array_elements_text(told -> 'kinds'), jsonb_array_elements_text(told -> 'values')
    ) WITH ORDINALITY AS v (name, kind, value, place)
    JOIN runs_run r ON r.id = NEW.run_id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER runs_attributes_set AFTER INSERT ON ledger_event
    FOR EACH ROW WHEN (NEW.kind = 'AttributesSet') EXECUTE FUNCTION runs_set_attributes();
