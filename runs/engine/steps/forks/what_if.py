"""A run that sends nothing: each of its calls is answered by what is on record of the run that it is a fork of, else by
what a person gave it; what neither has ends it.

No tool, hook, model or other run is reached, and nothing is reserved, reconciled or written into the ledger: the steps
come here before they come to any of that, and `send.py` refuses whatever would come past them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ledger import events as e
from runs.engine.assistants import ModelTurn
from runs.engine.forks.evidence import Fork, Record, about_to_send
from runs.engine.journal import Batch
from runs.engine.outcomes import Crashed
from runs.engine.tape import Slot
from runs.engine.visit import Visit

NOT_ON_RECORD = "not_on_record"
BY = "what_if"
MOST_SLEEPS = 1000  # of one visit


def of(visit: Visit) -> Fork | None:
    """The fork that the visit's run is, where it sends nothing."""
    return visit.fork if visit.fork is not None and visit.fork.is_what_if else None


def check_sends(visit: Visit, what: str) -> None:
    """The last word before anything leaves, or is announced, whatever led there. Stops for an operator."""
    if (found := about_to_send(visit.fork, what)) is not None:
        visit.stop(found)


async def answered(
    visit: Visit,
    slot: str,
    record: Slot,
    what: str,
    requested: str,
    *,
    fits: Callable[[Any], Any],
    arguments: Any = None,
    given: str = "",
    beside: Callable[[Any], Sequence[e.Event]] = lambda payload: (),
) -> e.AnswerTakenOver:
    """What stands for a call of this kind, put on record. `given` is the name by which a person may have given an
    answer; `beside` what goes on record with it. Ends the run where there is none."""
    past, fork = record.now, visit.fork
    if isinstance(past.result, e.AnswerTakenOver):
        return past.result
    assert fork is not None
    known = await visit.look_up(visit.journal.taken_over())
    taken = {*fork.taken, *((x.of_run, x.of_slot, 0) for x in known)}
    found = fork.answer(what, requested, slot, taken)
    if found is not None and (found.code or _is_answer(fits, found.payload)):
        event = _event(visit, fork, slot, record.current, what, requested, found, how="what_if", arguments=arguments)
        fork.taken.add((event.of_run, event.of_slot, 0))
    elif given in fork.answers and _is_answer(fits, {"result": fork.answers[given]}):
        told = Record("", what, requested, payload={"result": fork.answers[given]})
        event = _event(visit, fork, slot, record.current, what, requested, told, how="given", arguments=arguments)
    else:
        missing(visit, what, slot, arguments)
    visit.check_stop()
    more = () if event.code else beside(event.payload)
    reply = await visit.commit(Batch([event, *more]))
    past.result = event
    visit.boundary(reply)
    return event


def _is_answer(fits: Callable[[Any], Any], payload: Any) -> bool:
    try:
        fits(payload)
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _event(
    visit: Visit,
    fork: Fork,
    slot: str,
    attempt: int,
    what: str,
    requested: str,
    found: Record,
    *,
    how: str,
    arguments: Any,
) -> e.AnswerTakenOver:
    payload = dict(found.payload or {}) | ({} if arguments is None else {"arguments": arguments})
    return e.AnswerTakenOver(
        slot=slot,
        attempt=attempt,
        tool=what,
        requested_hash=requested,
        of_run=fork.told.origin,
        of_slot=found.slot,
        of_attempt=0,
        how=how,
        by=fork.told.by,
        code=found.code,
        payload=payload,
    )


def missing(visit: Visit, what: str, slot: str, arguments: Any = None) -> NoReturn:
    """The run ends here: nobody knows what would have come of this."""
    asked = "" if arguments is None else f" with {str(arguments)[:1000]}"
    problem = f"a what-if comes to {what} at {slot}{asked}: that is not on record of the run that it was made of"
    visit.stop(Crashed(NOT_ON_RECORD, f"{problem}, and nobody gave an answer to it", ""))


async def passes_by(visit: Visit, slot: str) -> None:
    """A sleep of a run for which no time goes by. One that only looks at the clock between two sleeps would go round
    for ever: it gives way to others each time, and ends."""
    await asyncio.sleep(0)
    visit.check_stop()
    assert visit.fork is not None
    visit.fork.slept += 1
    if visit.fork.slept > MOST_SLEEPS:
        problem = f"a what-if slept {MOST_SLEEPS} times, the last time at {slot}: what it waits for is not on record"
        visit.stop(Crashed(NOT_ON_RECORD, problem, ""))


def turn_of(payload: Any) -> ModelTurn:
    """A model's answer that cost nothing."""
    return ModelTurn("what-if", payload["response"], 0, 0)


def value(visit: Visit, slot: str, what: str, live: Callable[[], Any]) -> Any:
    """A value from outside: the recorded one of the same place, else one of now."""
    fork = of(visit)
    found = None if fork is None else fork.value(what, slot)
    return live() if found is None else found.payload["result"]
