"""The step of a node that can't go on before a message has been answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from runs.engine.errors import MisusedContext
from runs.engine.journal import Batch, WaitSpec, deadline_in
from runs.engine.messages import taken_at
from runs.engine.steps import forks
from runs.engine.steps.signals_and_questions import in_time
from runs.engine.tape import payload_of
from runs.engine.visit import Visit


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that was answered while a call waited for it: its `name`, its number `n` in the run, and the `answer`
    as plain data. What it changed stands in the state."""

    name: str
    n: int
    answer: Any


async def await_message(visit: Visit, slot: str, names: Sequence[str], within: timedelta, or_else: Any) -> Any:
    """The next message that is answered while this waits."""
    for name in names:
        if name not in visit.agent.messages:
            known = ", ".join(visit.agent.messages) or "none"
            raise MisusedContext(f"{visit.agent.graph_id} takes no message {name!r}: it takes {known}")
    what = " ".join(["message", *names])
    record = visit.recall(slot, what, "")
    past = record.now
    if forks.of(visit) is not None:
        forks.missing(visit, what, slot)
    match past.waits.get(("message", 0)):
        case "received":
            event = taken_at(visit.tape, slot)
            return Taken(event.name, event.n, payload_of(event).get("answer"))
        case "timed_out":
            return in_time(what, or_else)
    detail = {"title": "Message" + (f" {' or '.join(names)}" if names else ""), "names": list(names)}
    wait = WaitSpec(visit.run_id, slot, record.current, "message", 0, deadline_in(visit.journal.now(), within), detail)
    if ("message", 0) not in past.waits:
        await visit.commit(Batch([wait.opened({"call": what, "hash": ""})], wait=wait))
    if visit.changes is not None:
        visit.changes.listening.append(wait)
    visit.park(wait)
