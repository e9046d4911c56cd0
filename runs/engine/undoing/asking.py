"""What is put on record while a run undoes: that an effect is undone, or that a person lets it stand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field

from ledger import events as e
from runs.engine.canonical import printable
from runs.engine.journal import Batch, Entry
from runs.engine.steps.signals_and_questions import ask
from runs.engine.undoing.plan import Effect
from runs.engine.visit import Visit

OPERATOR = "operator"
A_WEEK = timedelta(days=7)
_NO_ANSWER = object()


class Stands(BaseModel):
    """What an operator says of an effect that can't be undone from here."""

    decision: Literal["leave"] = Field(description="leave: it stands, and the rest goes on")
    justification: str = Field(min_length=1, description="Goes on record.")


class TryAgain(BaseModel):
    """What an operator says of an undo that failed."""

    decision: Literal["retry", "leave"] = Field(
        description="retry: the undo is made again; leave: the effect stands, and the rest goes on"
    )
    justification: str = Field(min_length=1, description="Goes on record.")


async def ask_about(
    visit: Visit, effect: Effect, problem: str, schema: type[Stands] | type[TryAgain], slot: str = ""
) -> str:
    """Stop for an operator: what is to become of this effect. Nobody's silence is an answer: it is asked again."""
    named = f"{effect.tool} ({effect.external_id or effect.run or effect.slot})"
    while True:
        slot = slot or visit.next_slot()
        title = f"{named} is not undone: {problem}"[:500]
        answer: Any = await ask(
            visit, slot, OPERATOR, title=title, schema=schema, prefilled={}, within=A_WEEK, or_else=_NO_ANSWER
        )
        if answer is not _NO_ANSWER:
            break
        slot = ""
    if answer.decision == "leave":
        said = [x.by for _, x in sorted(visit.tape.slot(slot).now.answers.items())]
        await left(visit, slot, effect, said[-1], problem, printable(answer.justification))
    return str(answer.decision)


async def undone(visit: Visit, slot: str, effect: Effect, entries: Sequence[Entry] = ()) -> None:
    """Put on record that it was, once: with the ledger's fact about the effect itself."""
    if slot in visit.tape.undone:
        return
    event = e.EffectUndone(
        slot=slot,
        of_run=effect.run,
        of_slot=effect.slot,
        of_attempt=effect.attempt,
        tool=effect.tool,
        external_id=effect.external_id,
    )
    await _record(visit, event, entries)


async def left(visit: Visit, slot: str, effect: Effect, by: str, problem: str, justification: str) -> None:
    """Put on record who let it stand, once."""
    if slot in visit.tape.undone:
        return
    event = e.EffectLeft(
        slot=slot,
        of_run=effect.run,
        of_slot=effect.slot,
        of_attempt=effect.attempt,
        tool=effect.tool,
        by=by,
        payload={"problem": problem, "justification": justification},
    )
    await _record(visit, event)


async def _record(visit: Visit, event: e.EffectUndone | e.EffectLeft, entries: Sequence[Entry] = ()) -> None:
    reply = await visit.commit(Batch([event], entries))
    visit.tape.undone[event.slot or ""] = event
    visit.boundary(reply)
