"""Seeded bugs in undoing. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant

PLAN, VISIT, ENDING, PREVIEW, SQL = (
    "runs/engine/undoing/plan.py", "runs/engine/undoing/visit.py", "runs/engine/undoing/ending.py", "runs/services/undo/preview.py",
    "runs/sql/0034_undo.sql",
)  # fmt: skip
ASKING, NEWS, REOPENING = (
    "runs/engine/undoing/asking.py",
    "runs/engine/undoing/news.py",
    "runs/services/families/reopening.py",
)
VERIFIED, FAMILIES, TURNED_UP = (
    "runs/verification/undo.py",
    "tests/runs/test_undo_families.py",
    "tests/engine/test_undo_news.py",
)
TOLD, CRASHED, ROWS = "tests/engine/test_undo.py", "tests/engine/test_undo_crashes.py", "tests/runs/test_undo.py"

UNDOING = [
    Mutant("whoever waits for a child's undo gives it up", "runs/engine/undoing/below.py", "        if past.waits.get((\"child\", 0)) != REFUSED:", "        if False:", LIGHT),
    Mutant("whoever takes a run over doesn't know what was undone", "runs/engine/tape.py", '            self.undone[event.slot or ""] = event\n', "            pass\n", LIGHT),
    Mutant("a cancel that undoes looks like a forged head", "ledger/verification/checks.py", "                self.is_cancel = False  # from here on it is granted\n", "                pass\n", f"{ROWS} -k in_the_midst"),
    Mutant("a visit whose effects were undone is replayed as if it had gone on", "runs/engine/recordings/recording.py", "                return _ended_by(event)\n", "                pass\n", "tests/upgrade/test_journals.py"),
    Mutant("a replay undoes nothing", "runs/engine/recordings/replaying.py", "                outcome = await undo_visit(visit, Plan.model_validate(state))\n", "                outcome = Undone()\n", "tests/upgrade/test_journals.py"),
    Mutant("the first effect is undone first", PLAN, "    return found[::-1]", "    return found", f"{TOLD} -k last_first"),
    Mutant("what is undone is told again by whoever takes the run over", ASKING, "    if slot in visit.tape.undone:\n        return\n    event = e.EffectUndone(", "    event = e.EffectUndone(", CRASHED),
    Mutant("an undo that failed is passed over", VISIT, "        if await ask_about(visit, effect, problem, TryAgain) == \"leave\":\n            return", "        return", f"{TOLD} -k refused_undo"),
    Mutant("what nobody knows is planned as if it had not happened", ENDING, "    return [*asked, *(_awaited(run.journal, name, tape) for name, _ in unsettled(tape))]", "    return asked", f"{TOLD} -k awaited_first"),
    Mutant("news that come after the plan are nobody's", VISIT, "    while len(late := turned_up(await visit.look_up(visit.journal.effects()), plan, visit.places.visit)) > asked:", "    while len(late := []) > asked:", f"{TOLD} -k after_the_plan"),
    Mutant("the plan is gone with its checkpoint", ENDING, "    if begun is None or at.node == UNDO_NODE:", "    if True:", f"{TOLD} -k checkpoint"),
    Mutant("an undo has no fact in the ledger", VISIT, "    if effect.run:\n        return []", "    if True:\n        return []", f"{ROWS} -k undoes_what_it_did"),
    Mutant("a cap keeps an undo from running", SQL, "cap_tool_calls = NULL, ", "", f"{ROWS} -k no_cap"),
    Mutant("a wish to cancel outlives the plan", SQL, "SET is_cancel_requested = false, ", "SET ", f"{ROWS} -k ends_as_cancelled"),
    Mutant("whoever wakes a run that undoes sets it running", SQL, "    IF NEW.state = 'running' THEN", "    IF false THEN", f"{ROWS} -k compensating"),
    Mutant("nobody has to say what becomes of effects", PREVIEW, "    if effects is None:\n        named", "    if False:\n        named", f"{ROWS} -k something_to_undo"),
    Mutant("a run is retried whose effects were undone", "runs/services/allowed/rules.py", "    if s.has_ended and s.is_undoing:", "    if False:", f"{ROWS} -k retry_after"),
    Mutant("an undo is not on record with its intent", "runs/engine/steps/call.py", "*call.registered(), ", "", f"{TOLD} -k last_first"),
    Mutant("a checkpoint makes a wish forgotten", "runs/engine/driver.py", "ending.said_by(self.wish or ending.wish_in((await self.journal.effects()).events))", "ending.said_by(self.wish)", "tests/runs/test_undo_attacked.py -k between"),
    Mutant("who fails is asked nothing any more", "runs/engine/driver.py", "        if reply.stop == \"cancel\":\n            return await self._cancel()  # who", "        if False:\n            return await self._cancel()  # who", "tests/runs/test_undo_attacked.py -k just_then"),
    Mutant("a wait of before ends a run half undone", "runs/services/command.py", "    if head.is_cancel_requested or run.is_undoing:\n", "    if head.is_cancel_requested:\n", "tests/runs/test_undo_attacked.py -k of_before"),
    Mutant("a child that ended well stays as it is", VISIT, "                await reopened(visit, effect)", "                pass", f"{FAMILIES} -k in_its_place"),
    Mutant("a wait alone has a child reopened", REOPENING, "    if not any(_is_of(effect, run) for effect in _planned(parent)):", "    if False:", f"{FAMILIES} -k nobodys_plan"),
    Mutant("what a child used before is debited again", REOPENING, " - sum(getattr(x, name) for x in earlier)", "", f"{FAMILIES} -k debited"),
    Mutant("a child that can't be reopened is waited for for ever", REOPENING, "            _refuse(wait, above)", "            pass", f"{FAMILIES} -k can_not_be_reopened"),
    Mutant("a child's end that was told just before the plan is waited for, for ever", "runs/engine/undoing/below.py", ".result or await _told_before(visit, effect)", ".result", f"{FAMILIES} -k between_the_reading"),
    Mutant("what people left in a child counts as undone", "runs/engine/undoing/below.py", "    if stands:", "    if False:", f"{FAMILIES} -k asks_there"),
    Mutant("a child without effects is not awaited", ENDING, "effects.reversible | effects.at_work", "effects.reversible", f"{FAMILIES} -k without_effects"),
    Mutant("a child that undoes stays held back by a parent that was cancelled", "runs/services/families/wishes.py", "CASE node WHEN '_undo' THEN state_above <> 'paused' ELSE above NOT IN ('paused', 'cancelled') END", "above NOT IN ('paused', 'cancelled')", f"{FAMILIES} -k held_back"),
    Mutant("who undoes is cancelled again at each sweep", "runs/services/families/wishes.py", "AND node <> '_undo' ", "", f"{FAMILIES} -k however_often"),
    Mutant("news about the undos' own calls are nobody's", NEWS, "self._own(event) if event.slot.startswith(self.here)", "\"\" if event.slot.startswith(self.here)", f"{TURNED_UP} -k late_word"),
    Mutant("news of the last moment are nobody's", "runs/engine/driver.py", "        if self.journal.seq > known:", "        if False:", f"{TURNED_UP} -k last_moment"),
    Mutant("an effect told between reading and planning is lost", NEWS, "LATE if is_news or attempt.is_belied or attempt.is_called_back_late", "LATE if is_news or attempt.is_called_back_late", f"{TURNED_UP} -k between"),
    Mutant("who pauses a run that undoes can't set it going again", "runs/services/allowed/rules.py", "if not run.is_undoing or kind != Wait.Kind.BUDGET]", "]", "tests/runs/test_undo_attacked.py -k nor_does_a_question"),
    Mutant("a child that undoes stays held back for its budget", "runs/services/families/wishes.py", "    AND (node = '_undo' OR NOT EXISTS", "    AND (NOT EXISTS", "tests/runs/test_undo_attacked.py -k as_its_parent_does"),
    Mutant("a run that undoes asks for its budget still", "runs/services/lifecycle.py", 'kind__in=("operator", "budget")', 'kind__in=("operator",)', "tests/runs/test_undo_attacked.py -k who_pauses"),
    Mutant("a cancel that needs more than is said of it", "runs/queries/why/acts.py", "    return replace(offer, body=CancelUndoableBody) if is_asked else offer\n", "    return offer\n", "tests/undo/test_over_http.py -k all_that_it_takes"),
    Mutant("verification lets an effect be undone twice", VERIFIED, "        elif of in self.became:", "        elif False:", "tests/runs/test_undo_verified.py -k twice"),
    Mutant("verification lets an effect be forgotten", VERIFIED, "of not in self.became:", "False:", "tests/runs/test_undo_verified.py -k saw_to"),
    Mutant("verification lets what nobody planned be undone", VERIFIED, "        elif not self._is_meant(of, event):", "        elif False:", "tests/runs/test_undo_verified.py -k planned"),
    Mutant("a page shows the effects of before for ever", "runs/services/undo/offered.py", "    if not is_new:", "    if True:", "tests/scale/test_undo_page.py -k what_is_new"),
    Mutant("a cancel that leaves the effects says nothing of it", "runs/services/undo/preview.py", "if said_at_end(run) == LEAVE else []", "if False else []", "tests/undo/test_over_http.py -k all_that_it_takes"),
    Mutant("what has to be said may be empty", "runs/queries/why/acts.py", 'return {"minLength": 1} | said if said.get("type") == "string" else said', "return said", "tests/undo/test_over_http.py -k all_that_it_takes"),
    Mutant("somebody is to retry what nobody may", "runs/queries/why/answer.py", 'if cause == "failed" and why_not("retry", seen.stand) is not None:', "if False:", "tests/undo/test_over_http.py -k nobody_may"),
    Mutant("an undone run is resumable", "runs/api/present.py", 'return run.state == State.FAILED and why_not("retry", stand) is None', "return run.state == State.FAILED", "tests/undo/test_over_http.py -k nobody_may"),
    Mutant("a page reads all effects at each refresh", "runs/services/undo/offered.py", "    if not is_new:\n        _keep(run.pk, replace(kept, seq=seq))\n        return kept.seen\n", "    if not is_new:\n        return _read(run, family)\n", "tests/scale/test_undo_page.py -k live_refresh"),
]  # fmt: skip
