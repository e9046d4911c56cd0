-- Who is asked is told at once; but where a standing grant is about the question, only if it is still open some seconds later: most often it
-- is answered by then, and nobody had to be asked.

CREATE OR REPLACE FUNCTION approvals_on_gate() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM approvals_tell(
        'opened:' || NEW.id || CASE WHEN TG_OP = 'UPDATE' THEN ':' || extract(epoch FROM clock_timestamp()) ELSE '' END,
        'opened', NEW.run_id, NEW.id, NEW.wait_id, NULL, '',
        CASE WHEN NEW.same IS NOT NULL AND EXISTS (
            SELECT 1 FROM approvals_standinggrant g WHERE g.same = NEW.same AND g.until > clock_timestamp()
        ) THEN clock_timestamp() + interval '5 seconds' END);
    RETURN NULL;
END $$;
