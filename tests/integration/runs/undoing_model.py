"""Runs that undo their effects, on the real database and the model: a part of test_model.py's machine."""

from __future__ import annotations

from hypothesis.stateful import precondition, rule

from ledger import events as e
from runs.engine.journal import Batch, Snapshot
from runs.engine.undo import UNDO_NODE
from runs.engine.undoing.plan import Effect, Plan
from runs.engine.undoing.visit import undo_summary
from tests.integration.runs.spender import Spender, now_and_then, owned


class Undoer(Spender):
    """Begins to undo in one commit, as the driver does; all other rules still apply."""

    @precondition(lambda self: owned(self) and not self.model.call and not self.model.waits and _may_begin(self))
    @rule()
    def begin_to_undo(self) -> None:
        self.left: dict[str, e.EffectUndone | e.EffectLeft] = {}
        reason = "cancelled" if self.model.wants_cancel else "failed"
        effect = Effect("ask", self.next_slot(), 0, "order", why="nobody knows")
        self.plan = Plan(reason=reason, code="x", effects=[effect.as_json()])  # type: ignore[arg-type]
        stored, visit = self.plan.model_dump(mode="json"), self.model.visit + 1
        events = [
            e.UndoBegun(reason=reason, code="x", effects=1, payload=stored),
            e.BudgetSet(by="system:undo", caps={}, until=""),
            e.VisitEntered(node=UNDO_NODE, visit=visit),
        ]
        cut = Snapshot(UNDO_NODE, visit, self.model.generation, "print", stored)
        self.write(self.journal.commit(Batch(events, snapshot=cut)))
        self.model.begin_to_undo("UndoBegun", "BudgetSet")
        self.model.enters()

    @precondition(lambda self: owned(self) and self.model.is_undoing and not self.left)
    @rule()
    def leave_an_effect(self) -> None:
        of = self.plan.all()[0]
        event = e.EffectLeft(slot=self.next_slot(), of_run="", of_slot=of.slot, of_attempt=0, tool="order", by="user:o")
        self.write(self.journal.commit(Batch([event])))
        self.left[event.slot or ""] = event
        self.model.tells("EffectLeft")

    def may_end(self, state: str) -> bool:
        """Return whether it may end in this state: an undo by its plan, others as cancelled only on request."""
        if self.model.is_undoing:
            return state == self.plan.reason and bool(self.left)
        return (state != "cancelled" or self.model.wants_cancel) and (state == "cancelled" or not self.model.waits)

    @property
    def said(self) -> dict[str, object]:
        return {"undo": undo_summary(self.plan, self.left)} if self.model.is_undoing else {}


def _may_begin(machine: Undoer) -> bool:
    is_free = not (machine.model.is_undoing or machine.model.is_routed or machine.model.is_denied)
    return is_free and len(machine.model.kinds) > 6 and (machine.model.wants_cancel or now_and_then(machine))
