"""Lets calls and requests wait until a shared budget has room (durableagents/contrib/limits)."""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn

from runs.engine.errors import SharedBudgetShort, SharedBudgetUnpriced
from runs.engine.journal import ATTENTION, Batch, WaitSpec
from runs.engine.outcomes import Broken
from runs.engine.visit import Visit


def park_if_waiting(visit: Visit, slot: str, attempt: int) -> None:
    """Park a call that is still waiting for a shared budget."""
    if (n := visit.tape.slot(slot).at(attempt).open_wait("pool")) is not None:
        visit.meter.release((slot, attempt))
        visit.park(WaitSpec(visit.run_id, slot, attempt, "pool", n, visit.journal.now()))


async def wait_for_room(
    visit: Visit, slot: str, attempt: int, error: SharedBudgetShort | SharedBudgetUnpriced, **identity: str
) -> NoReturn:
    """Wait until the shared budget that refused an intent has room for it. Always leaves the node.

    The wait ends no later than a week after the budget is refilled. `identity` (call and hash) is recorded with the
    wait if the slot's record doesn't name its call yet.
    """
    if isinstance(error, SharedBudgetUnpriced):
        problem = f"{error}: set a price, then retry"
        visit.stop(Broken("no_price", {"model": error.model, "problem": problem}))
    visit.meter.release((slot, attempt))
    refused = error.detail
    until = datetime.fromisoformat(refused["refills_at"]) + ATTENTION
    detail = {"title": f"Waits for the shared budget {refused['name']}", **refused}
    n = visit.tape.slot(slot).at(attempt).waits_of("pool")
    wait = WaitSpec(visit.run_id, slot, attempt, "pool", n, until, detail)
    opened = wait.opened({"pool": refused["pool"], "wanted": refused["wanted"]} | identity)
    await visit.commit(Batch([opened], wait=wait))
    visit.park(wait)
