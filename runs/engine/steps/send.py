"""The stage between intent and record: sends a call and retries it if allowed. CP2 to CP4 of docs/step-protocol.md."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from ledger import events as e
from runs.engine.canonical import TooLarge, plain, printable
from runs.engine.errors import (
    BadAnswer,
    BusinessFailure,
    KeyRejected,
    NotSent,
    PoliciesChanged,
    TransportError,
    brief,
    traceback_of,
)
from runs.engine.journal import Batch
from runs.engine.outcomes import Crashed
from runs.engine.runtime import is_being_cancelled
from runs.engine.steps import policies, sharing
from runs.engine.steps.doubt import ask_person, find_out, is_distrusted, lost_answer, rejected, without_exit
from runs.engine.steps.logical_call import LogicalCall, Outcome, Refusal, Settled
from runs.engine.steps.retry import park_for_retry
from runs.engine.steps.sharing import NotBegun
from runs.engine.tools import FOR_DISPATCH, Answer, Pending

# Tries covered by one announcement: about one round in place. See docs/decisions/0002.
BURST = 16


async def one_try(call: LogicalCall, number: int) -> Outcome:
    """Make one try and return it in recordable form; errors say what is known of it."""
    await call.enter()  # the first try got its permit before the intent
    if call.past.intent is not None and (number > 1 or call.is_resumed):
        await policies.still(call, is_sender_done=number > 1 and not call.lingers, anew=number == 1)
        is_distrust = number == 1 and await is_distrusted(call)  # discovered after it was sent
        known = await _announce_in_time(call, is_distrust, is_sender_done=number > 1 and not call.lingers)
        if known is not None:
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
        return await rejected(call, error)
    except (TransportError, TimeoutError) as error:
        is_sender_done = not isinstance(error, TimeoutError) or tool.is_async
        if tool.is_unsafe or await is_distrusted(call):
            known = await lost_answer(call, traceback_of(error), is_sender_done=is_sender_done)
            if known is not None:
                return known
        call.lingers |= not is_sender_done
        raise
    except (Exception, asyncio.CancelledError) as bug:
        if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
            raise
        await _bug(call, bug)


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


async def _perform(call: LogicalCall) -> Any:
    """Run the tool's function, in a thread if it blocks; the timeout includes the wait for a thread. Raises the
    function's errors, TimeoutError, and NotSent if nothing can have been sent."""
    runtime, tool, tool_call = call.visit.runtime, call.tool, call.tool_call()
    runtime.hit("CP2", tool.name)
    if runtime.is_fenced():
        # Others may count this worker as dead. Nothing was sent, and that is recorded if the run is still ours.
        raise NotBegun("this worker lost its place in the fleet between the intent and the call: not sent")
    await check_halts(call)
    function = tool.opened(FOR_DISPATCH)
    call.was_sent = True
    with call.visit.control.sending(call.slot, call.key_of_tool, tool.timeout), call.hold.under_way():
        try:
            if tool.is_async:
                async with asyncio.timeout(tool.timeout):
                    answer = await without_exit(function(call.args, tool_call))
            else:
                turn = _Turn(lambda: function(call.args, tool_call))
                answer = await without_exit(_in_thread(turn, call))
        except BusinessFailure as no:
            answer = no
    if isinstance(answer, BusinessFailure):
        return answer
    runtime.hit("CP4", tool.name)
    return answer


async def check_halts(call: LogicalCall) -> None:
    """Check for a halt since the intent, just before sending; what was not sent is recorded as such."""
    if await sharing.is_held_back(call.visit, call.key_of_tool, call.cleared_at):
        is_first = not call.was_sent and not call.is_resumed
        if call.is_booked and (call.tool.is_unsafe or is_first):
            await _not_sent(call, NotSent("it was halted between the intent and the call"))
        sharing.hold_back(call.visit, call.key_of_tool)


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
    """Stop waiting for a running call; its permit and thread are returned when it is over."""
    call.hold.leave_later(turn.when_over)
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


async def _announce_in_time(call: LogicalCall, is_distrust: bool, *, is_sender_done: bool) -> Settled | None:
    """Announce a repeat while its key protects, even after a slow commit; return upstream's answer if asked."""
    while True:
        is_doubtful = call.is_key_spent or is_distrust
        if is_doubtful and (known := await find_out(call, is_sender_done=is_sender_done)) is not None:
            return known
        is_distrust = False
        await _announce(call)
        if not call.is_key_spent:
            return None


async def _announce(call: LogicalCall) -> None:
    """Record that a repeat may be sent, and check that it still may; unwinds if not. One fact covers a burst of
    tries under one claim, each checked without a write, until policies change. Unsafe calls are recorded try by try,
    as each may follow a proof that the one before was not sent."""
    if call.announced > 0:
        judged = None if call.judged is None else call.judged.revision
        try:
            await call.visit.check_repeat(call.slot, call.attempt, call.key_of_tool, judged=judged)
        except PoliciesChanged:
            call.announced = 0
    if call.announced == 0:
        call.announced = 1 if call.tool.is_unsafe else BURST
        call.past.resends += 1
        event = e.ToolRedispatched(
            slot=call.slot, attempt=call.attempt, tool=call.tool.name, n=call.past.resends, tries=call.announced
        )
        await _commit(call, event)
    call.announced -= 1
    call.cleared_at = sharing.now()


async def _commit(call: LogicalCall, event: e.Event) -> None:
    """Commit a repeat with the policies' verdict; if policies changed, judge again first."""
    while True:
        try:
            await call.visit.commit(Batch([event, *policies.told(call)], is_intent=True))
            return
        except PoliciesChanged:
            await policies.still(call, is_sender_done=not call.is_resumed and not call.lingers, anew=True)


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
        await ask_person(call, traceback_of(bug), is_sender_done=True)
    if isinstance(bug.__cause__, TooLarge) and call.is_booked:
        # It was done, and each repeat would get the same answer: only a person can say what to keep of it.
        digest = bug.__cause__.digest
        why = (
            f"it answered, and the answer can't be put on record ({bug}); its digest is {digest}: settle with a receipt"
        )
        await ask_person(call, why, is_sender_done=True)
    code = "tool_result" if isinstance(bug, BadAnswer) else "tool_error"
    call.visit.stop(Crashed(code, f"{call.tool.name}: {brief(bug)}", traceback_of(bug)))


async def come_back_later(call: LogicalCall, trouble: Exception) -> NoReturn:
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
        call={"call": tool.name, "hash": call.requested_hash},
    )
