"""The visit that undoes a run's effects: one call after the other, the last effect first.

Each is an ordinary step, so a crash, a doubt, a gate, a callback and a retry are what they are anywhere. What can't be
undone is put to an operator.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from ledger import events as e
from runs.engine.canonical import printable
from runs.engine.errors import ContentRefused, MisusedContext, Rejected, ToolFailure
from runs.engine.journal import Batch, Entry, WaitSpec
from runs.engine.outcomes import Broken, Crashed, Exceeded, Parked, Stopped, Unwind
from runs.engine.runtime import is_being_cancelled
from runs.engine.steps.call import call_tool
from runs.engine.steps.signals_and_questions import ask
from runs.engine.tape import payload_of
from runs.engine.tools import Tool
from runs.engine.undoing.plan import LATE, Effect, Plan
from runs.engine.visit import Visit

OPERATOR = "operator"
A_WEEK = timedelta(days=7)
_NO_ANSWER = object()


@dataclass(frozen=True, slots=True)
class Undone:
    """Every effect has been undone, or a person let it stand."""


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


async def undo_visit(visit: Visit, plan: Plan) -> Undone | Parked | Exceeded | Stopped | Crashed | Broken:
    """Carry the plan out, to its end or to where it must wait or stop. What goes wrong in it never ends the run: an
    operator looks."""
    broken: Broken | None = None
    try:
        await _undo_all(visit, plan)
    except Unwind:
        pass  # the visit knows why, and says so below
    except Exception as error:
        if is_being_cancelled():
            raise
        problem = f"undoing stopped: {type(error).__name__}: {error}"
        broken = Broken("undo_broken", {"problem": problem, "traceback": traceback.format_exc()})
    finally:
        visit.is_over = True
    return visit.how_it_ended() or broken or visit.recalled.left_out() or Undone()


async def _undo_all(visit: Visit, plan: Plan) -> None:
    for effect in plan.all():
        match effect.what:
            case "undo":
                await _undo(visit, effect)
            case "child":
                await _ended(visit, effect)
            case "ask" | "run":
                await _ask(visit, effect, effect.why, Stands)
    for late in _turned_up(visit, plan):
        await _ask(visit, late, late.why, Stands)


def _turned_up(visit: Visit, plan: Plan) -> list[Effect]:
    """Effects that nobody knew of when the plan was made. In the order in which they were told: a replay asks about
    them in the same places."""
    known = {(each.slot, each.attempt) for each in plan.all() if each.what != "stays"}
    here = f"{visit.places.visit}/"
    return [
        Effect("ask", name, number, slot.what or "", why=LATE)
        for name, number in visit.tape.late
        if (slot := visit.tape.slot(name)) is not None and (name, number) not in known and not name.startswith(here)
    ]


async def _undo(visit: Visit, effect: Effect) -> None:
    """One effect: until it is undone, or a person leaves it."""
    tool = visit.agent.tool(effect.by)
    if tool is None:
        visit.stop(Broken("unknown_tool", {"tool": effect.by, "problem": "the agent has no tool of this name"}))
    while True:
        slot = visit.next_slot()
        problem = await _tried(visit, slot, tool, effect)
        if problem is None:
            return await _undone(visit, slot, effect)
        if await _ask(visit, effect, problem, TryAgain) == "leave":
            return


async def _ended(visit: Visit, effect: Effect) -> None:
    """Wait for the end of a child that is being cancelled and undoes its own. One that ended well after all is put to a
    person."""
    end = visit.tape.slot(effect.slot).at(effect.attempt).result
    if end is None:
        visit.park(WaitSpec(visit.run_id, effect.slot, effect.attempt, "child", 0, visit.journal.now()))
    if isinstance(end, e.ChildEnded) and end.state == "completed":
        await _ask(visit, effect, "the child came to its end before it could be cancelled", Stands)


async def _tried(visit: Visit, slot: str, tool: Tool, effect: Effect) -> str | None:
    """Make, or replay, the call that undoes an effect. What was wrong with it; None where nothing was."""
    why = f"undoes {effect.tool} ({effect.external_id or effect.slot})"
    try:
        await call_tool(visit, slot, tool, tool.input.model_validate(effect.arguments), why=why)
    except (ToolFailure, Rejected, ContentRefused, MisusedContext) as no:
        return str(printable(f"{tool.name}: {no}"))
    except ValidationError as error:
        return str(printable(f"{tool.name} does not take what is on record: {error}"))
    return None


async def _undone(visit: Visit, slot: str, effect: Effect) -> None:
    """Put on record that it was, once: with the ledger's fact about the effect itself."""
    if slot in visit.tape.undone:
        return
    event = e.EffectUndone(
        slot=slot, of_run=effect.run, of_slot=effect.slot, of_attempt=effect.attempt, tool=effect.tool,
        external_id=effect.external_id,
    )  # fmt: skip
    await _record(visit, event, _compensated(effect))


def _compensated(effect: Effect) -> list[Entry]:
    """The ledger's fact: of an effect of this run's own."""
    if effect.run:
        return []
    return [Entry(effect.slot, effect.attempt, "compensated", effect.tool, effect.replay_class, None, None,
                  effect.external_id, None)]  # fmt: skip


async def _record(visit: Visit, event: e.EffectUndone | e.EffectLeft, entries: list[Entry]) -> None:
    reply = await visit.commit(Batch([event], entries))
    visit.tape.undone[event.slot or ""] = event
    visit.boundary(reply)


async def _ask(visit: Visit, effect: Effect, problem: str, schema: type[Stands] | type[TryAgain]) -> str:
    """Stop for an operator: what is to become of this effect. Nobody's silence is an answer: it is asked again."""
    named = f"{effect.tool} ({effect.external_id or effect.run or effect.slot})"
    while True:
        slot = visit.next_slot()
        title = f"{named} is not undone: {problem}"[:500]
        answer: Any = await ask(
            visit, slot, OPERATOR, title=title, schema=schema, prefilled={}, within=A_WEEK, or_else=_NO_ANSWER
        )
        if answer is not _NO_ANSWER:
            break
    if answer.decision == "leave" and slot not in visit.tape.undone:
        said = [x.by for _, x in sorted(visit.tape.slot(slot).now.answers.items())]
        event = e.EffectLeft(
            slot=slot, of_run=effect.run, of_slot=effect.slot, of_attempt=effect.attempt, tool=effect.tool, by=said[-1],
            payload={"problem": problem, "justification": printable(answer.justification)},
        )  # fmt: skip
        await _record(visit, event, [])
    return str(answer.decision)


def told(plan: Plan, undone: dict[str, e.EffectUndone | e.EffectLeft]) -> dict[str, Any]:
    """What the run's end says of its effects: which were undone, and which stand and why."""
    stands = [each for each in plan.all() if each.what == "stays"]
    return {
        "undone": [_named(x) for x in undone.values() if isinstance(x, e.EffectUndone)],
        "left": [
            _named(x) | {"by": x.by, "why": payload_of(x).get("problem", "")}
            for x in undone.values()
            if isinstance(x, e.EffectLeft)
        ],
        "stays": [{"slot": x.slot, "tool": x.tool, "external_id": x.external_id, "why": x.why} for x in stands],
    }


def _named(event: e.EffectUndone | e.EffectLeft) -> dict[str, Any]:
    external_id = {"external_id": event.external_id} if isinstance(event, e.EffectUndone) else {}
    return {"run": event.of_run, "slot": event.of_slot, "tool": event.tool} | external_id
