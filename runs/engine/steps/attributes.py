"""Setting what the run is found by, as a step: written once, with the rows that a search reads; a replay sets nothing
again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runs.engine.attributes import BadAttributes, asked, setting
from runs.engine.errors import MisusedContext
from runs.engine.journal import Batch
from runs.engine.visit import Visit


async def set_attributes(visit: Visit, slot: str, given: Mapping[str, Any]) -> None:
    """Put on record what is given. Raises MisusedContext naming what can't be set; nothing is written then."""
    arguments = asked(given)
    requested_hash = visit.runtime.hasher({"attributes": arguments})
    record = visit.recall(slot, "set_attributes", requested_hash, arguments)
    if record.now.result is not None:
        return
    try:
        event = setting(visit.agent.attributes, given, by="agent", slot=slot, requested_hash=requested_hash)
    except BadAttributes as error:
        raise MisusedContext(f"{visit.agent.graph_id}: {error} ({error.problems[0][2]})") from error
    visit.boundary(await visit.commit(Batch([event])))
