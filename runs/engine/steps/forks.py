"""Decides whether a call of a fork is answered from the record, so that nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger import events as e
from runs.engine.canonical import printable
from runs.engine.errors import Expired, Rejected
from runs.engine.forks import DID_NOT, HAPPENED, OPEN, Evidence, Fork, Place
from runs.engine.gate import check_recipient_exists
from runs.engine.guards import Guard
from runs.engine.journal import ATTENTION, Batch, WaitSpec
from runs.engine.logical_call import LogicalCall
from runs.engine.outcomes import Broken
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import Tool
from runs.engine.undo import UNDO_NODE
from runs.engine.visit import Visit

ASK_STEP = "operator"  # the role that is asked
AGAIN, ON_RECORD, NO = "do_it_again", "take_what_is_on_record", "no"
_MAX_SHOWN = 20  # maximum number of the origin's effects that are listed
_MAX_CHARACTERS = 1000  # maximum characters of arguments that are shown
# An extra field of the answer if an effect of the origin is unknown: see durableagents/contrib/forks.
SENDER_IS_GONE: Mapping[str, Any] = {
    "type": "boolean",
    "default": False,
    "title": "Its sender is gone",
    "description": "Needed for do_it_again where a worker that sent it was given up without proof: attests that "
    "nothing of that worker runs any more.",
}


class Decision(BaseModel):
    """A person's decision on one call of a fork."""

    model_config = ConfigDict(extra="forbid")
    decision: Literal["do_it_again", "take_what_is_on_record", "no"] = Field(
        description="do_it_again: this call goes out; take_what_is_on_record: nothing is sent, the call is answered "
        "with what came of it in the original run; no: the call is refused."
    )


class DecisionWithoutRecord(BaseModel):
    """A person's decision on a call of a fork that the original run did not make."""

    model_config = ConfigDict(extra="forbid")
    decision: Literal["do_it_again", "no"] = Field(
        description="do_it_again: this call goes out; no: the call is refused. "
        "What the original run did was another call, so it can't stand for this one."
    )


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that is about to be sent. `fits` raises ValueError for a result that doesn't fit."""

    slot: str
    attempt: int
    record: Slot
    tool: str
    title: str
    arguments: Any
    requested_hash: str
    executed_hash: str
    fits: Callable[[Any], Any]
    what: str = ""  # the journal's name for this kind of call; empty if it is the tool's name


async def passed(visit: Visit, pending_call: PendingCall) -> e.AnswerTakenOver | None:
    """Return the recorded answer to use; None if the call must be made. Parks until decided; raises Rejected."""
    _must_not_be_refused(pending_call.record)
    fork = visit.fork
    if fork is None or visit.node == UNDO_NODE:
        return None  # an undo concerns this run's own effect, which can't be replaced by that of another run
    if not fork.fences(pending_call.tool) and not fork.is_beyond(tool.name for tool in visit.agent.all_tools()):
        return None
    fork.undone.update(await visit.look_up(visit.journal.undone({x.place for x in fork.of(pending_call.tool)})))
    taken_over = await visit.look_up(visit.journal.taken_over())
    taken = {
        *fork.taken,
        *map(_place, taken_over),
    }  # checked after the query, during which another branch may take an effect
    same = _fitting(fork, pending_call, taken)
    if same is not None and same.counts_as == HAPPENED:
        return await _take(visit, fork, pending_call, same, how="audit", by=same.by)
    question = _question(visit, fork, pending_call, same, taken)
    decision = _decision_on(pending_call.record, visit.runtime.hasher(question))
    if decision is None:
        await _ask(visit, pending_call, question, same)
    match payload_of(decision).get("answer", {}).get("decision"):
        case "do_it_again":
            return None
        case "take_what_is_on_record" if same is not None:
            return await _take(visit, fork, pending_call, same, how="consent", by=decision.by)
        case other:
            problem = f"the answer at {pending_call.slot} says {other!r}, which was no choice"
            visit.stop(
                Broken("bad_consent", {"slot": pending_call.slot, "tool": pending_call.tool, "problem": problem})
            )


def _must_not_be_refused(record: Slot) -> None:
    """Raise Rejected if the call was denied or expired. A denial is final, because the node has continued from it."""
    for item in (x.answers[n] for x in record.attempts.values() for n in sorted(x.consents.keys() & x.answers.keys())):
        if payload_of(item).get("answer", {}).get("decision") == NO:
            reason = payload_of(item).get("justification") or "the original run did it already"
            raise Rejected(ASK_STEP, reason, item.by, "rejected")
    n, resolution = record.now.last_wait("input")
    if n in record.now.consents and resolution == "timed_out":
        raise Expired(ASK_STEP, "nobody said before the deadline that it may be done again", "system", "expired")


def _place(event: e.AnswerTakenOver) -> Place:
    return event.of_run, event.of_slot, event.of_attempt


def _fitting(fork: Fork, pending_call: PendingCall, taken: set[Place]) -> Evidence | None:
    same = fork.same(
        pending_call.tool, pending_call.requested_hash, pending_call.executed_hash, pending_call.slot, taken
    )
    if same is None:
        return None
    try:
        pending_call.fits(same.result)
    except (ValidationError, ValueError):
        return None
    return same


