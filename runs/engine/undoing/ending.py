"""Starts the undoing of a run's effects, and ends the run afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.canonical import printable
from runs.engine.journal import Batch, Effects, Journal, Snapshot, WaitSpec
from runs.engine.outcomes import Crashed
from runs.engine.tape import Slot, Tape, payload_of
from runs.engine.undo import UNDO_NODE
from runs.engine.undoing.plan import Plan, effects_of, in_doubt, is_reversible, unsettled
from runs.engine.undoing.visit import undo_summary
from runs.engine.unknown import Ending, settle_before_end

BY = "system:undo"


async def questions(run: Ending, doubtful: Iterable[Slot]) -> list[WaitSpec]:
    settled = [await settle_before_end(run, slot) for slot in doubtful]
    return [wait for wait in settled if wait is not None]


async def open_questions(run: Ending, tape: Tape) -> list[WaitSpec]:
    """Settle unknown outcomes of calls that can be undone. Return the waits for people and callbacks that remain."""
    settled = await questions(run, [slot for _, slot in in_doubt(tape)])
    return [*settled, *(_awaited(run.journal, name, tape) for name, _ in unsettled(tape))]


def _awaited(journal: Journal, name: str, tape: Tape) -> WaitSpec:
    slot = tape.slot(name)
    return WaitSpec(journal.run_id, name, slot.current, "webhook", slot.now.last_wait("webhook")[0], journal.now())


def plan_for(agent: Agent, effects: Effects, end: Plan, ends_with: Any) -> Plan | None:
    """Return the plan for a run that is about to end; None if nothing can be undone."""
    if not is_reversible(effects.events) and not effects.reversible:
        return None
    found = effects_of(agent, effects.events, effects.reversible)
    if all(each.what == "stays" for each in found):
        return None
    # A running child that has no effect yet may still have one before it is cancelled, so the plan awaits its end too.
    found = effects_of(agent, effects.events, effects.reversible | effects.at_work)
    effects_ = [each.as_json() for each in found]
    return end.model_copy(update={"ends_with": printable(ends_with), "effects": effects_})


async def begin(journal: Journal, at: Snapshot, plan: Plan, buffered: list[e.Event]) -> Snapshot:
    """Record the plan and enter the undo visit (`at`) in one commit.

    Entering the visit also removes the budget's caps.
    """
    cut = replace(at, state=plan.model_dump(mode="json"))
    begun = e.UndoBegun(
        reason=plan.reason, code=plan.code, effects=len(plan.effects), payload=plan.model_dump(mode="json")
    )
    lifted = e.BudgetSet(by=BY, caps={}, until="")
    entered = e.VisitEntered(node=UNDO_NODE, visit=cut.visit)
    await journal.commit(Batch([*buffered, begun, lifted, entered], snapshot=cut))
    return cut


def asked_of(tail: Sequence[e.Event]) -> e.UndoAsked | None:
    """Return the request to undo effects, if the run was ended from outside and not retried since; else None."""
    request = next((x for x in reversed(tail) if isinstance(x, (e.UndoAsked, e.RunRetried))), None)
    return request if isinstance(request, e.UndoAsked) else None


def crash_of(undo_asked: e.UndoAsked) -> Crashed:
    return Crashed(undo_asked.code, str(payload_of(undo_asked).get("message", "")), "")


def stated(undo_asked: e.UndoAsked) -> dict[str, Any]:
    return payload_of(undo_asked) | {"asked_by": undo_asked.by}


def nothing_left(undo_asked: e.UndoAsked) -> e.RunCancelled:
    return e.RunCancelled(by="operator", in_flight=[], payload=stated(undo_asked))


def said_by(wish: e.CancelRequested | None) -> dict[str, Any] | None:
    return None if wish is None else payload_of(wish) | {"asked_by": wish.by}


def wish_in(events: Sequence[e.Event]) -> e.CancelRequested | None:
    """Return the last cancel request; None if there is none.

    The events must include all that concern effects, because a tail of the journal may begin after the request.
    """
    return next((x for x in reversed(events) if isinstance(x, e.CancelRequested)), None)


def resumed(at: Snapshot, tail: Sequence[e.Event], generation: int, fingerprint: str) -> Snapshot:
    """Return the position of a run that has begun to undo.

    If its checkpoint is unreadable, the plan comes from the event.
    """
    begun = next((x for x in tail if isinstance(x, e.UndoBegun)), None)
    if begun is None or at.node == UNDO_NODE:
        return at
    visit = next(x.visit for x in tail if isinstance(x, e.VisitEntered) and x.node == UNDO_NODE)
    return Snapshot(UNDO_NODE, visit, generation, fingerprint, begun.payload)


def end_of(plan: Plan, tape: Tape) -> tuple[str, e.Event, str]:
    """Return the final state, its event with the outcome for each effect, and the error code."""
    stated = plan.ends_with if isinstance(plan.ends_with, dict) else {}
    payload = stated | {"undo": undo_summary(plan, tape.undone)}
    if plan.reason == "failed":
        return "failed", e.RunFailed(code=plan.code, payload=payload), plan.code
    return "cancelled", e.RunCancelled(by="operator", in_flight=plan.in_flight, payload=payload), plan.code
