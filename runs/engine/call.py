"""One tool call, from what is on record of it to what is recorded of it; start with `call_tool`.

    recorded? → unknown outcome? → guards → gate → intend (TX1) → send, with retries → record (TX2)

The guards are features (see guards.py), the gate is in gate.py, unknown outcomes are in unknown.py. CP1 to CP6
are the points at which a process may die: see docs/step-protocol.md.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine import gate, unknown
from runs.engine.budget import A_CALL
from runs.engine.canonical import TooLarge, idempotency_key, plain, printable
from runs.engine.errors import (
    ApprovalMissing,
    BadAnswer,
    BusinessFailure,
    KeyRejected,
    MisusedContext,
    NotBegun,
    NotSent,
    Passing,
    PoliciesChanged,
    PoolShort,
    PoolUnpriced,
    ToolFailure,
    TransportError,
    brief,
    traceback_of,
)
from runs.engine.journal import Batch, Reply
from runs.engine.logical_call import OF_THE_TOOL, CallSpec, LogicalCall, Outcome, Refusal, Settled
from runs.engine.outcomes import Broken, Crashed, LateAnswer, Stopped, Unwind
from runs.engine.runtime import is_being_cancelled, without_exit
from runs.engine.steps import pools, reads
from runs.engine.steps.retry import attempts, park_for_retry
from runs.engine.tape import payload_of
from runs.engine.tools import FOR_DISPATCH, Answer, Pending
from runs.engine.visit import Visit

# Tries covered by one announcement: about one round in place. See docs/decisions/0002.
BURST = 16


async def call_tool(visit: Visit, slot: str, spec: CallSpec) -> BaseModel:
    """Make, or replay, one logical call. Raises ToolFailure, Rejected; unwinds when the run must wait or stop."""
    tool = spec.tool
    agent = visit.agent
    # Unknown outcomes are settled through the agent's tools. One that was added later is not among those kept.
    if agent.tools_by_name.get(tool.name) is not tool and agent.tool(tool.name) is not tool:
        problem = f"does not declare the tool {tool.name!r}: name it in tools=[…], or in an assistant's"
        raise MisusedContext(f"{agent.graph_id} {problem}")
    call = LogicalCall(visit, slot, spec)
    if not call.is_new and call.past.outcome is not None and not reads.is_too_old(call):
        return _recorded(call)
    try:
        if call.past.intent is not None:
            if (known := await unknown.resume(call, call.past.intent)) is not None:
                return known.output
        elif (output := await _begin(call)) is not None:
            return output
        # A drain waits for an unsafe call: cut off, its outcome would be unknown for good.
        with visit.control.unsafe_call() if tool.is_unsafe else nullcontext():
            return await _record(call, await _send(call))
    finally:
        for guard in call.guards:
            guard.leave(call)


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


# --- guards, gate, and the intent (TX1) -------------------------------------------------------------------------------


async def _begin(call: LogicalCall) -> BaseModel | None:
    """Bring a call up to its intent. Return an output if a guard answered it; raises what a guard or people refuse."""
    if call.attempt > 0 and (earlier := call.record.belied) is not None:
        await unknown.ask_anew(call, earlier)
    for guard in call.guards:
        if (output := await guard.before_intent(call)) is not None:
            return output
    return await _intend(call, await gate.obtain_grant(call) if call.may_be_gated else None)


async def _intend(call: LogicalCall, grant: tuple[str, str] | None) -> BaseModel | None:
    """Record what is about to be sent, so that a repeat sends the same bytes. A read needs no record. Returns an output
    if a guard answered the call after policies changed. What refuses the intent never returns: it parks or stops."""
    visit, tool = call.visit, call.tool
    if call.past.waits:
        call.park_on_timer()
    for guard in call.guards:
        await guard.before_try(call)
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)
    if tool.is_pure and grant is None:
        visit.check_stop()
        if not visit.meter.counts_reads:  # otherwise the pool is asked first
            return None
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
    events: list[e.Event] = [event, *(call.facts() if call.guards else ())]
    if tool.undo is not None or call.spec.undo is not OF_THE_TOOL:
        events += call.registered()
    if wait is not None:
        events.append(wait.opened())
    entries = [] if tool.is_pure else [call.intent().entry("pending")]
    try:
        if call.past.waits:
            pools.park_if_waiting(visit, call.slot, call.attempt)
        await visit.commit(Batch(events, entries, wait, grant=grant, is_intent=True))
    except (PoolShort, PoolUnpriced) as error:
        await pools.wait_for_room(visit, call.slot, call.attempt, error, **call.identity)
    except PoliciesChanged:
        call.guards, call.must_look_anew = visit.runtime.guards, True
        return await _begin(call)
    except ApprovalMissing as error:
        await gate.not_granted(call, grant, error)
    call.past.intent, call.cleared_at = event, time.monotonic()
    return None


# --- send, with retries -----------------------------------------------------------------------------------------------


async def _send(call: LogicalCall) -> Outcome:
    """Send the call until its outcome is known. Parks during an outage; raises what ends the visit. Only repeats go
    through the loop of retries: the guards were asked just now."""
    began = time.monotonic()
    try:
        return await _try(call, 1)
    except (Passing, TimeoutError) as error:
        trouble = error
    again = partial(_try_again, call)
    return await attempts(call.visit, again, call.past, partial(_come_back_later, call), began=began, trouble=trouble)


async def _try_again(call: LogicalCall, number: int) -> Outcome:
    call.guards = call.visit.runtime.guards  # more of them may be in force by now
    # A read has no intent: nothing else checks it against what is in force now.
    if call.past.intent is None and (output := await _begin(call)) is not None:
        return Settled(output)
    return await _try(call, number)


async def _try(call: LogicalCall, number: int) -> Outcome:
    """Make one try and return its outcome in recordable form. The error raised tells whether anything may have been
    sent."""
    is_repeat = number > 1 or call.is_resumed
    if is_repeat and (known := await _repeatable(call, number)) is not None:
        return known
    tool = call.tool
    try:
        return _recordable(call, await _perform(call))
    except NotSent as error:
        if tool.is_unsafe:
            await _not_sent(call, error)
        raise
    except KeyRejected as error:
        if tool.is_pure:
            await _bug(call, error)
        return await unknown.rejected(call, error)
    except (TransportError, TimeoutError) as error:
        is_sender_done = not isinstance(error, TimeoutError) or tool.is_async
        if tool.is_unsafe or await unknown.is_distrusted(call):
            known = await unknown.lost_answer(call, traceback_of(error), is_sender_done=is_sender_done)
            if known is not None:
                return known
        call.lingers |= not is_sender_done
        raise
    except (Exception, asyncio.CancelledError) as bug:
        if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
            raise
        await _bug(call, bug)


async def _repeatable(call: LogicalCall, number: int) -> Settled | None:
    """Make sure that the call may be sent again, and announce it; return upstream's answer if it was asked and knew."""
    call.park_on_timer()
    for guard in call.guards:
        await guard.before_try(call)
    if call.past.intent is None:
        return None
    is_sender_done = number > 1 and not call.lingers
    call.must_look_anew = number == 1
    for guard in call.guards:
        await guard.before_repeat(call, is_sender_done=is_sender_done)
    is_distrust = number == 1 and await unknown.is_distrusted(call)  # discovered after it was sent
    while True:  # until a repeat is announced while its key protects, even after a slow commit
        is_doubtful = call.is_key_spent or is_distrust
        if is_doubtful and (known := await unknown.find_out(call, is_sender_done=is_sender_done)) is not None:
            return known
        is_distrust = False
        await _announce(call)
        if not call.is_key_spent:
            return None


