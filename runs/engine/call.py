"""Make or replay one tool call; start with `call_tool`.

    recorded? → unknown outcome? → guards → gate → intend (TX1) → send, with retries → record (TX2)

*Intent*: it is committed before the first send. A read has an intent only if it uses a grant or counts against a shared
budget. If an attempt's intent is already recorded, no second one is written. *Repeats*: these calls may be sent again:
reads; keyed calls while their key is valid, unless the upstream system is known to ignore keys or lacks a required
certificate; any call after proof that nothing was sent; an unsafe call after its reconcile hook says that it did not
happen. Each repeat of a call with an intent is recorded, or checked against the database, before it is sent. *Settled
by a person*: an unsafe call, an expired or rejected key, or a distrusted upstream, if the hook doesn't know the
outcome; a call that a stricter policy no longer allows to be repeated; an answer that can't be recorded; an error in an
unsafe tool's code; a late result that contradicts a verdict.

Features take part as guards (guards.py). The gate is in gate.py, unknown outcomes are in unknown.py. CP1 to CP6 are the
points at which a process may die: see docs/explanation/step-protocol.md.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from pydantic import BaseModel

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
    SharedBudgetShort,
    SharedBudgetUnpriced,
    ToolFailure,
    TransportError,
    describe_error,
    traceback_of,
)
from runs.engine.journal import Batch, Reply
from runs.engine.logical_call import OF_THE_TOOL, CallSpec, LogicalCall, Outcome, Refusal, Settled
from runs.engine.outcomes import Broken, Crashed, LateAnswer, Stopped, Unwind
from runs.engine.runtime import Runtime, is_being_cancelled, without_exit
from runs.engine.secrets import scrubbed, with_secrets
from runs.engine.steps import reads, shared_budgets
from runs.engine.steps.retry import park_for_retry, try_until_answered
from runs.engine.tape import payload_of
from runs.engine.tools import FOR_DISPATCH, Answer, Pending, ToolCall
from runs.engine.visit import Visit

# Number of tries covered by one ToolRedispatched: about one round of retries.
BURST = 16
# By then, other workers may treat this one as dead.
FENCED = "this worker lost its registration between the intent and the call: not sent"


async def call_tool(visit: Visit, slot: str, spec: CallSpec) -> BaseModel:
    """Make or replay one logical call and return its output.

    Raises ToolFailure, Rejected, ContentRefused and MisusedContext; exits by an internal exception when the run must
    wait or stop.
    """
    tool = spec.tool
    agent = visit.agent
    # An unknown outcome can only be settled later if the tool is declared. `tool()` also finds tools that were added
    # after `tools_by_name` was cached.
    if agent.tools_by_name.get(tool.name) is not tool and agent.tool(tool.name) is not tool:
        problem = f"does not declare the tool {tool.name!r}: add it to tools=[…] of the agent or of an assistant"
        raise MisusedContext(f"{agent.graph_id} {problem}")
    call = LogicalCall(visit, slot, spec)
    if not call.is_new and call.past.outcome is not None and not reads.is_too_old(call):
        return _replayed(call)
    try:
        if call.past.intent is not None:
            if (known := await unknown.resume(call, call.past.intent)) is not None:
                return known.output
        elif (output := await _begin(call)) is not None:
            return output
        # A drain waits for an unsafe call: if the call were cut off, its outcome would remain unknown.
        with visit.control.unsafe_call() if tool.is_unsafe else nullcontext():
            return await _record(call, await _send(call))
    finally:
        for guard in call.guards:
            guard.leave(call)


# --- recorded: what a replay answers ----------------------------------------------------------------------------------


def _replayed(call: LogicalCall) -> BaseModel:
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
    except (ValueError, KeyError) as error:
        problem = f"the recorded result does not fit the tool's output: {error}"
        call.visit.stop(Broken("recorded_result", {"slot": call.slot, "tool": tool.name, "problem": problem}))


# --- guards, gate, and the intent (TX1) -------------------------------------------------------------------------------


async def _begin(call: LogicalCall) -> BaseModel | None:
    """Run guards and gate, then write the intent. Return a guard's answer, or None to send the call.

    Raises the refusal of a guard or person.
    """
    if call.attempt > 0 and (earlier := call.record.contradicted) is not None:
        await unknown.reopen_settlement(call, earlier)
    for guard in call.guards:
        if (output := await guard.before_intent(call)) is not None:
            return output
    return await _intend(call, await gate.obtain_grant(call) if call.may_be_gated else None)


async def _intend(call: LogicalCall, grant: tuple[str, str] | None) -> BaseModel | None:
    """Commit the intent (TX1) with the exact bytes to send.

    A read needs no intent unless it uses a grant or counts against a shared budget. Returns an output if policies
    changed meanwhile and a guard then answered the call. If the intent is refused, the run parks or stops.
    """
    visit, tool = call.visit, call.tool
    if call.past.waits:
        call.park_on_timer()
    for guard in call.guards:
        await guard.before_try(call)
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)
    if tool.is_pure and grant is None:
        visit.check_stop()
        if not visit.meter.counts_reads:  # a shared budget that counts reads does so in TX1
            return None
    if not tool.is_unsafe and not tool.is_pure:
        call.key = idempotency_key(visit.run_id, call.slot, call.attempt, call.secret)
    wait = None
    stored: dict[str, Any] = {"arguments": call.arguments, "key": call.key} | call.marks
    if tool.key_ttl is not None:
        call.intended_at = visit.journal.now()
        stored["intended_at"] = call.intended_at.isoformat()
    if tool.answers_later:
        stored |= {"callback_base": call.callback_base} | call.make_token()
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
            shared_budgets.park_if_waiting(visit, call.slot, call.attempt)
        await visit.commit(Batch(events, entries, wait, grant=grant, is_intent=True))
    except (SharedBudgetShort, SharedBudgetUnpriced) as error:
        await shared_budgets.wait_for_room(visit, call.slot, call.attempt, error, **call.identity)
    except PoliciesChanged:
        call.guards, call.needs_fresh_policies = visit.runtime.guards, True
        return await _begin(call)
    except ApprovalMissing as error:
        await gate.handle_refused_grant(call, grant, error)
    call.past.intent, call.cleared_at = event, time.monotonic()
    return None


# --- send, with retries -----------------------------------------------------------------------------------------------


async def _send(call: LogicalCall) -> Outcome:
    """Send until the outcome is known; park during a long outage.

    The first try is outside the retry loop, because a read's guards have already run before it.
    """
    began = time.monotonic()
    try:
        return await _try(call, 1)
    except (Passing, TimeoutError) as error:
        trouble = error
    again = partial(_try_again, call)
    return await try_until_answered(
        call.visit, again, call.past, partial(_park_through_outage, call), began=began, trouble=trouble
    )


async def _try_again(call: LogicalCall, number: int) -> Outcome:
    call.guards = call.visit.runtime.guards  # further guards may be in force by now
    # A read has no intent, so only this checks it against the policies and limits now in force.
    if call.past.intent is None and (output := await _begin(call)) is not None:
        return Settled(output)
    return await _try(call, number)


async def _try(call: LogicalCall, number: int) -> Outcome:
    """Make one try and return its outcome in recordable form. Raises Passing or TimeoutError if it may be retried."""
    is_repeat = number > 1 or call.is_resumed
    if is_repeat and (known := await _prepare_repeat(call, number)) is not None:
        return known
    tool = call.tool
    try:
        return _to_recordable(call, await _perform(call))
    except NotSent as error:
        if tool.is_unsafe:
            await _record_not_sent(call, error.message)
        raise
    except KeyRejected as error:
        if tool.is_pure:
            await _handle_tool_error(call, error)
        return await unknown.settle_rejected_key(call, error)
    except (TransportError, TimeoutError) as error:
        call.may_have_been_sent = True
        is_sender_done = not isinstance(error, TimeoutError) or tool.is_async
        is_distrusted = await unknown.is_upstream_distrusted(call)
        if tool.is_unsafe or is_distrusted:
            known = await unknown.settle_lost_answer(
                call, traceback_of(error), is_sender_done=is_sender_done, is_distrusted=is_distrusted
            )
            if known is not None:
                return known
        call.may_still_send |= not is_sender_done
        raise
    except (Exception, asyncio.CancelledError) as bug:
        if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
            raise
        await _handle_tool_error(call, bug)


async def _prepare_repeat(call: LogicalCall, number: int) -> Settled | None:
    """Check and record that the call is sent again. Return the upstream system's answer if the call already happened.

    For an unsafe call, this is reached only after proof that it did not happen.
    """
    call.park_on_timer()
    for guard in call.guards:
        await guard.before_try(call)
    if call.past.intent is None:
        return None
    if call.intended_at is not None and not call.may_have_been_sent:
        call.intended_at = call.visit.journal.now()  # a key's lifetime starts when it is first sent
    is_sender_done = number > 1 and not call.may_still_send
    call.needs_fresh_policies = number == 1
    for guard in call.guards:
        await guard.before_repeat(call, is_sender_done=is_sender_done)
    # Later tries were checked when the previous one lost its answer.
    is_unchecked = number == 1 and call.may_have_been_sent
    is_distrusted = is_unchecked and await unknown.is_upstream_distrusted(call)
    while True:  # the key may expire during the commit
        is_doubtful = call.is_key_expired or is_distrusted
        if is_doubtful and (known := await unknown.find_out(call, is_sender_done=is_sender_done)) is not None:
            return known
        is_distrusted = False
        await _record_repeat(call, is_sender_done=is_sender_done)
        if not call.is_key_expired:
            return None


async def _record_repeat(call: LogicalCall, *, is_sender_done: bool) -> None:
    """Record a repeat as ToolRedispatched, or check that an earlier record still permits it. Exits by an internal
    exception if the call may not be sent again.

    One event covers `BURST` tries of this claim, unless policies change. An unsafe call needs one event for each try,
    because a ToolNotDispatched proves only that the tries before it were not sent.
    """
    visit = call.visit
    if call.tries_left > 0:
        judged = None if call.judged is None else call.judged.revision
        try:
            await visit.check_repeat(call.slot, call.attempt, call.limit_key, judged=judged)
        except PoliciesChanged:
            call.tries_left = 0
    if call.tries_left == 0:
        call.tries_left = 1 if call.tool.is_unsafe else BURST
        call.past.resends += 1
        event = e.ToolRedispatched(
            slot=call.slot, attempt=call.attempt, tool=call.tool.name, n=call.past.resends, tries=call.tries_left
        )
        while True:
            try:
                await visit.commit(Batch([event, *call.facts()], is_intent=True))
                break
            except PoliciesChanged:
                call.needs_fresh_policies = True
                for guard in call.guards:
                    await guard.before_repeat(call, is_sender_done=is_sender_done)
    call.tries_left -= 1
    call.cleared_at = time.monotonic()


async def _perform(call: LogicalCall) -> Any:
    """Run the tool's function and return its result or a BusinessFailure.

    A blocking function runs in a thread; waiting for the thread counts towards the timeout. Raises the function's other
    errors, and NotBegun if nothing was sent.
    """
    runtime, tool, tool_call = call.visit.runtime, call.tool, call.tool_call()
    runtime.hit("CP2", tool.name)
    tool_call = await with_secrets(runtime.secrets, tool, call.args, tool_call) if tool.uses_secrets else tool_call
    if await call.visit.is_held_back(call.limit_key, call.cleared_at):
        await _stop_for_halt(call)
    if runtime.is_fenced():  # checked last, because the database may have taken long to answer
        raise NotBegun(FENCED)
    function, call.abandoned, failure = tool.opened(FOR_DISPATCH), None, None
    try:
        with call.visit.control.sending(call.slot, call.limit_key, tool.timeout):
            if tool.is_async:
                async with asyncio.timeout(tool.timeout):
                    answer = await without_exit(function(call.args, tool_call))
            else:
                turn = _Turn(partial(_run_unless_fenced, runtime, function, call.args, tool_call))
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


def _run_unless_fenced(runtime: Runtime, function: Callable[..., Any], args: BaseModel, tool_call: ToolCall) -> Any:
    """Run a blocking function, unless this worker was fenced while the call waited for its thread. Raises NotBegun."""
    if runtime.is_fenced():
        raise NotBegun(FENCED)
    return function(args, tool_call)


async def _stop_for_halt(call: LogicalCall) -> NoReturn:
    """Stop for a halt. Record that nothing was sent, unless an earlier try may have been sent."""
    if call.has_pending_entry and not call.may_have_been_sent:
        await _record_not_sent(call, "it was halted between the intent and the call")
    call.visit.hold_back(call.limit_key)


async def _in_thread(turn: _Turn, call: LogicalCall) -> Any:
    """Run a blocking call in one of its tool's threads. Raises NotBegun if no thread is free in time."""
    tool, threads = call.tool, call.visit.runtime.threads
    if threads.is_exhausted(tool.name):
        raise NotBegun(threads.why_none(tool.name))
    try:
        async with asyncio.timeout(tool.timeout):
            return await asyncio.get_running_loop().run_in_executor(
                threads.of(tool.name), threads.counted(tool.name, turn.take)
            )
    except TimeoutError as error:
        if turn.withdraw():
            raise NotBegun(threads.why_none(tool.name)) from error
        _abandon(turn, call)
        raise
    except asyncio.CancelledError:
        if not turn.withdraw():  # a call for which no run waits any more must not begin later
            _abandon(turn, call)
        raise


