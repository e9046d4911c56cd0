-- Whoever has said what they say about a case has said it: one person has one seat in all its stages, and so has whoever they stand in for.

-- Trigger: the seats of a decision, with it. They are taken by the database, as its owner, so that whoever may add decisions can neither leave
-- them out nor take them away: of two votes that one person would have a part in, the second one can't be written.
CREATE OR REPLACE FUNCTION approvals_take_seats() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO approvals_seat (case_id, person, decision_id)
    SELECT coalesce(a.case_id, a.id), p.person, NEW.id
    FROM approvals_approval a,
         (SELECT NEW.person UNION SELECT (NEW.standing #>> '{deputy_of,person}')::bigint) AS p (person)
    WHERE a.id = NEW.approval_id AND p.person IS NOT NULL;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER approvals_take_seats AFTER INSERT ON approvals_decision
FOR EACH ROW EXECUTE FUNCTION approvals_take_seats();