async def _announce(call: LogicalCall) -> None:
    """Record that a repeat may be sent, and check that it still may; unwinds if not. One event announces up to `BURST`
    tries of this claim; the later ones are only checked. A change of policies needs another event, and so does each
    try of an unsafe call, as it may follow a proof that the one before was not sent."""
    visit = call.visit
    if call.announced > 0:
        judged = None if call.judged is None else call.judged.revision
        try:
            await visit.check_repeat(call.slot, call.attempt, call.limit_key, judged=judged)
        except PoliciesChanged:
            call.announced = 0
    if call.announced == 0:
        call.announced = 1 if call.tool.is_unsafe else BURST
        call.past.resends += 1
        event = e.ToolRedispatched(
            slot=call.slot, attempt=call.attempt, tool=call.tool.name, n=call.past.resends, tries=call.announced
        )
        while True:
            try:
                await visit.commit(Batch([event, *call.facts()], is_intent=True))
                break
            except PoliciesChanged:
                call.must_look_anew = True
                for guard in call.guards:
                    await guard.before_repeat(call, is_sender_done=not call.is_resumed and not call.lingers)
    call.announced -= 1
    call.cleared_at = time.monotonic()


async def _perform(call: LogicalCall) -> Any:
    """Run the tool's function, in a thread if it blocks; the timeout includes the wait for a thread. Raises the
    function's errors, TimeoutError, and NotSent if nothing can have been sent."""
    runtime, tool, tool_call = call.visit.runtime, call.tool, call.tool_call()
    runtime.hit("CP2", tool.name)
    if runtime.is_fenced():
        # Others may count this worker as dead. Nothing was sent, and that is recorded if the run is still ours.
        raise NotBegun("this worker lost its place in the fleet between the intent and the call: not sent")
    if await call.visit.is_held_back(call.limit_key, call.cleared_at):
        await _hold_back(call)
    function = tool.opened(FOR_DISPATCH)
    call.was_sent, call.abandoned, failure = True, None, None
    try:
        with call.visit.control.sending(call.slot, call.limit_key, tool.timeout):
            if tool.is_async:
                async with asyncio.timeout(tool.timeout):
                    answer = await without_exit(function(call.args, tool_call))
            else:
                turn = _Turn(lambda: function(call.args, tool_call))
                answer = await without_exit(_in_thread(turn, call))
    except BusinessFailure as no:
        return no
    except BaseException as error:
        failure = error
        raise
    finally:
        for guard in call.guards:
            guard.after_try(call, failure)
    if not isinstance(answer, BusinessFailure):
        runtime.hit("CP4", tool.name)
    return answer


