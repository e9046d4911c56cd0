-- Limits that all workers share: rates, concurrency and circuit breakers of a tool, a model or its provider; and the tag under which a run
-- queues for its share of the workers. All times are those of this server.

CREATE TYPE runs_admission AS (is_granted boolean, is_held boolean, key text, why text, seconds double precision, probed text[]);

-- Return the rule in force for a key (also replaces a hook of claims). A person's setting overrides that of the installation, and both
-- override that of the tool. If the key has no setting, that of a pattern such as tool:* or tag:tenant:* counts. A field that is present
-- and null removes the limit.
--
-- Workers ask for every key once a second, so patterns are looked up by the key's prefixes, in an index that holds only patterns. A session
-- keeps a plan that was made while there were few keys, so no plan may read all keys.
CREATE OR REPLACE FUNCTION runs_limit_rule(p_key text) RETURNS jsonb
LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT coalesce((SELECT l.of_tool FROM runs_limit l WHERE l.key = p_key), '{}'::jsonb)
        || coalesce((SELECT coalesce(w.given, w.declared) FROM runs_limit w
                     WHERE w.key LIKE '%*' AND w.key <> p_key
                       AND w.key = ANY (ARRAY(SELECT left(p_key, n) || '*' FROM generate_series(0, length(p_key)) AS n))
                       AND coalesce(w.given, w.declared) IS NOT NULL
                     ORDER BY length(w.key) DESC LIMIT 1), '{}'::jsonb)
        || coalesce((SELECT coalesce(l.given, l.declared) FROM runs_limit l WHERE l.key = p_key), '{}'::jsonb);
$$;

-- Replaces the hook of claims: return whether agents or tags have limits, and whether any of these limits how many runs are driven.
CREATE OR REPLACE FUNCTION runs_claim_limits(OUT is_ruled boolean, OUT is_capped boolean)
LANGUAGE plpgsql AS $$
BEGIN
    is_capped := false;
    is_ruled := EXISTS (SELECT 1 FROM runs_limit l WHERE starts_with(l.key, 'agent:') OR starts_with(l.key, 'tag:'));
    IF is_ruled THEN
        is_capped := EXISTS (SELECT 1 FROM runs_limit l WHERE (starts_with(l.key, 'agent:') OR starts_with(l.key, 'tag:'))
                             AND coalesce(l.given, l.declared) ->> 'at_once' IS NOT NULL);
    END IF;
END $$;

