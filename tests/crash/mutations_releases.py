"""Seeded bugs in what decides which version a start gets. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant

CHOOSING, ACTS, WATCHING = (f"runs/services/releases/{name}.py" for name in ("choosing", "acts", "watching"))
STARTS, HALTS, DRAINS = (f"tests/runs/test_{name}.py" for name in ("releases", "ramps_halt", "version_drains"))

RELEASES = [
    # What only starts and acts that really meet can show.
    Mutant("a ramp that is taken back waits for no start", ACTS, "    alone(find(ramp_id).agent)\n", "", LIGHT),
    Mutant("a start asked for again comes out elsewhere", "runs/services/lifecycle.py", 'Key("idempotency_key", request_key) if request_key', 'Key("idempotency_key", str(run_id)) if request_key', LIGHT),
    Mutant("a start isn't among those that its ramp counts", "runs/services/lifecycle.py", "    chosen.store(run)\n", "", LIGHT),
    Mutant("a customer changes sides of a ramp", CHOOSING, 'f"ramp\\n{ramp_id}\\n{key.text}"', 'f"ramp\\n{ramp_id}\\n{id(key)}"', f"{STARTS} -k stays_on_its_side"),
    Mutant("a raised share moves starts back", CHOOSING, 'place_of(ramp["id"], key), next', 'place_of(ramp["id"] + ramp["share"], key), next', f"{STARTS} -k stays_on_its_side"),
    Mutant("a halted ramp assigns on", CHOOSING, 'if ramp["state"] != Ramp.State.ON:', "if False:", f"{HALTS} -k above_a_bound"),
    Mutant("a closed version takes a start", CHOOSING, "        if asked.version in rules.closed:\n", "        if False:\n", f"{STARTS} -k newest_open"),
    Mutant("a start by name gets a closed version", CHOOSING, "if agent.version not in rules.closed]", "if agent]", f"{STARTS} -k newest_open"),
    Mutant("a version that nobody serves is assigned", CHOOSING, "    elif is_new and not is_served:\n", "    elif False:\n", f"{STARTS} -k no_living_worker"),
    Mutant("an act waits for no start", "runs/sql/0073_starts_under_halts.sql", "    PERFORM pg_advisory_xact_lock_shared(hashtextextended('release ' || p_agent, 38));\n", "", f"{STARTS} -k waits_for_a_start"),
    Mutant("a ramp judges what nobody has begun", WATCHING, "l.graph_id = asked.graph AND l.started_at IS NOT NULL", "l.graph_id = asked.graph AND coalesce(l.ended_at, l.started_at) IS NOT NULL", f"{HALTS} -k waits_to_be_begun"),
    Mutant("a ramp that was let go on halts for what was before", ACTS, "ramp.counted_from = last or 0, database_now()", "ramp.counted_from = 0, None", f"{HALTS} -k let_go_on"),
    Mutant("a backlog hides a ramp's failures", WATCHING, "l.graph_id = asked.graph AND l.started_at IS NOT NULL", "l.graph_id = asked.graph", f"{HALTS} -k hides_nothing"),
    Mutant("a ramp forgets what was moved off it", WATCHING, "l.generation > 0 AND l.started_at", "l.generation < 0 AND l.started_at", f"{HALTS} -k moved_off"),
    Mutant("a ramp takes a run that was moved off it for a good one", WATCHING, "                       OR EXISTS (SELECT 1 FROM ledger_overriderecord o WHERE o.run_id = w.id AND {_TAKEN_OFF})\n", "", f"{HALTS} -k counts_where"),
    Mutant("a ramp is blind for what fails late", WATCHING, "ORDER BY coalesce(l.ended_at, l.started_at) DESC", "ORDER BY s.id DESC", f"{HALTS} -k long_ago"),
    Mutant("a ramp that leads back leaves the newer version open", ACTS, "    if ordered(ramp.from_version) > ordered(ramp.to_version) and", "    if ramp.share < 0 and", f"{HALTS} -k leads_back"),
    Mutant("nobody says that all workers only drain", "runs/fleet/agent_versions.py", "ONLY_DRAINED.format(run.graph_id) if is_only_drained(run, drivable_now) else None", "None", f"{DRAINS} -k only_drain"),
    Mutant("whoever drains a version begins runs of it", "runs/sql/0071_claims_under_halts.sql", "is_draining boolean := EXISTS (", "is_draining boolean := false AND EXISTS (", f"{DRAINS} -k begins_nothing"),
    Mutant("whoever drains a version leaves its renewals lying", "runs/sql/0071_claims_under_halts.sql", "                   AND (q.state <> 'pending' OR q.came_from IS NOT NULL OR q.parent IS NOT NULL)\n", "                   AND q.state <> 'pending'\n", f"{DRAINS} -k begins_nothing"),
    Mutant("a row that nobody can read keeps all ramps from being judged", WATCHING, "o.before ->> 'epoch' <> '0')", "(o.before ->> 'epoch')::bigint > 0)", "tests/runs/test_ramps_halt.py -k nobody_can_read"),
    Mutant("an event that nobody can read keeps all ramps from being judged", WATCHING, "position(convert_to('\"reason\":\"failed\"', 'UTF8') IN u.clear) > 0", "convert_from(u.clear, 'UTF8')::jsonb ->> 'reason' = 'failed'", "tests/runs/test_ramps_halt.py -k nobody_can_read"),
]  # fmt: skip
