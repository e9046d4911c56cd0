"""One tool call: recorded → doubt → policies → gate → permit → intend → send → record; start with `call_tool`. Other
stages are in `doubt.py`, `gates.py`, `send.py`; failures between them in docs/step-protocol.md."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine.budget import A_CALL
from runs.engine.canonical import idempotency_key
from runs.engine.errors import ApprovalMissing, MisusedContext, PoliciesChanged, ToolFailure
from runs.engine.gate.documents import Document
from runs.engine.journal import Batch, Grant, Reply
from runs.engine.outcomes import Broken, LateAnswer, Stopped, Unwind
from runs.engine.steps import doubt, forks, gates, policies, reads, sharing
from runs.engine.steps.arguments import admit
from runs.engine.steps.logical_call import OF_THE_TOOL, AskedUndo, LogicalCall, Outcome, Refusal, Settled
from runs.engine.steps.retry import attempts
from runs.engine.steps.send import come_back_later, one_try
from runs.engine.tape import payload_of
from runs.engine.tools import Evidence, Pending, Tool
from runs.engine.visit import Visit


async def call_tool(
    visit: Visit,
    slot: str,
    tool: Tool,
    args: BaseModel,
    *,
    evidence: Sequence[Evidence] = (),
    why: str = "",
    grant: Grant | None = None,
    source: str = "node",
    name: str = "",
    max_age: timedelta | None = None,
    undo: AskedUndo = OF_THE_TOOL,
    documents: Sequence[Document] = (),
) -> BaseModel:
    """Make, or replay, one logical call. Raises ToolFailure, Rejected; unwinds when the run must wait or stop."""
    if visit.agent.tool(tool.name) is not tool:  # unknown outcomes are settled through the agent's tools
        problem = f"does not declare the tool {tool.name!r}: name it in tools=[…], or in an assistant's"
        raise MisusedContext(f"{visit.agent.graph_id} {problem}")
    call = LogicalCall(visit, slot, tool, args, evidence, why, grant, max_age, undo, source, documents)
    if call.past.outcome is not None and not reads.is_too_old(call):
        return _recorded(call)
    with call.hold:
        if call.past.intent is not None:
            if (known := await doubt.resume(call, call.past.intent)) is not None:
                return known.output
        else:
            if call.record.belied is not None:
                await doubt.ask_anew(call, call.record.belied)
            await admit(call, source, name or visit.node)
            if await forks.is_stood_for(call):
                return _recorded(call)
            await policies.judge(call)
            if (hit := await reads.from_cache(call)) is not None:
                return hit
            await _intend(call, await gates.passed(call) if call.may_be_gated else None)
        # A drain waits for an unsafe call: cut off, its outcome would be unknown for good.
        with visit.control.unsafe_call() if tool.is_unsafe else nullcontext():
            outcome = await attempts(visit, partial(_try, call), call.past, partial(come_back_later, call))
            return await _record(call, outcome)


async def _try(call: LogicalCall, number: int) -> Outcome:
    if number > 1 and call.past.intent is None:  # a read: nothing else checks it against current policies
        await policies.judge(call)
        await _intend(call, await gates.passed(call) if call.may_be_gated else None)
    return await one_try(call, number)


# --- recorded: what a replay answers ----------------------------------------------------------------------------------


def _recorded(call: LogicalCall) -> BaseModel:
    tool, result = call.tool, call.past.outcome
    payload = payload_of(result)
    try:
        match result:
            case e.ToolFailed() | e.ToolReadAnew() if call.past.is_refused:
                raise call.failure(result.code, payload)
            case e.ToolRead() | e.ToolReturned() | e.CachedReadTaken() | e.ToolReadAnew() | e.AnswerTakenOver():
                return tool.output.model_validate(payload["result"])
            case e.CallbackReceived():
                return call.from_callback(result)
            case e.ToolReconciled() if "result" in payload:
                return tool.output.model_validate(payload["result"])
            case e.ToolReconciled():
                return tool.output_from_receipt(call.args, payload.get("receipt"))
            case _:
                call.visit.stop(Broken("unexpected_record", {"slot": call.slot, "found": type(result).__name__}))
    except (ValidationError, ValueError, KeyError) as error:
        problem = f"the recorded result does not fit the tool's output: {error}"
        call.visit.stop(Broken("recorded_result", {"slot": call.slot, "tool": tool.name, "problem": problem}))


# --- intend: TX1 ------------------------------------------------------------------------------------------------------


async def _intend(call: LogicalCall, grant: tuple[str, str] | None) -> None:
    """Record what is about to be sent, so that a repeat sends the same bytes. A read needs no record."""
    visit, tool = call.visit, call.tool
    await call.enter()
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)
    if tool.is_pure and grant is None:
        visit.check_stop()
        if not visit.meter.counts_reads:  # otherwise the pool is asked first
            return
    if not tool.is_unsafe and not tool.is_pure:
        call.key = idempotency_key(visit.run_id, call.slot, call.attempt)
    wait = None
    stored: dict[str, Any] = {"arguments": call.arguments, "key": call.key} | call.marks
    if tool.key_ttl is not None:
        call.intended_at = visit.journal.now()
        stored["intended_at"] = call.intended_at.isoformat()
    if tool.answers_later:
        call.token = stored["callback_token"] = secrets.token_urlsafe(32)
        stored["callback_base"] = call.callback_base
        detail = {"tool": tool.name, "title": tool.title}
        wait = call.wait("webhook", 0, detail=detail, within=timedelta(days=14), token=call.token)
    event = e.ToolInvoked(
        slot=call.slot,
        attempt=call.attempt,
        payload=stored,
        tool=tool.name,
        replay_class=str(tool.replay_class),
        requested_hash=call.requested_hash,
        executed_hash=call.executed_hash,
        grant=grant[0] if grant else None,
    )
    events = [event, *policies.told(call), *call.registered(), *([] if wait is None else [wait.opened()])]
    entries = [] if tool.is_pure else [call.intent().entry("pending")]
    try:
        await sharing.begin(visit, Batch(events, entries, wait, grant=grant, is_intent=True))
    except PoliciesChanged:
        await policies.judge(call, anew=True)
        return await _intend(call, await gates.passed(call) if call.may_be_gated else None)
    except ApprovalMissing as error:
        await gates.not_granted(call, grant, error)
    call.past.intent, call.cleared_at = event, sharing.now()


# --- record: TX2 ------------------------------------------------------------------------------------------------------


async def _record(call: LogicalCall, outcome: Outcome) -> BaseModel:
    if isinstance(outcome, Settled):
        return outcome.output
    if isinstance(outcome, Pending):
        await _accepted(call, outcome)
    if isinstance(outcome, Refusal):
        await _refused(call, outcome)
    tool, result, external_id = call.tool, outcome.result, call.tool.external_id_of(outcome.result)
    if call.past.intent is None:
        events = [reads.told(call, result), *policies.told(call)]
    else:
        events = [
            e.ToolReturned(
                slot=call.slot,
                attempt=call.attempt,
                tool=tool.name,
                external_id=external_id,
                payload={"result": result},
            )
        ]
    entries = call.booked("committed", result, external_id=external_id)
    reply = await _commit(call, Batch(events, entries, usage=A_CALL), call.late(result=result, external_id=external_id))
    reads.keep(call, result)
    call.visit.runtime.hit("CP6", tool.name)
    call.visit.boundary(reply)
    return outcome.output


async def _accepted(call: LogicalCall, answer: Pending) -> NoReturn:
    """Wait for upstream's callback, or continue if it came already."""
    wait = call.wait("webhook", call.past.last_wait("webhook")[0], within=answer.within)
    payload = {"receipt": answer.receipt, "deadline": wait.deadline.isoformat()}
    event = e.ToolAccepted(slot=call.slot, attempt=call.attempt, tool=call.tool.name, payload=payload)
    reply = await _commit(call, Batch([event], wait=wait, usage=A_CALL), call.late(accepted=payload))
    call.visit.boundary(reply)
    call.visit.park(wait)


async def _refused(call: LogicalCall, no: Refusal) -> NoReturn:
    payload = {"message": no.message, "details": no.details, "arguments": call.arguments}
    batch = Batch([call.failed(no.code, payload)], call.booked("failed", payload), usage=A_CALL)
    call.visit.boundary(await _commit(call, batch, call.late(failure=payload | {"code": no.code})))
    raise ToolFailure(call.tool.name, no.code, no.message, no.details)


async def _commit(call: LogicalCall, batch: Batch, late: LateAnswer) -> Reply:
    """Commit an outcome, or hand it in as a late result if that fails: it may settle what the run's new worker
    doesn't know, or spare a person the question. If another answer came first, that counts."""
    visit = call.visit
    try:
        reply = await visit.commit(batch)
    except Unwind:
        is_asked_about = visit.is_torn and not doubt.may_repeat(call.tool.replay_class, is_key_spent=call.is_key_spent)
        if call.is_booked and (visit.has_lost_lease or is_asked_about):
            visit.runtime.hand_in(late)
        raise
    if not reply.is_done:
        visit.runtime.hand_in(late)
        visit.stop(Stopped("overtaken"))
    return reply