async def _hold_back(call: LogicalCall) -> NoReturn:
    """Stop because of a halt since the intent; what was not sent is recorded as such."""
    is_first = not call.was_sent and not call.is_resumed
    if call.is_booked and (call.tool.is_unsafe or is_first):
        await _not_sent(call, NotSent("it was halted between the intent and the call"))
    call.visit.hold_back(call.limit_key)


async def _in_thread(turn: _Turn, call: LogicalCall) -> Any:
    """Run a blocking call in a thread of its tool. Raises NotBegun if no thread is free in time."""
    tool, threads = call.tool, call.visit.runtime.threads
    if threads.is_exhausted(tool.name):
        raise NotBegun(threads.why_none(tool.name))
    try:
        async with asyncio.timeout(tool.timeout):
            return await asyncio.get_running_loop().run_in_executor(
                threads.of(tool.name), threads.count, tool.name, turn.take
            )
    except TimeoutError as error:
        if turn.withdraw():
            raise NotBegun(threads.why_none(tool.name)) from error
        _abandon(turn, call)
        raise
    except asyncio.CancelledError:
        if not turn.withdraw():  # a call that no run waits for must not begin later
            _abandon(turn, call)
        raise


def _abandon(turn: _Turn, call: LogicalCall) -> None:
    """Stop waiting for a running function. Its thread is freed when it ends; guards learn it by `call.abandoned`."""
    call.abandoned = turn.when_over
    call.visit.runtime.threads.abandon(call.tool.name, turn.when_over)


class _Turn:
    """A blocking call queued for a thread. Withdrawn before it begins, it provably sends nothing."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._lock = work, threading.Lock()
        self._has_begun = self._is_withdrawn = self._is_over = False
        self._then: list[Callable[[], None]] = []

    def take(self) -> Any:
        """Do the work in the thread, unless it was withdrawn."""
        with self._lock:
            if self._is_withdrawn:
                return None
            self._has_begun = True
        try:
            return self._work()
        finally:
            with self._lock:
                self._is_over = True
            for then in self._then:
                then()

    def when_over(self, then: Callable[[], None]) -> None:
        """Call `then` once the work has ended, or now if it has."""
        with self._lock:
            if not self._is_over:
                self._then.append(then)
                return
        then()

    def withdraw(self) -> bool:
        """Keep the work from beginning. Returns False if it has begun already."""
        with self._lock:
            self._is_withdrawn = True
            return not self._has_begun


def _recordable(call: LogicalCall, answer: Any) -> Answer | Pending | Refusal:
    """Return a try's result in recordable form. Raises BadAnswer if there is none."""
    tool = call.tool
    if isinstance(answer, KeyRejected):
        raise answer
    if isinstance(answer, BusinessFailure):
        return Refusal(printable(answer.code), printable(answer.message), _plain(call, answer.details))
    if not tool.answers_later:
        return tool.checked(answer)
    if not isinstance(answer, Pending):
        raise BadAnswer(f"{tool.name} answers later, so it has to return Pending, not {type(answer).__name__}")
    return Pending(_plain(call, answer.receipt), answer.within)


def _plain(call: LogicalCall, value: Any) -> Any:
    try:
        return plain(value)
    except ValueError as error:
        raise BadAnswer(f"what {call.tool.name} said besides its result: {error}") from error


