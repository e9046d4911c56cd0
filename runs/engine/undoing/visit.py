"""The visit that undoes a run's effects in ordinary steps, the last effect first.

Operators decide about effects that no call can undo.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from ledger import events as e
from runs.engine.call import call_tool
from runs.engine.canonical import printable
from runs.engine.errors import ContentRefused, MisusedContext, Rejected, ToolFailure
from runs.engine.journal import Batch, Effects, Entry, WaitSpec, deadline_in
from runs.engine.logical_call import CallSpec
from runs.engine.outcomes import Broken, Crashed, Exceeded, Parked, Stopped, Unwind
from runs.engine.runtime import is_being_cancelled
from runs.engine.steps.children import PATIENCE
from runs.engine.steps.signals_and_questions import ask
from runs.engine.tape import Tape, payload_of
from runs.engine.tools import Tool
from runs.engine.undoing.plan import LATE, Effect, Plan
from runs.engine.visit import Visit

OPERATOR = "operator"
A_WEEK = timedelta(days=7)
_NO_ANSWER = object()


class Stands(BaseModel):
    """An operator's answer about an effect that can't be undone from here."""

    decision: Literal["leave"] = Field(description="leave: it stands, and the rest goes on")
    justification: str = Field(min_length=1, description="Goes on record.")


class TryAgain(BaseModel):
    """An operator's answer about an undo that failed."""

    decision: Literal["retry", "leave"] = Field(
        description="retry: the undo is made again; leave: the effect stands, and the rest goes on"
    )
    justification: str = Field(min_length=1, description="Goes on record.")


async def ask_about(
    visit: Visit, effect: Effect, problem: str, schema: type[Stands] | type[TryAgain], slot: str = ""
) -> str:
    """Ask an operator what to do about this effect, and return the decision. Asks again after each timeout."""
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
        answered_by = [x.by for _, x in sorted(visit.tape.slot(slot).now.answers.items())]
        await record_kept_effect(visit, slot, effect, answered_by[-1], problem, printable(answer.justification))
    return str(answer.decision)


async def undone(visit: Visit, slot: str, effect: Effect, entries: Sequence[Entry] = ()) -> None:
    """Record that the effect was undone, with the ledger's entry. It is recorded only once."""
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


async def record_kept_effect(
    visit: Visit, slot: str, effect: Effect, by: str, problem: str, justification: str
) -> None:
    """Record who decided to keep the effect. It is recorded only once."""
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


REFUSED = "refused"  # resolution of a wait for a child's undo if the child can't be reopened


async def ended(visit: Visit, effect: Effect) -> None:
    """Wait for a cancelled child to end. If it completed instead, reopen it to undo its effects."""
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
    """Return the child's end if it was recorded just before the undo plan, and so isn't on this visit's tape."""
    events = (await visit.look_up(visit.journal.effects())).events
    ends = (event for event in events if isinstance(event, e.ChildEnded))
    return next((end for end in ends if (end.slot, end.attempt) == (effect.slot, effect.attempt)), None)


async def reopened(visit: Visit, effect: Effect, slot: str = "") -> None:
    """Have a completed child undo its effects, and wait until it has."""
    while True:
        slot = slot or visit.next_slot()
        record = visit.tape.slot(slot)
        if record.what == "ask":  # the undo began under older code, which only asked about completed children
            await ask_about(visit, effect, "the child came to its end before it could be cancelled", Stands, slot)
            return
        what = f"undo of run {effect.run}"
        past = visit.recall(slot, what, "").now
        if isinstance(past.result, e.ChildEnded):
            return await _record_child_undo(visit, slot, effect, past.result)
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


async def _record_child_undo(visit: Visit, slot: str, effect: Effect, end: e.ChildEnded) -> None:
    """Record the end of a child's undo. If effects of the child remain, this run records the child as kept."""
    left = payload_of(end).get("left", 0)
    if left:
        await record_kept_effect(
            visit, slot, effect, f"run:{effect.run}", f"{left} of its effects remain: see the run's own page", ""
        )
    else:
        await undone(visit, slot, effect)


def turned_up(effects: Effects, plan: Plan, visit: str) -> list[Effect]:
    """Return the effects that were found since the plan was made.

    The effects are in recorded order, so that a replay of this `visit` asks about them at the same places.
    """
    return list(_News(plan, f"{visit}/").of(effects))


