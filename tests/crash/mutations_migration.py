"""Seeded bugs in moving runs to another version. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

POSITION, TRYING, ACTS, LOOKING, READER, SQL = (
    "runs/engine/checkpoints/position.py", "runs/engine/migrating/trying.py", "runs/services/migrating/acts.py",
    "runs/services/migrating/looking.py", "runs/journal/reader.py", "runs/sql/0043_migrated.sql",
)  # fmt: skip
TOLD, ATTACKED, VISITS, CRASHED, BATCHES, FAILED, UPGRADED = (
    "tests/runs/test_migrating.py", "tests/runs/test_migrating_attacked.py", "tests/runs/test_migrating_visits.py",
    "tests/engine/test_migrating_crashes.py", "tests/runs/test_migrating_batches.py",
    "tests/runs/test_migrating_failed.py", "tests/runs/test_upgraders.py",
)  # fmt: skip
KIN, ELSEWHERE = "tests/runs/test_migrating_kin.py", "tests/runs/test_upgraders_elsewhere.py"

MIGRATION = [
    Mutant("a move is forgotten by whoever takes the run", POSITION, "    if found is None:\n        return _carried_on(at, tail)\n    place", "    if True:\n        return _carried_on(at, tail)\n    place", CRASHED),
    Mutant("a visit that was left is answered from", POSITION, "    return Position(Snapshot(moved.node, visit, moved.generation, moved.fingerprint, state), since)", "    return Position(Snapshot(moved.node, visit, moved.slots, moved.fingerprint, state), since)", CRASHED),
    Mutant("a visit that was left is entered again", POSITION, "    if not any(isinstance(x, e.VisitEntered) and x.visit == visit for x in since):", "    if True:", f"{CRASHED} -k entered_since"),
    Mutant("a visit in its middle gets slots of its own", POSITION, "    return Position(Snapshot(moved.node, moved.visit, moved.slots, moved.fingerprint, state), tail[since:])", "    return Position(Snapshot(moved.node, moved.visit, moved.generation, moved.fingerprint, state), tail[since:])", CRASHED),
    Mutant("what was sent is sent again from the node's top", TRYING, "intent, e.ToolInvoked) and attempt.intent.replay_class != ReplayClass.PURE:", "intent, e.ToolInvoked) and False:", f"{TOLD} -k not_done_again"),
    Mutant("a signal that was taken is lost", TRYING, "            if isinstance(attempt.result, e.SignalTaken):\n", "            if False:\n", f"{ATTACKED} -k looked_at_again"),
    Mutant("what somebody answered is asked again", TRYING, "            if attempt.answers:\n", "            if False:\n", f"{VISITS} -k answered_is_not"),
    Mutant("a run that was started is started again", TRYING, "            if isinstance(attempt.intent, e.ChildStarted):\n", "            if False:\n", f"{VISITS} -k to_make_twice"),
    Mutant("a yes to one gate is one to another", TRYING, "    if tool.gate.is_needed(args) and now != (then, asked.rule):", "    if False:", f"{VISITS} -k yes_to_one"),
    Mutant("a call in doubt moves along", TRYING, "    if doubts:\n", "    if False:\n", f"{TOLD} -k in_doubt"),
    Mutant("a run that undoes is moved", TRYING, "    if stands.at.node == UNDO_NODE:", "    if False:", f"{VISITS} -k that_undoes"),
    Mutant("a field is lost without a word", TRYING, "    if not moving.makes_state and (lost := sorted(set(lost_of(state, fitting)))):", "    if False and (lost := []):", f"{TOLD} -k loses_nothing"),
    Mutant("what a message changed is dropped", TRYING, "        if names and (is_state_made or is_other or not known.issuperset(names)):", "        if False:", f"{VISITS} -k no_place"),
    Mutant("a driven run is moved under its worker", LOOKING, "    if run.owner is not None or head.lease is not None:", "    if False:", f"{TOLD} -k driven"),
    Mutant("a move goes by an old look", ACTS, "                if act.head.seq == seen.seq:", "                if True:", f"{ATTACKED} -k looked_at_again"),
    Mutant("a moved run keeps the questions of the visit that it left", ACTS, "    if found.how == REENTERED:\n        with connection", "    if False:\n        with connection", f"{VISITS} -k withdrawn_with"),
    Mutant("a moved run waits for nobody", ACTS, "        if found.how == REENTERED or is_closed:", "        if False:", f"{TOLD} -k entered_anew"),
    Mutant("a node is left out and nobody says so", "runs/services/migrating/asked.py", "        if name not in nodes\n", "        if False\n", f"{TOLD} -k refused_by_name"),
    Mutant("a row's version is believed", READER, "    if said != (graph_id, generation):", "    if False:", f"{ATTACKED} -k forged"),
    Mutant("a checkpoint does not say of which version it is", READER, "{\"version\": version} if generation else {}", "{}", f"{TOLD} -k entered_anew"),
    Mutant("one run's lock ends a batch", "runs/services/migrating/outcomes.py", "            if is_refusal(error):\n", "            if False:\n", f"{BATCHES} -k busy"),
    Mutant("a move whose answer was lost is told as not done", "runs/services/migrating/outcomes.py", "x.by == by.ref), None)", "x.by == ''), None)", f"{BATCHES} -k lost"),
    Mutant("a kept answer is found out anew", "runs/api/migrating/views.py", "        kept = idempotency.kept_answers(principal, list(keys.values()))\n", "        kept: dict[str, bytes] = {}\n", "tests/api/test_migrating.py -k without_any_trial"),
    Mutant("a look retries", LOOKING, "            if is_retried:\n                transaction.set_rollback(True)\n", "            pass\n", f"{FAILED} -k goes_on_by"),
    Mutant("a failed run is moved and not retried", ACTS, "                    if seen.is_retried:\n", "                    if False:\n", f"{FAILED} -k goes_on_by"),
    Mutant("news of a failed run are left behind", LOOKING, "        raise NewsUntold()\n", "        pass\n", f"{FAILED} -k news_that"),
    Mutant("a state is brought up from number 1 whoever wrote it", "runs/services/migrating/asked.py", "    return number_by(fingerprint, ", "    return 1 or number_by(fingerprint, ", f"{UPGRADED} -k gone_has_its"),
    Mutant("a checkpoint of an older number is taken as it is", "runs/engine/driver.py", "await brought_up(self.agent, self.runtime, position_of(history.snapshot or self.at, history.tail))", "position_of(history.snapshot or self.at, history.tail)", f"{UPGRADED} -k older_number"),
    Mutant("a number that nobody knows is guessed", "runs/engine/checkpoints/upgrading.py", "    if not number and not agent.upgraders:\n", "    if not number:\n", f"{UPGRADED} -k guessed"),
    Mutant("a run whose state nobody reads can't be ended", "runs/engine/checkpoints/upgrading.py", "        return replace(stands, unread=broken)\n", "        raise\n", f"{ELSEWHERE} -k its_end"),
    Mutant("a state that nobody can read is gone on from", "runs/engine/driver.py", "            if self._unread is not None and not self._is_undoing:\n", "            if False:\n", f"{UPGRADED} -k stops_its_run"),
    Mutant("a fork takes a state of an older number as it is", "runs/services/forks/forking.py", "        return moving.made_of(state), moving.makes_state\n", "        return state, moving.makes_state\n", f"{ELSEWHERE} -k fork_begins"),
    Mutant("a move guesses a number that nobody knows", TRYING, "        if not self.number and (self.is_numbered or self.to.schema_version > 1):\n", "        if False:\n", f"{ELSEWHERE} -k guesses_no"),
    Mutant("a renewed run's state is anybody's", POSITION, "told.get(\"code\", at.fingerprint)", "at.fingerprint", f"{ELSEWHERE} -k renewed"),
    Mutant("a message's change of an older number is dropped", "runs/engine/checkpoints/upgrading.py", "    _keeps_messages(agent, stands.tail)\n", "", f"{ELSEWHERE} -k not_lost"),
    Mutant("a message's change of the new number stops its run", "runs/engine/messages/handling.py", "            changed[\"number\"] = agent.schema_version\n", "            pass\n", f"{ELSEWHERE} -k new_number"),
    Mutant("a stop for a number is one for good", TRYING, "\"poison\", \"unknown_format\",", "\"poison\",", f"{ELSEWHERE} -k goes_out"),
    Mutant("the first scheme tells nothing of upgraders", "runs/engine/agents.py", "*(() if self.upgraders else (first_scheme(self),))", "first_scheme(self)", f"{UPGRADED} -k first_scheme"),
    Mutant("a version whose function takes states back is refused", "runs/fleet/baseline.py", " or takes_back:", ":", "tests/runs/test_baseline.py -k leaves_the_steps"),
    Mutant("an old worker claims a run that has moved", "runs/sql/0071_claims_under_halts.sql", "r.graph_id <> ALL (p_graphs) OR ", "", f"{ATTACKED} -k moves_under"),
    Mutant("a version changes whatever the event says that it was", SQL, "AND graph_id = said ->> 'of' AND generation = (said ->> 'generation')::smallint - 1", "", f"{ATTACKED} -k nobody_changes"),
    Mutant("a paused run hears nothing of what its move closed", ACTS, "    if run.state == State.PAUSED or run.state in WAITING:", "    if run.state in WAITING:", f"{TOLD} -k one_stays_paused"),
    Mutant("a run that somebody cancelled is moved", LOOKING, "    if head.is_cancel_requested:", "    if False:", f"{ATTACKED} -k cancel_whose_worker"),
    Mutant("a run that stands still for its budget is entered anew", TRYING, "    if tape.open_budget() is not None:", "    if False:", f"{KIN} -k does_not_leave_its"),
]  # fmt: skip
