"""Children of a run that undoes its effects: one at work is cancelled and undoes its own, one that ended well is
reopened for that. The parent waits for both.

Who cancels or reopens them is not this run's worker: nobody has two runs locked (runs/services/families).
"""

from __future__ import annotations

from dataclasses import replace

from ledger import events as e
from runs.engine.journal import Batch, WaitSpec, deadline_in
from runs.engine.steps.children import PATIENCE
from runs.engine.tape import payload_of
from runs.engine.undoing.asking import Stands, TryAgain, ask_about, left, undone
from runs.engine.undoing.plan import Effect
from runs.engine.visit import Visit

REFUSED = "refused"  # how a wait for a child's undo ends where it can't be reopened


async def ended(visit: Visit, effect: Effect) -> None:
    """Wait for the end of a child that is being cancelled and undoes its own. One that ended well after all is
    reopened, where it had an effect that can be undone."""
    end = visit.tape.slot(effect.slot).at(effect.attempt).result or await _told_before(visit, effect)
    if end is None:
        visit.park(WaitSpec(visit.run_id, effect.slot, effect.attempt, "child", 0, visit.journal.now()))
    if not isinstance(end, e.ChildEnded) or end.state != "completed":
        return
    run = str(payload_of(end).get("run") or end.child)
    slot = visit.next_slot()
    is_begun = visit.tape.slot(slot).what is not None
    if is_begun or run in (await visit.look_up(visit.journal.effects())).reversible:
        await reopened(visit, replace(effect, run=run), slot)


async def _told_before(visit: Visit, effect: Effect) -> e.ChildEnded | None:
    """Its end, where that was told in the moment between the reading of the record and the plan: this visit's own tape
    begins after both."""
    told = (await visit.look_up(visit.journal.effects())).events
    ends = (event for event in told if isinstance(event, e.ChildEnded))
    return next((end for end in ends if (end.slot, end.attempt) == (effect.slot, effect.attempt)), None)


async def reopened(visit: Visit, effect: Effect, slot: str = "") -> None:
    """Have a child that ended well undo what it did, and wait for that."""
    while True:
        slot = slot or visit.next_slot()
        record = visit.tape.slot(slot)
        if record.what == "ask":  # of a run that began to undo when children that ended well were only asked about
            await ask_about(visit, effect, "the child came to its end before it could be cancelled", Stands, slot)
            return
        what = f"undo of run {effect.run}"
        past = visit.recall(slot, what, "").now
        if isinstance(past.result, e.ChildEnded):
            return await _told(visit, slot, effect, past.result)
        if past.waits.get(("child", 0)) != REFUSED:
            await _wait(visit, slot, what, effect, is_open=("child", 0) in past.waits)
        if await ask_about(visit, effect, "the child can't be reopened: look at its record", TryAgain) == "leave":
            return
        slot = ""


async def _wait(visit: Visit, slot: str, what: str, effect: Effect, *, is_open: bool) -> None:
    detail = {"child": effect.run, "undo": effect.run, "title": "The undo of a child", "agent": effect.agent}
    deadline = deadline_in(visit.journal.now(), PATIENCE)
    wait = WaitSpec(visit.run_id, slot, 0, "child", 0, deadline, detail)
    if not is_open:
        await visit.commit(Batch([wait.opened({"call": what, "hash": ""})], wait=wait))
    visit.park(wait)


async def _told(visit: Visit, slot: str, effect: Effect, end: e.ChildEnded) -> None:
    """The child came to the end of it; what people let stand there stands here."""
    stands = payload_of(end).get("left", 0)
    if stands:
        await left(visit, slot, effect, f"run:{effect.run}", f"{stands} of its effects stand: see its own page", "")
    else:
        await undone(visit, slot, effect)
