"""More seeded bugs: what many runs share, runs that go on as others, whole agents, content. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant

APPEND, STEPS, STORE, CALLS, SEND, CALLBACKS = (
    "ledger/sql/append.sql", "runs/sql/0016_steps.sql", "runs/journal/postgres.py", "runs/engine/steps/call.py", "runs/engine/steps/send.py",
    "runs/services/callbacks.py",
)  # fmt: skip
PLANNED = "runs/sql/0071_claims_under_halts.sql"
COMMITTER = "runs/journal/committer.py"
POOLS, POOLED, POOL_ACTS = "runs/sql/0026_pools.sql", "tests/runs/test_pools.py", "runs/services/pools/acts.py"
DRAWN = "runs/sql/0034_undo.sql"
SET_POOLS = "tests/runs/test_pool_acts.py"
BUDGETS, METER, THINK, RAISING = (
    "runs/sql/0018_steps.sql", "runs/engine/budget/meter.py", "runs/engine/thinking/question.py", "runs/services/budgets/raising.py",
)  # fmt: skip
ENDS, WISHES, READER, CHILD = (
    "runs/services/families/ends.py", "runs/services/families/wishes.py", "runs/journal/reader.py", "runs/engine/steps/children.py",
)  # fmt: skip
KEYS, TURNS, FIRING, DUE, CRON, SET = (
    "runs/services/starts/keys.py", "runs/services/starts/turns.py", "runs/services/schedules/firing.py",
    "runs/services/schedules/due.py", "runs/services/schedules/cron.py", "runs/services/schedules/acts.py",
)  # fmt: skip
HEIR_SQL, HEIRS, CHAIN = (
    "runs/sql/0030_succession.sql", "runs/engine/succession/heirs.py", "runs/services/succession/chain.py",
)  # fmt: skip
GONE, GOING = "tests/engine/test_succession.py", "tests/runs/test_succession.py tests/runs/test_succession_kin.py"
FOUND, SEARCHED = "tests/runs/test_attributes.py", "tests/api/test_attributes.py"
MANY_KEYS = "tests/limits/test_many_keys.py"
LIMITS, PERMITS = "runs/sql/0027_limits.sql", "runs/services/limits/permits.py"
SHARED, BREAKERS, HELD, SHARES = (
    "tests/limits/test_permits.py", "tests/limits/test_breakers.py", "tests/limits/test_limits.py", "tests/limits/test_shares.py",
)  # fmt: skip
AGENTS, OVERHEARD, HEARD = (
    "runs/engine/pydantic_agents/running.py",
    "runs/overheard/texts.py",
    "tests/runs/test_overheard.py",
)
AGENT, AGENT_ATTACKED, TOLD = (
    "tests/engine/test_pydantic_agents.py", "tests/engine/test_pydantic_agents_attacked.py", "tests/engine/test_pydantic_agents_told.py",
)  # fmt: skip
VERDICTS, REQUESTS, ARGUMENTS, OLD_READS, CACHE = (
    "runs/engine/screening/verdicts.py", "runs/engine/screening/requests.py", "runs/engine/steps/arguments.py", "runs/engine/steps/reads.py",
    "runs/journal/cache/reads.py",
)  # fmt: skip
SCREENING, READ, CACHED = (
    "tests/engine/test_screening.py",
    "tests/engine/test_reads.py",
    "tests/runs/test_cached_reads.py",
)

MORE = [
    # --- what all workers share
    Mutant("a permit is given though as many are out as may be", LIMITS, "            SELECT count(*) INTO under_way FROM runs_permit p WHERE p.key = l.key;\n            IF under_way + ahead >= most THEN\n                PERFORM", "            SELECT 0 INTO under_way;\n            IF under_way + ahead >= most THEN\n                PERFORM", f"{SHARED} -k under_way_than"),
    Mutant("a permit empties no bucket", LIMITS, "SET tokens = (buckets ->> x.key)::double precision - 1,", "SET tokens = (buckets ->> x.key)::double precision,", f"{SHARED} -k rate_and_the_burst"),
    Mutant("a permit of the dead is held on", LIMITS, "AND (w.ended_at IS NOT NULL OR p.expires_at <= clock_timestamp())", "AND (p.expires_at <= clock_timestamp())", f"{SHARED} -k worker_that_died"),
    Mutant("a permit is asked for after the intent", CALLS, "    await call.enter()\n    visit.afford(", "    visit.afford(", f"{HELD} -k before_its_intent"),
    Mutant("a permit is lost with whoever was cut off", PERMITS, "                self._give(permit_id)  # nobody is here to take it, if it was granted\n", "", f"{SHARED} -k cut_off"),
    Mutant("a permit is free while its thread still sends", SEND, "        if not turn.withdraw():\n            call.hold.leave_later(turn.when_over)\n            raise\n        raise NotBegun", "        if not turn.withdraw():\n            raise\n        raise NotBegun", f"{HELD} -k blocking"),
    Mutant("a permit's queue is whoever asks first", LIMITS, "o.worker <> p_worker AND o.seen_until > moment", "false AND o.seen_until > moment", f"{SHARED} -k waits_the_longest"),
    Mutant("an open breaker lets several find out", LIMITS, "            IF EXISTS (SELECT 1 FROM runs_permit p WHERE p.key = l.key AND p.is_probe) THEN\n                why := 'breaker';", "            IF false THEN\n                why := 'breaker';", f"{BREAKERS} -k one_at_a_time"),
    Mutant("an open breaker closes though its probe failed", LIMITS, "        IF p_served THEN\n", "        IF true THEN\n", f"{BREAKERS} -k one_at_a_time"),
    Mutant("a breaker opens whatever share fails", LIMITS, ">= (rule ->> 'breaker')::int * (", ">= 0 * (", f"{BREAKERS} -k share_that_fails"),
    Mutant("a breaker's wait uses the approval up", CALLS, "            await _intend(call, await gates.passed(call) if call.may_be_gated else None)\n", "            await _intend(call, None)\n", f"{HELD} -k after_the_yes"),
    Mutant("what a provider asks for is one worker's business", PERMITS, "held = told.retry_after if is_ruled", "held = 0.0 if is_ruled", f"{SHARED} -k leave_the_other_side"),
    Mutant("a cap counts one worker's runs", PLANNED, "FROM runs_run x WHERE x.owner IS NOT NULL GROUP BY 1, 2, 3) d;", "FROM runs_run x WHERE x.owner = p_worker GROUP BY 1, 2, 3) d;", f"{SHARES} -k over_all_workers"),
    Mutant("a cap of a tag keeps everybody waiting", PLANNED, " WHERE coalesce(o.agent_room, 1) > 0 AND coalesce(o.lane_room, 1) > 0\n", "\n", f"{SHARES} -k lines_that_are_full"),
    Mutant("a share's weight is not looked at", PLANNED, "t.priority DESC, t.version_turn, t.ready_at)) / t.weight AS turn", "t.priority DESC, t.version_turn, t.ready_at)) AS turn", f"{SHARES} -k by_weight"),
    # --- what many runs share
    Mutant("a pool counts nothing of what is set aside", DRAWN, "(m.used + m.reserved + wanted > m.most OR", "(m.used + wanted > m.most OR", f"{POOLED} -k comes_back"),
    Mutant("a debit settles nothing in a pool", POOLS, "            PERFORM runs_settle(p_run, line);\n", "", LIGHT),
    Mutant("what is settled stays set aside", POOLS, "UPDATE runs_poolmeter SET reserved = reserved - c.reserved, used = used + p_used", "UPDATE runs_poolmeter SET used = used + p_used", LIGHT),
    Mutant("what is settled late counts in the new period", POOLS, "WHERE pool_id = c.pool_id AND starts_at = c.starts_at;\n    IF NOT FOUND", "WHERE pool_id = c.pool_id;\n    IF NOT FOUND", f"{POOLED} -k in_which_it_was_begun"),
    Mutant("of several pools the first is enough", DRAWN, "(pools) ORDER BY pool_id FOR UPDATE LOOP", "(pools) ORDER BY pool_id LIMIT 1 FOR UPDATE LOOP", LIGHT),
    Mutant("a pool refuses nobody", DRAWN, "(m.used + m.reserved + wanted > m.most OR", "(false OR", LIGHT),
    Mutant("newcomers overtake who waits", DRAWN, " OR m.gate_at IS NOT NULL AND NOT is_let_in) THEN", ") THEN", f"{POOLED} -k one_gate"),
    Mutant("who waits is let in without room", POOLS, "        EXIT WHEN m.is_on AND due.wanted > room;\n", "", f"{POOLED} -k no_more_than"),
    Mutant("the last who came is let in first", POOLS, "ORDER BY w.opened_at, w.id LIMIT p_limit", "ORDER BY w.opened_at DESC, w.id LIMIT p_limit", f"{POOLED} -k no_more_than"),
    Mutant("a call that is too large keeps everybody waiting", POOLS, "    IF NOT m.is_on OR runs_pool_wanted(p_detail) <= m.most THEN", "    IF true THEN", f"{POOLED} -k holds_nobody_up"),
    Mutant("what is let in counts as room", POOLS, "                    m.promised := m.promised + due.wanted;\n", "", f"{POOLED} -k no_more_than"),
    Mutant("a new period begins with what the last had used", POOLS, "ends_at = m.ends_at, used = 0, reserved = 0,", "ends_at = m.ends_at, reserved = 0,", f"{POOLED} -k new_period"),
    Mutant("nobody is warned of a pool", DRAWN, "IF m.warned_at IS NULL AND (m.used + m.reserved) * 5", "IF false AND (m.used + m.reserved) * 5", f"{POOLED} -k told_once"),
    Mutant("a run that has ended leaves what it had set aside", POOLS, "        PERFORM runs_settle_charge(c, c.reserved);\n", "        NULL;\n", f"{POOLED} -k can_t_be_read"),
    Mutant("between two midnights there is no day", POOLS, "    IF first AT TIME ZONE p_zone > p_at THEN", "    IF false THEN", f"{SET_POOLS} -k 'clocks or periods'"),
    Mutant("a replay asks a pool anew", "runs/engine/steps/sharing/pools.py", "    if (n := waiting.open_wait(\"pool\")) is not None:\n", "    if (n := waiting.open_wait(\"pool\")) == -1:\n", f"{POOLED} -k one_place"),
    Mutant("a pool's meter is locked among others' steps", COMMITTER, "    if step[1] in _DRAWING:\n", "    if False:\n", f"{POOLED} -k in_company"),
    Mutant("a read costs no pool anything", CALLS, "        if not visit.meter.counts_reads:  # else it is asked for room first\n            return\n", "        return\n", f"{POOLED} -k read_counts"),
    Mutant("a raise of a pool undoes one of since", POOL_ACTS, "!= meter.most:\n        raise", "== -1:\n        raise", f"{SET_POOLS} -k told_so"),
    Mutant("a limit that is lowered warns nobody", POOL_ACTS, "    if is_to_warn:\n        with", "    if False:\n        with", f"{SET_POOLS} -k lowered_to_what"),
    Mutant("what goes on while it is looked up is not followed", CHAIN, "            must_not_have_gone_on(find(newest_id))\n            raise", "            raise", "tests/api/test_succession.py -k looked_up"),
    Mutant("a short pattern stands above a longer one", "runs/sql/0033_limit_patterns.sql", "ORDER BY length(w.key) DESC", "ORDER BY length(w.key)", f"{MANY_KEYS} -k longest"),
    Mutant("a worker reads a short pattern first", PERMITS, "ORDER BY length(p.stem) DESC", "ORDER BY length(p.stem)", f"{MANY_KEYS} -k nothing_else"),
    Mutant("a worker doesn't read what is in trouble", PERMITS, "\n       OR l.failed + l.failed_before > 0\"\"\"", "\"\"\"", f"{MANY_KEYS} -k nothing_else"),
    Mutant("anybody may set what many share", POOL_ACTS, "    if by.role != OPERATOR and by.auth != \"shell\":", "    if False:", f"{SET_POOLS} -k may_not"),
    Mutant("a charge that was taken away is not missed", "runs/verification/pools.py", "elif not is_charged and amount and", "elif False and", f"{SET_POOLS} -k past_the_record"),
    Mutant("a limit that nobody set is believed", "runs/verification/pools.py", "    if last is None or last.after != snapshot(pool, meter):", "    if last is None:", f"{SET_POOLS} -k past_the_record"),
    # --- runs that go on as others
    Mutant("an heir is made in a commit of its own", HEIR_SQL, "    PERFORM runs_start(p_heir, p_agent,", "    IF p_turn > 1 THEN RETURN reply; END IF;\n    PERFORM runs_start(p_heir, p_agent,", f"{GOING} -k one_commit"),
    Mutant("a renewed run is a way around its budget", HEIRS, "    caps = left if is_renewal else _or_default(left, heir)\n", "    caps = _or_default(Caps(), heir)\n", f"{GONE} -k counts_on"),
    Mutant("a signal that nobody took stays behind", HEIRS, "    signals = _signals(heir, estate)\n", "    signals = []\n", f"{GONE} -k signals"),
    Mutant("a signal that comes in the last moment stays behind", HEIR_SQL, "       OR p_kept <> ARRAY(", "       OR false AND p_kept <> ARRAY(", f"{GOING} -k last_moment"),
    Mutant("a raised budget stays behind", HEIR_SQL, "       OR p_left <> jsonb_strip_nulls(", "       OR false AND p_left <> jsonb_strip_nulls(", f"{GOING} -k raised"),
    Mutant("a renewal comes before a pause and a cancel", HEIR_SQL, "    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold\n       OR EXISTS", "    IF EXISTS", f"{GOING} -k 'comes_first'"),
    Mutant("the key falls free between a run and its heir", HEIR_SQL, "handoffs = p_handoffs, business_key = p_key,", "handoffs = p_handoffs,", f"{GOING} -k key_never"),
    Mutant("whoever is queued is let in at a renewal", HEIR_SQL, "is_passed_on = o.is_passed_on OR p_how = 'renewal'", "is_passed_on = o.is_passed_on", f"{GOING} -k key_never"),
    Mutant("a parent hears of a renewal as of an end", HEIR_SQL, "is_told = o.parent IS NOT NULL,", "is_told = false,", LIGHT),
    Mutant("a parent pays for the last of them only", ENDS, "    every = Run.objects.filter(Q(pk=first) | Q(first=first)).values(\"pk\")\n", "    every = Run.objects.filter(Q(first=first) | Q(pk=first)).order_by(\"-turn\").values(\"pk\")[:1]\n", LIGHT),
    Mutant("a message is left without an answer", HEIR_SQL, "       OR (p_how = 'renewal' AND EXISTS (SELECT 1 FROM runs_message WHERE run_id = p_run AND outcome = ''))\n", "", f"{GOING} -k message"),
    Mutant("a signal to a run that has gone on is lost", CHAIN, "    if run.goes_on_as is not None:\n        raise GoneOn\n", "    return\n", f"{GOING} -k look_and_lock"),
    Mutant("a repeat is another signal after a renewal", "runs/services/signals.py", "Signal.objects.filter(is_of_chain(run), name", "Signal.objects.filter(run=run, name", f"{GOING} -k however_often"),
    Mutant("who had a hand in the run before decides", "runs/services/authority.py", "            UNION ALL SELECT r.first, above.is_before\n", "", f"{GOING} -k had_a_hand"),
    Mutant("a forged link is not looked at", "runs/verification/succession.py", "        if [(x.successor, _GOES_ON[x.KIND]) for x in told] != ", "        if False and [] != ", f"{GOING} -k forged_link"),
    Mutant("work is handed to and fro without end", HEIRS, "come.handoffs >= MOST_HANDOFFS", "come.handoffs < 0", f"{GONE} -k to_and_fro"),
    Mutant("what another agent said passes for a task", "runs/engine/succession/declared.py", "line.model_dump_json() for line", "line.text for line", f"{GONE} -k conversation"),
    Mutant("a replaced run lives on as its heir", KEYS, "            raise _Moved from past\n", "            return\n", f"{GOING} -k replacing"),
    Mutant("debounce ends what was renewed", "runs/models/run.py", "self.started_at is not None or self.came_from is not None", "self.started_at is not None", f"{GOING} -k debounce"),
    # --- whole agents of Pydantic AI, and what is overheard
    Mutant("an agent's replay asks its models again", AGENTS, "        slot, first = visit.places.at(f\"{self._path}/{turn}/0\"),", "        slot, first = visit.places.at(f\"{self._path}/{turn + visit.meter.used.model_calls}/0\"),", f"{AGENT} -k prefix"),
    Mutant("an agent's calls have the places of the turn before", AGENTS, "self._places[part.tool_call_id] = f\"{self._path}/{turn}/{n}\"", "self._places[part.tool_call_id] = f\"{self._path}/0/{n}\"", f"{TOLD} -k no_of_a_tool"),
    Mutant("two calls of one name are one", AGENTS, "            if part.tool_call_id in self._places:\n                part.tool_call_id = f\"{part.tool_call_id}#{n}\"\n", "", f"{TOLD} -k places_of_their_own"),
    Mutant("an agent whose prompts change goes on", AGENTS, "        if not isinstance(intent, e.ModelRequested) or intent.request_hash == request_hash:\n            return\n        before", "        if True:\n            return\n        before", f"{TOLD} -k differs_on_a_replay"),
    Mutant("an agent that ends too soon is believed", AGENTS, "                    self._must_be_all()\n", "", f"{TOLD} -k changes_its_mind"),
    Mutant("a tool's own time limit counts, and the model pays again", "runs/engine/pydantic_agents/tools.py", "live.context.metadata or {}), **beside})\n        return recorded(await live.make(live.name, live.arguments, context, _untimed(live.tool)))", "live.context.metadata or {}), **beside})\n        return recorded(await live.make(live.name, live.arguments, context, live.tool))", f"{TOLD} -k only_its_toolset"),
    Mutant("an outage of a tool proves that nothing happened", "runs/engine/pydantic_agents/tools.py", "        raise TransportError(f\"{live.name}: {outage}\") from outage", "        raise BusinessFailure(str(outage)) from outage", f"{TOLD} -k outage_is_tried"),
    Mutant("a model is told nothing of what a person found out", "runs/engine/pydantic_agents/tools.py", "            return {\"returned\": UNKNOWN} if info.context is BY_RECEIPT else {}\n", "            return {}\n", "tests/engine/test_pydantic_agents_told.py -k what_a_person_knows"),
    Mutant("a tool without a class is taken for a reading one", "runs/engine/pydantic_agents/declared.py", "    if kind != \"external\" and declared is None:\n        raise", "    if False:\n        raise", f"{AGENT_ATTACKED} -k only_seen_while"),
    Mutant("a tool that requires approval runs without", "runs/engine/pydantic_agents/declared.py", "        if tool.definition.kind == \"unapproved\" and each not in gates:\n", "        if False:\n", f"{AGENT_ATTACKED} -k refused_at_the_definition"),
    Mutant("a no is told to nobody", AGENTS, "            raise ApprovalRequired from no", "            raise ToolFailed(\"no\") from no", f"{AGENT_ATTACKED} -k reaches_the_model"),
    Mutant("who has lost the run goes on being overheard", OVERHEARD, "WHERE run_id = %(run)s AND epoch = %(epoch)s AND lease = %(lease)s)", "WHERE run_id = %(run)s)", f"{HEARD} -k lost_the_run"),
    Mutant("what is on record is overheard too", "runs/overheard/reading.py", "                  AND e.attempt = o.attempt AND e.fact = 'result')", "                  AND e.attempt = o.attempt AND e.fact = 'nothing')", f"{HEARD} -k not_beside_it"),
    Mutant("each request streams", OVERHEARD, "or not await self._is_heard(run_id):", "or False:", f"{HEARD} -k nobody_looks"),
    Mutant("a long text is sent whole", OVERHEARD, "(self.end + more)[-MOST_CHARACTERS:]", "self.end + more", f"{HEARD} -k bounded"),
    # --- content, and reads
    Mutant("a hook that fails lets everything pass", VERDICTS, "        problem = f\"it failed with", "        return None\n        problem = f\"it failed with", f"{SCREENING} -k raises_hangs"),
    Mutant("a hook that hangs lets everything pass", VERDICTS, "        problem = f\"it took more", "        return None\n        problem = f\"it took more", f"{SCREENING} -k raises_hangs"),
    Mutant("a verdict is asked for again", VERDICTS, "known = {hook for each in past.screenings[after:] for hook in each.hooks}", "known = set[str]()", f"{SCREENING} -k approved_recorded_and_sent"),
    Mutant("what was kept back comes through in the next turn", REQUESTS, "        for place, content in standing(record).items():", "        for place, content in {}.items():", f"{SCREENING} -k stands_whatever"),
    Mutant("what is restored is not looked at", REQUESTS, "if id(part) not in self._shown.held and", "if id(part) not in self._shown.held | self._shown.restored and", f"{SCREENING} -k new_request"),
    Mutant("a verdict is not on record with what it is about", THINK, "        events[-1:-1] = self.screening.take()\n", "", f"{SCREENING} -k with_the_hooks"),
    Mutant("a refused prompt goes out", THINK, "if await self.screening.ask() is not None:", "if await self.screening.ask() is None and False:", f"{SCREENING} -k refused_prompt"),
    Mutant("what was asked for is sent, and not what stands for it", ARGUMENTS, "    if replaced:\n        call.replace(replaced[-1])\n", "", f"{SCREENING} -k approved_recorded_and_sent"),
    Mutant("a list in a tool's arguments is not measured", "runs/engine/content/shipped.py", "    return len(value) < 1000 if type(value) is str else isinstance(value, (int, float, NoneType))", "    return len(value) < 1000 if type(value) is str else True", "tests/engine/test_shipped_screens.py -k wherever"),
    Mutant("what people approved is changed afterwards", ARGUMENTS, "if call.record.gate is not None or call.grant is not None:", "if False:", f"{SCREENING} -k rather_than_changed"),
    Mutant("a signal's verdict dies with the worker", "runs/engine/screening/arrivals.py", "        visit.buffer(event)", "        continue", f"{SCREENING} -k signals_answers"),
    Mutant("a flag hides whatever it likes", "runs/engine/content/shipped.py", "{3,6}", "+", "tests/engine/test_shipped_screens.py"),
    Mutant("anybody may fill the cache", CACHE, "if is_rows_code(code_key(), TABLE, said, bytes(code)):", "if True:", f"{CACHED} -k forged"),
    Mutant("agents share what they read unasked", OLD_READS, "scope = \"\" if call.tool.shared else call.visit.agent.name", "scope = \"\"", f"{READ} -k not_the_same"),
    Mutant("a changed tool takes the old one's answers", OLD_READS, "tool_digest(call.tool)", "\"\"", f"{READ} -k not_the_same"),
    Mutant("an answer of any age will do", OLD_READS, "if age > tool.cache or (call.max_age is not None and age > call.max_age):", "if age > tool.cache:", f"{READ} -k too_old_or"),
    Mutant("a read is made again though something was made of it", OLD_READS, " or call.visit.tape.last != call.slot:", ":", f"{READ} -k stands"),
    Mutant("what the cache is asked for is set aside", OLD_READS, "    kept = await visit", "    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)\n    visit.check_stop()\n    kept = await visit", "tests/engine/test_screened_agents.py -k circle"),
    Mutant("a hit need not be true", "runs/verification/reads.py", "    if not found:\n", "    if False:\n", f"{CACHED} -k nobody_made"),
]  # fmt: skip
