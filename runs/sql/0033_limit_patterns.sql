-- What counts for a key is found by its name and by the patterns that it fits, not by reading all keys.

-- What counts for a key now. A person's word stands above the installation's, and both above what a tool's code says; what is said of a
-- pattern, such as tool:* or tag:tenant:*, counts where the key itself says nothing of it. A field that is there and null lifts it.
-- Workers ask for every key once a second, so each is looked up: the patterns that it could fit are its own beginnings, and the index that
-- has only patterns answers at once where there are none. A session keeps the plan that it made while there were few keys: so none may read
-- all of them.
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