-- Store all limits of the installation, and those of this process's tools. Unchanged rows are not updated.
CREATE OR REPLACE FUNCTION runs_declare_limits(p_declared jsonb, p_tools jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO runs_limit (key)
    SELECT k FROM (SELECT jsonb_object_keys(p_declared) UNION SELECT t.key FROM jsonb_each(p_tools) t WHERE t.value <> 'null'::jsonb) AS named(k)
    ORDER BY k ON CONFLICT DO NOTHING;
    UPDATE runs_limit l SET declared = p_declared -> l.key WHERE l.declared IS DISTINCT FROM p_declared -> l.key;
    UPDATE runs_limit l SET of_tool = nullif(p_tools -> l.key, 'null'::jsonb)
    WHERE p_tools ? l.key AND l.of_tool IS DISTINCT FROM nullif(p_tools -> l.key, 'null'::jsonb);
$$;

-- Return the number of tokens in a bucket. It fills at the rate up to the burst (token bucket as in ITU-T I.371 and RFC 2697, metered on
-- request). A new bucket is full. If the clock was set back, nothing is added.
CREATE OR REPLACE FUNCTION runs_tokens(l runs_limit, p_rate double precision, p_burst double precision, p_at timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN l.filled_at IS NULL THEN p_burst
                ELSE least(p_burst, l.tokens + greatest(0, extract(epoch FROM p_at - l.filled_at)::double precision) * p_rate) END;
$$;

-- Free the permits of workers that have ended, and those that have expired. A permit that is being returned at this moment is skipped.
CREATE OR REPLACE FUNCTION runs_drop_dead_permits(p_key text) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM runs_permit d WHERE (d.id, d.key) IN (
        SELECT p.id, p.key FROM runs_permit p LEFT JOIN runs_process w ON w.id = p.worker
        WHERE p.key = p_key AND (w.ended_at IS NOT NULL OR p.expires_at <= clock_timestamp())
        ORDER BY p.id FOR UPDATE OF p SKIP LOCKED);
$$;

-- Request a permit for one try, under all of the keys or none. The worker passes the rules in force, because only a process with the
-- installation's key can tell whether the application wrote the table's values. Rows are locked in order, so two requests wait for each
-- other for this statement only.
--
-- A refusal names the key, the reason (asked: the upstream system asked for a pause; breaker; at_once; rate) and the shortest time to wait,
-- in seconds. The worker that has waited longest comes first. A refused one is queued by how long its own first call has waited. If the
-- caller can't wait that long, it has to come back later. The times given to such callers follow each other at the rate.
CREATE OR REPLACE FUNCTION runs_take_permit(
    p_id uuid, p_keys text[], p_worker uuid, p_run uuid, p_slot text, p_lasts double precision, p_waited double precision, p_waiting int,
    p_patience double precision, p_rules jsonb
) RETURNS runs_admission
LANGUAGE plpgsql AS $$
DECLARE
    l runs_limit;
    rule jsonb;
    answer runs_admission;
    moment timestamptz;
    rate double precision;
    burst double precision;
    most int;
    under_way int;
    ahead int;
    filled double precision;
    buckets jsonb := '{}';
    held text[] := '{}';
    why text;
    needed double precision;
    spacing double precision;
    spaced double precision;
BEGIN
    answer := ROW(true, false, NULL, NULL, -1, '{}'::text[])::runs_admission;
    IF EXISTS (SELECT 1 FROM unnest(p_keys) AS k(key) WHERE NOT EXISTS (SELECT 1 FROM runs_limit x WHERE x.key = k.key)) THEN
        INSERT INTO runs_limit (key) SELECT k FROM unnest(p_keys) AS n(k) ORDER BY k ON CONFLICT DO NOTHING;
    END IF;
    FOR l IN SELECT * FROM runs_limit x WHERE x.key = ANY (p_keys) ORDER BY x.key FOR UPDATE LOOP
        moment := clock_timestamp();
        IF EXISTS (SELECT 1 FROM runs_permit p WHERE p.id = p_id) THEN  -- asked before, and the answer was lost
            SELECT array_agg(p.key) INTO answer.probed FROM runs_permit p WHERE p.id = p_id AND p.is_probe;
            answer.probed := coalesce(answer.probed, '{}');
            answer.is_held := true;
            RETURN answer;
        END IF;
        rule := coalesce(p_rules -> l.key, '{}');
        rate := (rule ->> 'per_minute')::double precision / 60;
        burst := coalesce((rule ->> 'burst')::double precision, greatest(1, ceil(rate)));
        most := (rule ->> 'at_once')::int;
        why := NULL;
        needed := 0;
        spacing := 0.02;
        SELECT count(*) INTO ahead FROM runs_limitline o
        WHERE o.key = l.key AND o.worker <> p_worker AND o.seen_until > moment AND o.since < moment - make_interval(secs => p_waited);
        IF l.held_until > moment THEN
            why := 'asked';
            needed := extract(epoch FROM l.held_until - moment);
        ELSIF l.breaker = 'open' AND (l.rest_until IS NULL OR l.rest_until > moment) THEN
            why := 'breaker';
            needed := greatest(1, coalesce(extract(epoch FROM l.rest_until - moment), (rule ->> 'rest')::double precision, 30));
        ELSIF l.breaker = 'open' THEN
            IF EXISTS (SELECT 1 FROM runs_permit p WHERE p.key = l.key AND p.is_probe) THEN
                PERFORM runs_drop_dead_permits(l.key);
            END IF;
            IF EXISTS (SELECT 1 FROM runs_permit p WHERE p.key = l.key AND p.is_probe) THEN
                why := 'breaker';  -- someone is finding out
                needed := 5;
            ELSE
                answer.probed := answer.probed || l.key;
            END IF;
        END IF;
        IF why IS NULL AND most IS NOT NULL THEN
            SELECT count(*) INTO under_way FROM runs_permit p WHERE p.key = l.key;
            IF under_way + ahead >= most THEN
                PERFORM runs_drop_dead_permits(l.key);
                SELECT count(*) INTO under_way FROM runs_permit p WHERE p.key = l.key;
            END IF;
            IF under_way + ahead >= most THEN
                why := 'at_once';
                needed := CASE WHEN under_way >= most THEN 1 ELSE 0.25 END;
                spacing := 0.5 / most;
            END IF;
        END IF;
        IF rate IS NOT NULL THEN
            filled := runs_tokens(l, rate, burst, moment);
            buckets := buckets || jsonb_build_object(l.key, filled);
            IF why IS NULL AND filled < 1 + least(ahead, burst - 1) THEN
                why := 'rate';
                needed := (1 + least(ahead, burst - 1) - filled) / rate;
            END IF;
            spacing := 1 / rate;
        END IF;
        IF most IS NOT NULL OR l.key = ANY (answer.probed) THEN
            held := held || l.key;
        END IF;
        IF why IS NOT NULL AND needed > answer.seconds THEN
            answer.key := l.key;
            answer.why := why;
            answer.seconds := needed;
            spaced := spacing;
        END IF;
    END LOOP;
    moment := clock_timestamp();
    IF answer.key IS NULL THEN
        DELETE FROM runs_limitline o WHERE o.key = ANY (p_keys) AND o.worker = p_worker;
        UPDATE runs_limit x SET tokens = (buckets ->> x.key)::double precision - 1, filled_at = greatest(x.filled_at, moment)
        WHERE buckets ? x.key;
        INSERT INTO runs_permit (id, key, worker, run_id, slot, taken_at, expires_at, is_probe)
        SELECT p_id, k, p_worker, p_run, p_slot, moment, moment + make_interval(secs => p_lasts), k = ANY (answer.probed) FROM unnest(held) AS h(k);
        answer.is_held := cardinality(held) > 0;
        RETURN answer;
    END IF;
    answer.is_granted := false;
    answer.probed := '{}';
    IF answer.seconds > p_patience THEN
        UPDATE runs_limit x SET parked_until = least(
            greatest(coalesce(x.parked_until, moment) + make_interval(secs => spaced), moment + make_interval(secs => answer.seconds)),
            moment + interval '5 minutes')
        WHERE x.key = answer.key
        RETURNING extract(epoch FROM x.parked_until - moment) INTO answer.seconds;
        IF p_waiting = 0 THEN
            DELETE FROM runs_limitline o WHERE o.key = ANY (p_keys) AND o.worker = p_worker;
        END IF;
    ELSE
        INSERT INTO runs_limitline (key, worker, since, seen_until, waiting)
        VALUES (answer.key, p_worker, moment - make_interval(secs => p_waited), moment + make_interval(secs => answer.seconds + 2), p_waiting + 1)
        ON CONFLICT (key, worker) DO UPDATE SET since = excluded.since, seen_until = excluded.seen_until, waiting = excluded.waiting;
    END IF;
    RETURN answer;
END;
$$;

-- Return permits, and wake the worker that has waited longest for one.
CREATE OR REPLACE FUNCTION runs_give_back(p_ids uuid[], p_channel text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    freed text;
    next_one uuid;
BEGIN
    FOR freed IN
        WITH gone AS (DELETE FROM runs_permit p WHERE p.id = ANY (p_ids) RETURNING p.key) SELECT DISTINCT g.key FROM gone g
    LOOP
        SELECT o.worker INTO next_one FROM runs_limitline o WHERE o.key = freed AND o.seen_until > clock_timestamp() ORDER BY o.since LIMIT 1;
        IF next_one IS NOT NULL THEN
            PERFORM pg_notify(p_channel, 'limit:' || next_one);
        END IF;
        RETURN NEXT freed;
    END LOOP;
END;
$$;

-- Report the results of tries under one key to its breaker or limit: how many succeeded and failed, the last error, and for how many
-- seconds the upstream system asked for a pause. A breaker opens if at least five tries in the last half minute to minute failed, and their
-- share is at least that in its rule. Tries that were sent before it opened change nothing. A probe closes it, or doubles its pause up to
-- five minutes.
CREATE OR REPLACE FUNCTION runs_tell_limit(
    p_key text, p_ok int, p_failed int, p_error text, p_held double precision, p_probe uuid, p_served boolean, p_rule jsonb
) RETURNS TABLE (breaker text, held double precision)
LANGUAGE plpgsql AS $$
DECLARE
    l runs_limit;
    rule jsonb;
    moment timestamptz;
    is_probe boolean;
BEGIN
    INSERT INTO runs_limit (key) VALUES (p_key) ON CONFLICT DO NOTHING;
    SELECT * INTO l FROM runs_limit x WHERE x.key = p_key FOR UPDATE;
    moment := clock_timestamp();
    rule := p_rule;
    IF p_failed > 0 THEN
        l.last_error := left(p_error, 500);
        l.last_error_at := moment;
    END IF;
    IF p_held > 0 THEN
        l.held_until := greatest(l.held_until, moment + make_interval(secs => least(p_held, 3600)));
        l.tokens := 0;
        l.filled_at := l.held_until;
    END IF;
    DELETE FROM runs_permit p WHERE p.id = p_probe AND p.key = p_key AND p.is_probe;
    is_probe := FOUND;
    IF is_probe AND l.breaker = 'open' AND NOT l.is_by_hand AND p_served IS NOT NULL THEN
        IF p_served THEN
            l.breaker := 'closed';
            l.openings := 0;
            l.ok := 0; l.failed := 0; l.ok_before := 0; l.failed_before := 0;
        ELSE
            l.openings := l.openings + 1;
            l.rest_until := moment + make_interval(secs => least(300, coalesce((rule ->> 'rest')::double precision, 30) * 2 ^ least(l.openings - 1, 10)));
        END IF;
    ELSIF l.breaker = 'closed' THEN
        IF l.window_at IS NULL OR l.window_at <= moment - interval '60 seconds' THEN
            l.ok := 0; l.failed := 0; l.ok_before := 0; l.failed_before := 0;
            l.window_at := moment;
        ELSIF l.window_at <= moment - interval '30 seconds' THEN
            l.ok_before := l.ok; l.failed_before := l.failed;
            l.ok := 0; l.failed := 0;
            l.window_at := moment;
        END IF;
        l.ok := l.ok + p_ok;
        l.failed := l.failed + p_failed;
        IF p_failed > 0 AND rule ->> 'breaker' IS NOT NULL AND l.failed + l.failed_before >= 5
           AND (l.failed + l.failed_before) * 100 >= (rule ->> 'breaker')::int * (l.failed + l.failed_before + l.ok + l.ok_before) THEN
            l.breaker := 'open';
            l.is_by_hand := false;
            l.opened_at := moment;
            l.openings := 1;
            l.rest_until := moment + make_interval(secs => coalesce((rule ->> 'rest')::double precision, 30));
        END IF;
    END IF;
    UPDATE runs_limit x SET last_error = l.last_error, last_error_at = l.last_error_at, held_until = l.held_until, tokens = l.tokens,
        filled_at = l.filled_at, breaker = l.breaker, is_by_hand = l.is_by_hand, opened_at = l.opened_at, openings = l.openings,
        rest_until = l.rest_until, window_at = l.window_at, ok = l.ok, failed = l.failed, ok_before = l.ok_before, failed_before = l.failed_before
    WHERE x.key = p_key;
    RETURN QUERY SELECT l.breaker, greatest(0, coalesce(extract(epoch FROM l.held_until - moment)::double precision, 0));
END;
$$;

-- Return the tag under which a run queues: its first tag that has a limit. A tag with a value is written as name:value.
CREATE OR REPLACE FUNCTION runs_lane_of(p_tags jsonb) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT t.tag FROM (
            SELECT a.tag, a.n FROM jsonb_array_elements_text(CASE jsonb_typeof(p_tags) WHEN 'array' THEN p_tags ELSE '[]' END) WITH ORDINALITY AS a(tag, n)
            UNION ALL
            SELECT o.key || ':' || o.value, row_number() OVER (ORDER BY o.key) FROM jsonb_each_text(CASE jsonb_typeof(p_tags) WHEN 'object' THEN p_tags ELSE '{}' END) o
        ) AS t(tag, n)
        WHERE EXISTS (SELECT 1 FROM runs_limit l
                      WHERE coalesce(l.given, l.declared) IS NOT NULL AND starts_with(l.key, 'tag:')
                        AND (l.key = 'tag:' || t.tag OR right(l.key, 1) = '*' AND starts_with('tag:' || t.tag, left(l.key, -1))))
        ORDER BY t.n LIMIT 1), '');
$$;

-- Trigger: queue a new run under its lane.
CREATE OR REPLACE FUNCTION runs_set_lane() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.tags <> '[]'::jsonb THEN
        NEW.lane := runs_lane_of(NEW.tags);
    END IF;
    RETURN NEW;
END;
$$;
CREATE OR REPLACE TRIGGER runs_set_lane BEFORE INSERT ON runs_run FOR EACH ROW EXECUTE FUNCTION runs_set_lane();

-- Queue unfinished runs under their new lane after the limits of tags have changed, in batches. Locked rows are left for the next call.
-- Return how many runs were moved.
CREATE OR REPLACE FUNCTION runs_line_up(p_most int) RETURNS int
LANGUAGE sql AS $$
    WITH moved AS (
        UPDATE runs_run u SET lane = n.lane FROM (
            SELECT r.id, runs_lane_of(r.tags) AS lane FROM runs_run r
            WHERE r.ended_at IS NULL AND r.tags <> '[]'::jsonb AND r.lane <> runs_lane_of(r.tags) LIMIT p_most FOR UPDATE SKIP LOCKED) n
        WHERE u.id = n.id RETURNING 1)
    SELECT count(*)::int FROM moved;
$$;