async def _not_sent(call: LogicalCall, error: NotSent) -> None:
    """Record the proof, so that a crash from here on leaves no unknown outcome."""
    call.past.not_sents += 1
    payload = {"error": printable(error.message)}
    event = e.ToolNotDispatched(
        slot=call.slot, attempt=call.attempt, tool=call.tool.name, n=call.past.not_sents, payload=payload
    )
    call.visit.boundary(await call.visit.commit(Batch([event])))


async def _bug(call: LogicalCall, bug: BaseException) -> NoReturn:
    """Handle an error in the tool's code: an unsafe call's outcome is unknown, others fail the run."""
    if call.tool.is_unsafe:
        await unknown.ask_person(call, traceback_of(bug), is_sender_done=not call.lingers)
    if isinstance(bug.__cause__, TooLarge) and call.is_booked:
        # It was done, and each repeat would get the same answer: only a person can say what to keep of it.
        digest = bug.__cause__.digest
        why = (
            f"it answered, and the answer can't be put on record ({bug}); its digest is {digest}: settle with a receipt"
        )
        await unknown.ask_person(call, why, is_sender_done=not call.lingers)
    code = "tool_result" if isinstance(bug, BadAnswer) else "tool_error"
    call.visit.stop(Crashed(code, f"{call.tool.name}: {brief(bug)}", traceback_of(bug)))


async def _come_back_later(call: LogicalCall, trouble: Exception) -> NoReturn:
    """Park during an outage; the same key and bytes are sent after the timer."""
    tool = call.tool
    await park_for_retry(
        call.visit,
        call.slot,
        call.past,
        trouble,
        attempt=call.attempt,
        tool=tool.name,
        title=tool.title,
        call=call.identity,
    )


# --- record: TX2 ------------------------------------------------------------------------------------------------------


async def _record(call: LogicalCall, outcome: Outcome) -> BaseModel:
    if isinstance(outcome, Settled):
        return outcome.output
    if isinstance(outcome, Pending):
        await _accepted(call, outcome)
    if isinstance(outcome, Refusal):
        await _refused(call, outcome)
    tool, result = call.tool, outcome.result
    external_id = tool.external_id_of(result) if tool.external_id else None
    if call.past.intent is None:
        events = [reads.told(call, result), *call.facts()]
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
    reply = await _commit(call, Batch(events, entries, usage=A_CALL), result=result, external_id=external_id)
    for guard in call.guards:
        guard.after_record(call, result)
    call.visit.runtime.hit("CP6", tool.name)
    call.visit.boundary(reply)
    return outcome.output


async def _accepted(call: LogicalCall, answer: Pending) -> NoReturn:
    """Wait for upstream's callback, or continue if it came already."""
    wait = call.wait("webhook", call.past.last_wait("webhook")[0], within=answer.within)
    payload = {"receipt": answer.receipt, "deadline": wait.deadline.isoformat()}
    event = e.ToolAccepted(slot=call.slot, attempt=call.attempt, tool=call.tool.name, payload=payload)
    reply = await _commit(call, Batch([event], wait=wait, usage=A_CALL), accepted=payload)
    call.visit.boundary(reply)
    call.visit.park(wait)


async def _refused(call: LogicalCall, no: Refusal) -> NoReturn:
    payload = {"message": no.message, "details": no.details, "arguments": call.arguments}
    batch = Batch([call.failed(no.code, payload)], call.booked("failed", payload), usage=A_CALL)
    call.visit.boundary(await _commit(call, batch, failure=payload | {"code": no.code}))
    raise ToolFailure(call.tool.name, no.code, no.message, no.details)


async def _commit(call: LogicalCall, batch: Batch, **outcome: Any) -> Reply:
    """Commit an outcome, or hand it in as a late result if that fails: it may settle what the run's new worker
    doesn't know, or spare a person the question. If another answer came first, that counts."""
    visit = call.visit
    try:
        reply = await visit.commit(batch)
    except Unwind:
        spent = call.is_key_spent
        is_asked_about = visit.is_torn and not unknown.may_repeat(call.tool.replay_class, is_key_spent=spent)
        if call.is_booked and (visit.has_lost_lease or is_asked_about):
            _hand_in(call, outcome)
        raise
    if not reply.is_done:
        _hand_in(call, outcome)
        visit.stop(Stopped("overtaken"))
    return reply


def _hand_in(call: LogicalCall, outcome: dict[str, Any]) -> None:
    visit = call.visit
    visit.runtime.hand_in(LateAnswer(visit.run_id, call.slot, call.attempt, call.tool.name, **outcome))