def _decision_on(record: Slot, binds: str) -> e.InputAnswered | None:
    """Return a person's decision on exactly this question.

    The decision also covers further attempts, which follow attempts without effect.
    """
    for _, attempt in sorted(record.attempts.items(), reverse=True):
        for n, bound in sorted(attempt.consents.items(), reverse=True):
            if bound == binds and n in attempt.answers:
                return attempt.answers[n]
    return None


def _question(
    visit: Visit, fork: Fork, pending_call: PendingCall, same: Evidence | None, taken: set[Place]
) -> dict[str, Any]:
    """Return everything that a decision covers: the call, its arguments, and the origin's known effects."""
    return {
        "run_id": visit.run_id,
        "slot": pending_call.slot,
        "tool": pending_call.tool,
        "arguments": pending_call.arguments,
        "origin": fork.told.origin,
        "same": None if same is None else list(same.place),
        "done": [[*x.place, x.outcome] for x in fork.of(pending_call.tool)],
    }


async def _ask(visit: Visit, pending_call: PendingCall, question: dict[str, Any], same: Evidence | None) -> NoReturn:
    fork, past = visit.fork, pending_call.record.at(pending_call.attempt)
    assert fork is not None
    n, resolution = past.last_wait("input")
    n += 1 if past.waits_of("input") and resolution is not None else 0
    schema = (DecisionWithoutRecord if same is None else Decision).model_json_schema()
    if any(x.outcome == OPEN and x.counts_as != DID_NOT for x in fork.effects):
        schema["properties"]["sender_is_gone"] = dict(SENDER_IS_GONE)
    detail = {
        "title": printable(f"{pending_call.title}: do it again?"),
        "of": ASK_STEP,
        "prefilled": {},
        "schema": schema,
        "binds": visit.runtime.hasher(question),
        "about": printable(_question_detail(fork, pending_call, same)),
    }
    within = visit.journal.now() + ATTENTION
    wait = WaitSpec(visit.run_id, pending_call.slot, pending_call.attempt, "input", n, within, detail)
    if ("input", n) not in past.waits:
        await check_recipient_exists(visit, pending_call.slot, ASK_STEP, visit.runtime.people, "queues and roles")
        fields = {"call": pending_call.what or pending_call.tool, "hash": pending_call.requested_hash, **detail}
        await visit.commit(Batch([wait.opened(fields)], wait=wait))
    visit.park(wait)


def _question_detail(fork: Fork, pending_call: PendingCall, same: Evidence | None) -> str:
    done = fork.of(pending_call.tool)
    about = f"It is about to call {pending_call.tool} with {_short(pending_call.arguments)}."
    lines = [f"This run is a fork of {fork.told.origin}. {about}"]
    if fork.told.fences_all:
        lines.append("Nobody can say that all of what that run did, or will do, is listed.")
    if not done:
        lines.append("Nothing is on record there of this tool.")
    for each in done[:_MAX_SHOWN]:
        known = f", {each.external_id}" if each.external_id else ""
        remark = {"open": ", and nobody knows what came of it", "undone": ", and undid it"}.get(each.outcome, "")
        ours = " This is the same call." if same is not None and each.place == same.place else ""
        row = "" if each.is_verified else " Told by a row alone: its event can't be read."
        when = f"{each.at[:19].replace('T', ' ')} UTC" if each.at else "an unknown time"
        lines.append(f"At {when} it called {each.tool} with {_short(each.arguments)}{known}{remark}.{ours}{row}")
    if len(done) > _MAX_SHOWN:
        lines.append(f"And {len(done) - _MAX_SHOWN} more.")
    return " ".join(lines)


def _short(arguments: Any) -> str:
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


async def _take(
    visit: Visit, fork: Fork, pending_call: PendingCall, same: Evidence, *, how: str, by: str
) -> e.AnswerTakenOver:
    """Record that nothing is sent, and the answer that is used instead."""
    event = e.AnswerTakenOver(
        slot=pending_call.slot,
        attempt=pending_call.attempt,
        tool=pending_call.what or pending_call.tool,
        requested_hash=pending_call.requested_hash,
        of_run=same.run,
        of_slot=same.slot,
        of_attempt=same.attempt,
        how=how,
        by=by,
        external_id=same.external_id,
        payload={"arguments": pending_call.arguments, "result": same.result},
    )
    fork.taken.add(same.place)  # set before the write, so that no other branch takes the same effect
    visit.runtime.hit("CP4", pending_call.tool)
    reply = await visit.commit(Batch([event]))
    visit.runtime.hit("CP6", pending_call.tool)
    pending_call.record.at(pending_call.attempt).result = event
    visit.boundary(reply)
    return event


class ForkFence(Guard):
    """Prevents a fork from repeating effects of its origin.

    It asks a person, or answers the call with the recorded effect.
    """

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return visit.fork is not None and not tool.is_pure

    async def before_intent(self, call: LogicalCall) -> BaseModel | None:
        """Return the output of the origin's effect if it replaces the call. Parks until decided; raises Rejected."""
        tool = call.tool
        if tool.is_pure:
            return None
        pending_call = PendingCall(
            slot=call.slot,
            attempt=call.attempt,
            record=call.record,
            tool=tool.name,
            title=tool.title,
            arguments=call.arguments,
            requested_hash=call.requested_hash,
            executed_hash=call.executed_hash,
            fits=tool.output.model_validate,
        )
        event = await passed(call.visit, pending_call)
        return None if event is None else tool.output.model_validate(payload_of(event)["result"])


FORK_FENCE = ForkFence()
