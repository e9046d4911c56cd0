"""Seeded bugs in undoing. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant

PLAN, VISIT, ENDING, PREVIEW, SQL = (
    "runs/engine/undoing/plan.py", "runs/engine/undoing/visit.py", "runs/engine/undoing/ending.py", "runs/services/undo/preview.py",
    "runs/sql/0034_undo.sql",
)  # fmt: skip
TOLD, CRASHED, ROWS = "tests/engine/test_undo.py", "tests/engine/test_undo_crashes.py", "tests/runs/test_undo.py"

UNDOING = [
    Mutant("whoever takes a run over doesn't know what was undone", "runs/engine/tape.py", '            self.undone[event.slot or ""] = event\n', "            pass\n", LIGHT),
    Mutant("a cancel that undoes looks like a forged head", "ledger/verification/checks.py", "                self.is_cancel = False  # from here on it is granted\n", "                pass\n", f"{ROWS} -k in_the_midst"),
    Mutant("a visit whose effects were undone is replayed as if it had gone on", "runs/engine/recordings/recording.py", "                return _ended_by(event)\n", "                pass\n", "tests/upgrade/test_journals.py"),
    Mutant("a replay undoes nothing", "runs/engine/recordings/replaying.py", "                outcome = await undo_visit(visit, Plan.model_validate(state))\n", "                outcome = Undone()\n", "tests/upgrade/test_journals.py"),
    Mutant("the first effect is undone first", PLAN, "    return found[::-1]", "    return found", f"{TOLD} -k last_first"),
    Mutant("what is undone is told again by whoever takes the run over", VISIT, "    if slot in visit.tape.undone:\n        return\n", "", CRASHED),
    Mutant("an undo that failed is passed over", VISIT, "        if await _ask(visit, effect, problem, TryAgain) == \"leave\":\n            return", "        return", f"{TOLD} -k refused_undo"),
    Mutant("what nobody knows is planned as if it had not happened", ENDING, "    return [*asked, *(_awaited(journal, name, tape) for name, _ in unsettled(tape))]", "    return asked", f"{TOLD} -k awaited_first"),
    Mutant("news that come after the plan are nobody's", VISIT, "    for late in _turned_up(visit, plan):", "    for late in []:", f"{TOLD} -k after_the_plan"),
    Mutant("the plan is gone with its checkpoint", ENDING, "    if begun is None or at.node == UNDO_NODE:", "    if True:", f"{TOLD} -k checkpoint"),
    Mutant("an undo has no fact in the ledger", VISIT, "    if effect.run:\n        return []", "    if True:\n        return []", f"{ROWS} -k undoes_what_it_did"),
    Mutant("a cap keeps an undo from running", SQL, "cap_tool_calls = NULL, ", "", f"{ROWS} -k no_cap"),
    Mutant("a wish to cancel outlives the plan", SQL, "SET is_cancel_requested = false, ", "SET ", f"{ROWS} -k ends_as_cancelled"),
    Mutant("whoever wakes a run that undoes sets it running", SQL, "    IF NEW.state = 'running' THEN", "    IF false THEN", f"{ROWS} -k compensating"),
    Mutant("nobody has to say what becomes of effects", PREVIEW, "    if effects is None:\n        named", "    if False:\n        named", f"{ROWS} -k something_to_undo"),
    Mutant("a run is retried whose effects were undone", "runs/services/lifecycle.py", "    if run.state in ENDED and run.is_undoing:", "    if False:", f"{ROWS} -k retry_after"),
    Mutant("an undo is not on record with its intent", "runs/engine/steps/call.py", "*call.registered(), ", "", f"{TOLD} -k last_first"),
    Mutant("a checkpoint makes a wish forgotten", "runs/engine/driver.py", "ending.said_by(self.wish or ending.wish_in((await self.journal.effects()).events))", "ending.said_by(self.wish)", "tests/runs/test_undo_attacked.py -k between"),
    Mutant("who fails is asked nothing any more", "runs/engine/driver.py", "        if reply.stop == \"cancel\":\n            return await self._cancel()  # who", "        if False:\n            return await self._cancel()  # who", "tests/runs/test_undo_attacked.py -k just_then"),
    Mutant("a wait of before ends a run half undone", "runs/services/command.py", "    if head.is_cancel_requested or run.is_undoing:\n", "    if head.is_cancel_requested:\n", "tests/runs/test_undo_attacked.py -k of_before"),
]  # fmt: skip
