"""Where a call meets the budgets that many runs share: it begins when each has room for it, or its branch waits for its
turn."""

from __future__ import annotations

from datetime import datetime

from ledger import events as e
from runs.engine.budget.meter import Call
from runs.engine.errors import PoolShort, PoolUnpriced
from runs.engine.forks.evidence import about_to_send
from runs.engine.journal import ATTENTION, Batch, Reply, WaitSpec
from runs.engine.outcomes import Broken
from runs.engine.visit import Visit


async def begin(visit: Visit, batch: Batch) -> Reply:
    """Commit an intent. Where a pool has no room for it, or has had none before, the branch waits until it is let in:
    when there is room again, when the period begins anew at the latest. Nobody lets it in a week after that: the run is
    given up."""
    if (sends := about_to_send(visit.fork, batch.events[0].KIND)) is not None:
        visit.stop(sends)
    call, named = _named(batch.events[0])
    waiting = visit.tape.slot(call[0]).at(call[1])
    if (n := waiting.open_wait("pool")) is not None:
        visit.meter.release(call)
        visit.park(WaitSpec(visit.run_id, *call, "pool", n, visit.journal.now()))
    try:
        return await visit.commit(batch)
    except PoolUnpriced as unpriced:
        problem = f"{unpriced}: put one in, then retry"
        visit.stop(Broken("no_price", {"model": unpriced.model, "problem": problem}))
    except PoolShort as short:
        told = short.told
    visit.meter.release(call)
    until = datetime.fromisoformat(told["refills_at"]) + ATTENTION
    detail = {"title": f"Waits for the pool {told['name']}", **told}
    wait = WaitSpec(visit.run_id, *call, "pool", waiting.waits_of("pool"), until, detail)
    opened = wait.opened({"pool": told["pool"], "wanted": told["wanted"]} | named)
    await visit.commit(Batch([opened], wait=wait))
    visit.park(wait)


def _named(first: e.Event) -> tuple[Call, dict[str, str]]:
    """The call that an intent begins, and how its slot's record names it; nothing, where it stands there already."""
    call = first.slot or "", first.attempt
    match first:
        case e.ToolInvoked():
            return call, {"call": first.tool, "hash": first.requested_hash}
        case e.ModelRequested():
            return call, {"call": "model", "hash": first.request_hash}
        case _:
            return call, {}
