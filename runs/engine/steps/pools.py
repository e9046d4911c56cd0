"""Shared budgets: calls and requests that wait until their pool has room."""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn

from runs.engine.errors import PoolShort, PoolUnpriced
from runs.engine.journal import ATTENTION, Batch, WaitSpec
from runs.engine.outcomes import Broken
from runs.engine.visit import Visit


def park_if_waiting(visit: Visit, slot: str, attempt: int) -> None:
    """Park a call whose pool has not let it in yet."""
    if (n := visit.tape.slot(slot).at(attempt).open_wait("pool")) is not None:
        visit.meter.release((slot, attempt))
        visit.park(WaitSpec(visit.run_id, slot, attempt, "pool", n, visit.journal.now()))


async def wait_for_room(
    visit: Visit, slot: str, attempt: int, error: PoolShort | PoolUnpriced, **identity: str
) -> NoReturn:
    """Wait until the pool that refused an intent lets it in, or for a week after its refill. `identity` (call and hash)
    is recorded with the wait, if the slot's record doesn't name its call yet."""
    if isinstance(error, PoolUnpriced):
        problem = f"{error}: put one in, then retry"
        visit.stop(Broken("no_price", {"model": error.model, "problem": problem}))
    visit.meter.release((slot, attempt))
    told = error.told
    until = datetime.fromisoformat(told["refills_at"]) + ATTENTION
    detail = {"title": f"Waits for the pool {told['name']}", **told}
    n = visit.tape.slot(slot).at(attempt).waits_of("pool")
    wait = WaitSpec(visit.run_id, slot, attempt, "pool", n, until, detail)
    opened = wait.opened({"pool": told["pool"], "wanted": told["wanted"]} | identity)
    await visit.commit(Batch([opened], wait=wait))
    visit.park(wait)