def _abandon(turn: _Turn, call: LogicalCall) -> None:
    """Stop waiting for a function that is still running.

    Its thread is freed when the function ends; guards read `call.abandoned`.
    """
    call.abandoned = turn.when_over
    call.visit.runtime.threads.abandon(call.tool.name, turn.when_over)


class _Turn:
    """A blocking call queued for a thread. If it is withdrawn before it begins, it certainly sends nothing."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._lock = work, threading.Lock()
        self._has_begun = self._is_withdrawn = self._is_over = False
        self._then: list[Callable[[], None]] = []

    def take(self) -> Any:
        """Run the work in the current thread, unless it was withdrawn."""
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
        """Call `then` when the work has ended; at once if it has already ended."""
        with self._lock:
            if not self._is_over:
                self._then.append(then)
                return
        then()

    def withdraw(self) -> bool:
        """Prevent the work from beginning. Returns False if it has begun already."""
        with self._lock:
            self._is_withdrawn = True
            return not self._has_begun


def _to_recordable(call: LogicalCall, answer: Any) -> Answer | Pending | Refusal:
    """Return a try's result in recordable form. Raises BadAnswer if it can't be recorded."""
    tool = call.tool
    if isinstance(answer, KeyRejected):
        raise answer
    if isinstance(answer, BusinessFailure):
        return Refusal(printable(answer.code), printable(scrubbed(answer.message)), _plain(call, answer.details))
    if not tool.answers_later:
        return tool.checked(answer)
    if not isinstance(answer, Pending):
        raise BadAnswer(f"{tool.name} answers later, so it must return Pending, not {type(answer).__name__}")
    return Pending(_plain(call, answer.receipt), answer.within)


def _plain(call: LogicalCall, value: Any) -> Any:
    try:
        return scrubbed(plain(value))
    except ValueError as error:
        raise BadAnswer(f"{call.tool.name}: its receipt or details can't be recorded: {error}") from error


async def _record_not_sent(call: LogicalCall, why: str) -> None:
    """Record that nothing was sent, so that a crash after this leaves no unknown outcome."""
    call.past.not_sents += 1
    payload = {"error": printable(scrubbed(why))}
    event = e.ToolNotDispatched(
        slot=call.slot, attempt=call.attempt, tool=call.tool.name, n=call.past.not_sents, payload=payload
    )
    call.visit.boundary(await call.visit.commit(Batch([event])))


async def _handle_tool_error(call: LogicalCall, bug: BaseException) -> NoReturn:
    """Handle an error in the tool's code.

    For an unsafe call, or an answer that is too large to record, a person must settle the outcome; otherwise the run
    fails.
    """
    if isinstance(bug.__cause__, TooLarge) and call.has_pending_entry:
        # The call happened, and a repeat would return the same answer. So a person must settle it with a receipt.
        digest = bug.__cause__.digest
        why = f"the tool answered, but the answer can't be recorded ({bug}); digest {digest}: settle it with a receipt"
        await unknown.ask_person(call, why, is_sender_done=not call.may_still_send)
    if call.tool.is_unsafe:
        await unknown.ask_person(call, traceback_of(bug), is_sender_done=not call.may_still_send)
    code = "tool_result" if isinstance(bug, BadAnswer) else "tool_error"
    call.visit.stop(Crashed(code, f"{call.tool.name}: {describe_error(bug)}", traceback_of(bug)))


async def _park_through_outage(call: LogicalCall, trouble: Exception) -> NoReturn:
    """Park on a timer during an outage. Afterwards the same key and bytes are sent again.

    If every try of a keyed call failed before it was sent, that is recorded, so that nobody is asked whether the call
    happened.
    """
    tool = call.tool
    if call.has_pending_entry and not tool.is_unsafe and not call.may_have_been_sent:
        await _record_not_sent(call, describe_error(trouble))
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
        await _record_acceptance(call, outcome)
    if isinstance(outcome, Refusal):
        await _record_refusal(call, outcome)
    tool, result = call.tool, outcome.result
    external_id = tool.external_id_of(result) if tool.external_id else None
    if call.past.intent is None:
        events = [reads.read_event(call, result), *call.facts()]
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


async def _record_acceptance(call: LogicalCall, answer: Pending) -> NoReturn:
    """Record that upstream accepted the call, then park until its callback."""
    wait = call.wait("webhook", call.past.last_wait("webhook")[0], within=answer.within)
    payload = {"receipt": answer.receipt, "deadline": wait.deadline.isoformat()}
    event = e.ToolAccepted(slot=call.slot, attempt=call.attempt, tool=call.tool.name, payload=payload)
    reply = await _commit(call, Batch([event], wait=wait, usage=A_CALL), accepted=payload)
    call.visit.boundary(reply)
    call.visit.park(wait)


async def _record_refusal(call: LogicalCall, no: Refusal) -> NoReturn:
    payload = {"message": no.message, "details": no.details, "arguments": call.arguments}
    batch = Batch([call.failed(no.code, payload)], call.booked("failed", payload), usage=A_CALL)
    call.visit.boundary(await _commit(call, batch, failure=payload | {"code": no.code}))
    raise ToolFailure(call.tool.name, no.code, no.message, no.details)


async def _commit(call: LogicalCall, batch: Batch, **outcome: Any) -> Reply:
    """Commit an outcome. If another outcome was recorded first, that one is final.

    Reports the outcome as a late result if the lease is lost, or if the write was cut off and only a person could
    settle the call.
    """
    visit = call.visit
    try:
        reply = await visit.commit(batch)
    except (Unwind, asyncio.CancelledError) as error:
        is_cut_off = visit.is_torn or isinstance(error, asyncio.CancelledError)
        spent = call.is_key_expired
        needs_person = is_cut_off and not unknown.may_repeat(call.tool.replay_class, is_key_expired=spent)
        if call.has_pending_entry and (visit.has_lost_lease or needs_person):
            _report_late_result(call, outcome)
        raise
    if not reply.is_done:
        _report_late_result(call, outcome)
        visit.stop(Stopped("overtaken"))
    return reply


def _report_late_result(call: LogicalCall, outcome: dict[str, Any]) -> None:
    visit = call.visit
    visit.runtime.record_late(LateAnswer(visit.run_id, call.slot, call.attempt, call.tool.name, **outcome))