@dataclass(slots=True)
class _News:
    plan: Plan
    here: str
    tape: Tape = field(default_factory=Tape)
    known: set[tuple[str, int]] = field(default_factory=set)

    def of(self, effects: Effects) -> Iterator[Effect]:
        self.known = {(each.slot, each.attempt) for each in self.plan.all() if each.what != "stays"}
        for event in effects.events:
            self.tape.add(event)
            if event.slot is None or (event.slot, event.attempt) in self.known:
                continue
            why = self._own(event) if event.slot.startswith(self.here) else self._effect(event)
            if why:
                self.known.add((event.slot, event.attempt))
                tool = self.tape.slot(event.slot).what or str(getattr(event, "tool", "")) or "a call"
                yield Effect("ask", event.slot, event.attempt, tool, why=why)

    def _effect(self, event: e.Event) -> str:
        """Return why an event about an earlier effect is new information; empty if it isn't.

        It is new if the result came late, or while the plan was made.
        """
        attempt = self.tape.slot(event.slot or "").at(event.attempt)
        is_news = attempt.has_happened and isinstance(attempt.intent, e.ToolInvoked) and attempt.undo is not None
        return LATE if is_news or attempt.is_contradicted or attempt.is_called_back_late else ""

    def _own(self, event: e.Event) -> str:
        """Return a text about a late result for a call of this visit, which undoes an effect.

        Empty if it doesn't contradict the record.
        """
        if isinstance(event, e.CallbackArrivedLate):
            return "an answer that came late says that this call, which undoes an effect, happened"
        if isinstance(event, e.ToolAnsweredLate) and event.contradicts:
            return (
                f"the worker that made this call, which undoes an effect, tells that it was {event.outcome}; on "
                f"record was {event.contradicts}"
            )
        return ""


@dataclass(frozen=True, slots=True)
class Undone:
    """The outcome of a visit in which every effect was undone, or kept by a person."""


async def undo_visit(visit: Visit, plan: Plan) -> Undone | Parked | Exceeded | Stopped | Crashed | Broken:
    """Execute the plan until it ends, waits or stops. Errors stop the run for an operator and never end it."""
    broken: Broken | None = None
    try:
        await _undo_all(visit, plan)
    except Unwind:
        pass  # `visit.how_it_ended()` returns the reason
    except Exception as error:
        if is_being_cancelled():
            raise
        problem = f"undoing stopped: {type(error).__name__}: {error}"
        broken = Broken("undo_broken", {"problem": problem, "traceback": traceback.format_exc()})
    finally:
        visit.is_over = True
    return visit.how_it_ended() or broken or visit.left_out() or Undone()


async def _undo_all(visit: Visit, plan: Plan) -> None:
    for effect in plan.all():
        match effect.what:
            case "undo":
                await _undo(visit, effect)
            case "child":
                await ended(visit, effect)
            case "reopen":
                await reopened(visit, effect)
            case "ask" | "run":
                await ask_about(visit, effect, effect.why, Stands)
    question_count = 0
    while (
        len(late := turned_up(await visit.look_up(visit.journal.effects()), plan, visit.places.visit)) > question_count
    ):
        await ask_about(visit, late[question_count], late[question_count].why, Stands)
        question_count += 1


async def _undo(visit: Visit, effect: Effect) -> None:
    tool = visit.agent.tool(effect.by)
    if tool is None:
        visit.stop(Broken("unknown_tool", {"tool": effect.by, "problem": "the agent has no tool of this name"}))
    while True:
        slot = visit.next_slot()
        problem = await _tried(visit, slot, tool, effect)
        if problem is None:
            return await undone(visit, slot, effect, _compensated(effect))
        if await ask_about(visit, effect, problem, TryAgain) == "leave":
            return


async def _tried(visit: Visit, slot: str, tool: Tool, effect: Effect) -> str | None:
    """Make or replay the call that undoes an effect. Return the problem, or None."""
    why = f"undoes {effect.tool} ({effect.external_id or effect.slot})"
    try:
        await call_tool(visit, slot, CallSpec(tool, tool.input.model_validate(effect.arguments), why=why))
    except (ToolFailure, Rejected, ContentRefused, MisusedContext) as no:
        return str(printable(f"{tool.name}: {no}"))
    except ValidationError as error:
        return str(printable(f"{tool.name} does not accept the recorded data: {error}"))
    return None


def _compensated(effect: Effect) -> list[Entry]:
    """Return the ledger's entry for an undone effect of this run; empty for other runs' effects."""
    if effect.run:
        return []
    return [
        Entry(
            effect.slot,
            effect.attempt,
            "compensated",
            effect.tool,
            effect.replay_class,
            None,
            None,
            effect.external_id,
            None,
        )
    ]


def undo_summary(plan: Plan, became: dict[str, e.EffectUndone | e.EffectLeft]) -> dict[str, Any]:
    """Return the outcomes of the effects for the run's end: undone, left in place, or remaining for a reason."""
    kept = [each for each in plan.all() if each.what == "stays"]
    return {
        "undone": [_named(x) for x in became.values() if isinstance(x, e.EffectUndone)],
        "left": [
            _named(x) | {"by": x.by, "why": payload_of(x).get("problem", "")}
            for x in became.values()
            if isinstance(x, e.EffectLeft)
        ],
        "stays": [{"slot": x.slot, "tool": x.tool, "external_id": x.external_id, "why": x.why} for x in kept],
    }


def _named(event: e.EffectUndone | e.EffectLeft) -> dict[str, Any]:
    external_id = {"external_id": event.external_id} if isinstance(event, e.EffectUndone) else {}
    return {"run": event.of_run, "slot": event.of_slot, "tool": event.tool} | external_id
