"""Calls with an unknown outcome: whether they may be repeated, who is asked, and how the outcome is recorded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.scrubbing import scrubbed, scrubbed_error
from runs.engine.agents import Agent
from runs.engine.budget import A_CALL
from runs.engine.canonical import digest_of, plain, printable
from runs.engine.certification import Certificates
from runs.engine.errors import KeyRejected, ToolFailure, describe_error
from runs.engine.journal import ATTENTION, Batch, Entry, Intent, Journal, WaitSpec
from runs.engine.logical_call import LogicalCall, Settled
from runs.engine.outcomes import Stopped
from runs.engine.runtime import Control, Runtime, is_being_cancelled, log, without_exit
from runs.engine.secrets import SecretStore, with_secrets
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import DidNotHappen, Happened, ReplayClass, Tool, ToolCall

KEY_REJECTED = "key_rejected"
_DENIAL_DISTRUSTED = "the hook reports no effect, but a probe saw it miss one"
_HOOK_SAID = {DidNotHappen: "no effect", type(None): "no answer"}
_NOT_ASKED = "not asked: its tool was halted"

# --- permissions of a replay class ------------------------------------------------------------------------------------


def may_repeat(replay_class: str, *, is_key_expired: bool = False) -> bool:
    """Return whether a call of unknown outcome may be repeated without asking.

    Reads may be repeated, and so may keyed calls whose key has not expired.
    """
    match ReplayClass(replay_class):
        case ReplayClass.PURE:
            return True
        case ReplayClass.IDEMPOTENT_WITH_KEY:
            return not is_key_expired
        case ReplayClass.UNSAFE_ON_REPLAY:
            return False


async def is_upstream_distrusted(call: LogicalCall) -> bool:
    """Return whether a keyed call must be treated as unsafe.

    It must if the upstream system is known to ignore keys, or if a required certificate is missing.
    """
    tool, certificates = call.tool, call.visit.runtime.certificates
    if tool.is_pure or tool.is_unsafe:
        return False
    certificate = await certificates.standing(call.visit.agent.name, tool, is_fresh=True)
    return certificate.is_unsafe or (certificates.policy == "refuse" and not certificate.is_certified)


async def is_denial_trusted(answer: object, agent: Agent, tool: Tool, certificates: Certificates) -> bool:
    """Return whether a hook's DidNotHappen can be trusted.

    It can't if a probe showed that the hook missed an effect.
    """
    if not isinstance(answer, DidNotHappen):
        return False
    return not (await certificates.standing(agent.name, tool, is_fresh=True)).is_denier


def intended_at(intent: e.Event) -> datetime | None:
    """Return when the intent was made, if its tool's keys expire; else None."""
    stored = payload_of(intent).get("intended_at")
    return None if stored is None else datetime.fromisoformat(stored)


async def query_upstream(
    tool: Tool, args: BaseModel, call: ToolCall, store: SecretStore
) -> Happened | DidNotHappen | None:
    """Query the upstream system through the reconcile hook. Return None if there is no hook or no usable answer."""
    if tool.reconcile is None:
        return None
    try:
        if tool.uses_secrets:
            call = await with_secrets(store, tool, args, call)
        answer = await asyncio.wait_for(without_exit(tool.reconcile(args, call)), tool.timeout)
        if isinstance(answer, Happened):
            return Happened(tool.checked(answer.output).output)
        return answer if isinstance(answer, DidNotHappen) else None
    except (Exception, asyncio.CancelledError) as error:  # whatever failed, the outcome stays unknown
        if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
            raise
        log.warning(
            "run %s: the reconcile hook of %s gave no answer: %s", call.run_id, tool.name, describe_error(error)
        )
        return None


# --- its record -------------------------------------------------------------------------------------------------------


def happened_batch(intent: Intent, tool: Tool, answer: Happened) -> Batch:
    """Return the batch that records the upstream system's answer that the call happened."""
    result = plain(answer.output)
    event, entry = intent.reconciled(
        "happened",
        by="hook",
        payload={"result": result},
        external_id=tool.external_id_of(result),
        digest=digest_of(result),
    )
    return Batch([event], [entry])


def late_result(
    intent: Intent, result: Any, *, by: str, n: int, when: str, external_id: str | None
) -> tuple[e.ToolReconciled, Entry]:
    """Return the event and ledger entry for a result reported by a worker that had lost the run.

    `when` is quoted in the receipt: the time after which that worker sent the call.
    """
    payload = {"result": result, "receipt": {"from": f"the worker that sent the call, after {when}"}}
    return intent.reconciled("happened", by=by, n=n, payload=payload, external_id=external_id, digest=digest_of(result))


def unknown_batch(
    intent: Intent, wait: WaitSpec, *, reason: str, arguments: Any, is_sender_done: bool, rejection: Any = None
) -> Batch:
    """Return the batch that records an unknown outcome and opens a wait for a person.

    `is_sender_done`: this claim's last try is over.
    """
    payload = {"reason": reason, "arguments": arguments} | ({KEY_REJECTED: rejection} if rejection else {})
    event = e.ToolOutcomeUnknown(
        slot=intent.slot, attempt=intent.attempt, tool=intent.tool, is_sender_done=is_sender_done, payload=payload
    )
    return Batch([event, wait.opened()], [intent.entry("unknown")], wait)


def query_result(
    slot: str, attempt: int, upstream_asked: e.UpstreamAsked, answer: Happened | DidNotHappen | None
) -> e.UpstreamTold:
    """Return the event of the answer to a query that a person requested."""
    payload = {"result": plain(answer.output)} if isinstance(answer, Happened) else None
    word = {Happened: "happened", DidNotHappen: "did_not"}.get(type(answer), "nothing")
    return e.UpstreamTold(slot=slot, attempt=attempt, answer=word, n=upstream_asked.n, payload=payload)


def settlement_wait(intent: Intent, run_id: str, n: int, title: str, now: datetime, rejection: Any = None) -> WaitSpec:
    """Return the `n`-th wait for a person's verdict. A rejected key is shown as a suspected duplicate."""
    detail = {"tool": intent.tool, "title": title, "attempt": intent.attempt}
    if rejection:
        detail |= {"reason": KEY_REJECTED, "suspicion": "duplicate", "said": rejection["message"]}
    return WaitSpec(run_id, intent.slot, intent.attempt, "reconcile", n, now + ATTENTION, detail)


# --- the call's own stage ---------------------------------------------------------------------------------------------


async def resume(call: LogicalCall, intent: e.Event) -> Settled | None:
    """Return the outcome of a call that has an intent; None if it may be sent. Parks, or raises ToolFailure."""
    past = call.past
    call.is_resumed, call.may_have_been_sent = True, past.is_in_doubt
    _take_intent(call, intent)
    if past.is_unknown:
        return await _wait_for_settlement(call)
    if past.accepted is not None:
        n, resolution = past.last_wait("webhook")
        if resolution == "timed_out":
            reason = "no callback came before the deadline"
            raise ToolFailure(call.tool.name, "no_answer", reason, payload_of(past.accepted))
        call.visit.park(call.wait("webhook", n))
    call.intended_at = intended_at(intent)
    call.park_on_timer()
    if past.is_in_doubt and not call.tool.is_pure:
        return await find_out(call, is_sender_done=False)
    return None


def _take_intent(call: LogicalCall, intent: e.Event) -> None:
    """Use the key, address and arguments that the intent recorded."""
    stored = payload_of(intent)
    call.take_keys(stored)
    call.take(stored["arguments"])


async def _is_query_halted(call: LogicalCall) -> bool:
    """Return whether a halt forbids calling the reconcile hook, because a halted tool isn't trusted."""
    has_hook = call.tool.reconcile is not None
    return has_hook and await call.visit.is_held_back(call.limit_key, call.cleared_at)


async def _query_or_stop(call: LogicalCall) -> Happened | DidNotHappen | None:
    """Query upstream. Under a halt the run stops here; the query is made once the halt is lifted."""
    if await _is_query_halted(call):
        call.visit.hold_back(call.limit_key)
    return await _query(call)


async def _query(call: LogicalCall) -> Happened | DidNotHappen | None:
    with call.visit.control.sending(call.slot, call.limit_key, call.tool.timeout):
        return await query_upstream(call.tool, call.args, call.tool_call(), call.visit.runtime.secrets)


async def find_out(call: LogicalCall, *, is_sender_done: bool) -> Settled | None:
    """Query the upstream system about an unknown outcome. Return None if the call may be sent again.

    Parks if only a person can settle it.
    """
    answer = await _query_or_stop(call)
    if isinstance(answer, Happened):
        return await _settle(call, answer)
    is_distrust = await is_upstream_distrusted(call)
    did_not = await is_denial_trusted(answer, call.visit.agent, call.tool, call.visit.runtime.certificates)
    is_denial_distrusted = isinstance(answer, DidNotHappen) and not did_not
    if did_not and not is_distrust:
        # The upstream system doesn't have the key, so the key's lifetime restarts with this claim's next try.
        call.intended_at, call.may_have_been_sent = call.visit.journal.now(), call.may_still_send
    elif (
        is_distrust
        or is_denial_distrusted
        or not may_repeat(call.tool.replay_class, is_key_expired=call.is_key_expired)
    ):
        why = "no outcome was recorded after the intent"
        if call.is_key_expired:
            limit = call.tool.key_ttl
            why = f"the key's lifetime at the other side ({limit}) is over, and no outcome is recorded"
        elif is_distrust:
            why += ", and the other side is not trusted to honour keys"
        if is_denial_distrusted:
            why += f", and {_DENIAL_DISTRUSTED}"
        await ask_person(call, why, is_sender_done=is_sender_done)
    return None


async def settle_lost_answer(
    call: LogicalCall, reason: str, *, is_sender_done: bool, is_distrusted: bool
) -> Settled | None:
    """Query the upstream system about an unsafe or distrusted call. Return None if an unsafe call didn't happen.

    It may then be sent again. In all other cases the run parks, because a distrusted call is never repeated without
    asking.
    """
    is_sender_done = is_sender_done and not call.may_still_send
    if await _is_query_halted(call):
        await ask_person(call, f"{reason}; the other side was {_NOT_ASKED}", is_sender_done=is_sender_done)
    result = await _query(call)
    if isinstance(result, Happened):
        return await _settle(call, result)
    did_not = await is_denial_trusted(result, call.visit.agent, call.tool, call.visit.runtime.certificates)
    if is_distrusted or not (is_sender_done and did_not):
        await ask_person(call, reason, is_sender_done=is_sender_done)
    call.may_have_been_sent = False
    return None


async def settle_rejected_key(call: LogicalCall, error: KeyRejected) -> Settled:
    """Settle a call whose key was rejected, using the hook, or else by asking a person. The call may have happened."""
    message = printable(scrubbed(error.message))[:2000]
    rejection = {"message": message, "details": _recordable_details(error.details), "found_by_hook": _NOT_ASKED}
    why = f"the other side rejected the key, so that a duplicate is suspected: {message}"
    if await _is_query_halted(call):
        await ask_person(call, why, is_sender_done=not call.may_still_send, rejection=rejection)
    found = await _query(call)
    if isinstance(found, Happened):
        return await _settle(call, found)
    rejection["found_by_hook"] = _HOOK_SAID[type(found)]
    await ask_person(call, why, is_sender_done=not call.may_still_send, rejection=rejection)


def _recordable_details(details: Any) -> Any:
    """Return a tool's details in recordable form: as text if they aren't plain data."""
    try:
        return scrubbed(plain(details))
    except ValueError:
        return printable(scrubbed_error(repr(details))[:2000])


async def ask_person(call: LogicalCall, reason: str, *, is_sender_done: bool, rejection: Any = None) -> NoReturn:
    """Record the unknown outcome, and park until a person settles it. Always leaves the node."""
    wait = _question(call, rejection)
    batch = unknown_batch(
        call.intent(), wait, reason=reason, arguments=call.arguments, is_sender_done=is_sender_done, rejection=rejection
    )
    if not (await call.visit.commit(batch)).is_done:
        call.visit.stop(Stopped("overtaken"))
    call.visit.park(wait)


async def _settle(call: LogicalCall, answer: Happened) -> Settled:
    batch = replace(happened_batch(call.intent(), call.tool, answer), usage=A_CALL)
    reply = await call.visit.commit(batch)
    if not reply.is_done:
        call.visit.stop(Stopped("overtaken"))
    call.visit.boundary(reply)
    return Settled(answer.output)  # the output was checked when the answer came


async def _wait_for_settlement(call: LogicalCall) -> Settled:
    """Park on the open question about the outcome.

    If there is none (on a retry), a person is asked again; for an overdue callback, the upstream system is queried
    first.
    """
    await _wait_on(call)
    if call.past.unknown is None:
        if isinstance(answer := await _query_or_stop(call), Happened):
            return await _settle(call, answer)
        why = "the other side took the call, and no callback came before its deadline"
        await ask_person(call, why, is_sender_done=True)
    await _ask_again(call, _question(call))


async def _ask_again(call: LogicalCall, wait: WaitSpec) -> NoReturn:
    """Ask a further question about an unknown outcome, unless it has just been answered, and park on it."""
    if not (await call.visit.commit(Batch([wait.opened()], wait=wait))).is_done:
        call.visit.stop(Stopped("overtaken"))
    await _park_on_question(call, wait)


async def _wait_on(call: LogicalCall) -> None:
    """Park on the question that a person has already been asked; return if there is none."""
    n = call.past.open_wait("reconcile")
    if n is not None:
        await _park_on_question(call, call.wait("reconcile", n))


async def _park_on_question(call: LogicalCall, wait: WaitSpec) -> NoReturn:
    """Park on a person's question.

    If the person requested it, query the upstream system first and record the answer for them.
    """
    if call.past.asked is not None:
        answer = await _query_or_stop(call)
        await call.visit.commit(Batch([query_result(call.slot, call.attempt, call.past.asked, answer)]))
    call.visit.park(wait)


async def reopen_settlement(call: LogicalCall, attempt: int) -> NoReturn:
    """Ask a person, before the next attempt, about an earlier attempt that a late result contradicts."""
    call.go_to(attempt)
    if call.past.intent is not None:
        _take_intent(call, call.past.intent)
    await _wait_on(call)
    wait = _question(call)
    await _ask_again(call, replace(wait, detail={**wait.detail, "reason": "a late result says that it happened"}))


def _question(call: LogicalCall, rejection: Any = None) -> WaitSpec:
    n, rejection = call.past.waits_of("reconcile"), rejection or rejection_in(call.past.unknown)
    return settlement_wait(call.intent(), call.visit.run_id, n, call.tool.title, call.visit.journal.now(), rejection)


def rejection_in(event: e.Event | None) -> Any:
    """Return the rejection of the call's key, if the recorded unknown outcome is due to one; else None."""
    return None if event is None else payload_of(event).get(KEY_REJECTED)


# --- a run that is to end ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """A run that is about to end, and the services needed for that."""

    agent: Agent
    journal: Journal
    runtime: Runtime
    control: Control
    trace_id: str


async def settle_before_end(run: Ending, slot: Slot) -> WaitSpec | None:
    """Settle an unknown outcome of an ending run, without sending the call.

    Returns the wait for a person if the hook doesn't know the outcome or its tool is halted.
    """
    invoked, now, journal = slot.now.intent, slot.now, run.journal
    assert isinstance(invoked, e.ToolInvoked)
    is_open = now.is_in_doubt or now.unknown is not None
    if invoked.replay_class == ReplayClass.PURE or not is_open or now.reconciled is not None:
        return None  # for an ending run, a person's verdict *fail* is final
    intent, tool, arguments = Intent.of(invoked), run.agent.tool(invoked.tool), payload_of(invoked)["arguments"]
    open_question = now.open_wait("reconcile")
    n = now.waits_of("reconcile") if open_question is None else open_question
    title = tool.title if tool else intent.tool
    wait = settlement_wait(intent, journal.run_id, n, title, journal.now(), rejection_in(now.unknown))
    if open_question is not None or now.unknown is not None:
        if open_question is None and not (await journal.commit(Batch([wait.opened()], wait=wait))).is_done:
            return None  # it has just been answered
        if now.asked is not None:
            cannot_query = tool is None or await _is_halted(run, tool)
            answer = None if tool is None or cannot_query else await _query_before_end(run, intent, tool, arguments)
            await journal.commit(Batch([query_result(intent.slot, intent.attempt, now.asked, answer)]))
        return wait
    why = "the run is ending, and the outcome of this call is unknown"
    if tool is not None and await _is_halted(run, tool):
        why = f"{why}; the other side was {_NOT_ASKED}"
    elif tool is not None:
        answer = await _query_before_end(run, intent, tool, arguments)
        if isinstance(answer, Happened):
            await journal.commit(happened_batch(intent, tool, answer))
            return None
        if await is_denial_trusted(answer, run.agent, tool, run.runtime.certificates):
            event, entry = intent.reconciled("did_not", by="hook")
            await journal.commit(Batch([event], [entry]))
            return None
    reply = await journal.commit(unknown_batch(intent, wait, reason=why, arguments=arguments, is_sender_done=False))
    return wait if reply.is_done else None  # it has just been answered


async def _is_halted(run: Ending, tool: Tool) -> bool:
    halts, key = run.runtime.halts, f"tool:{tool.name}"
    return tool.reconcile is not None and await halts.is_halted(run.journal.run_id, key)


async def _query_before_end(run: Ending, intent: Intent, tool: Tool, arguments: Any) -> Happened | DidNotHappen | None:
    """Query the upstream system about a call of an earlier process.

    Also returns None if the recorded arguments no longer fit the tool's input.
    """
    slot, attempt = intent.slot, intent.attempt
    try:
        args = tool.input.model_validate(arguments)
    except ValidationError as error:
        run_id = run.journal.run_id
        log.warning(
            "run %s: upstream can't be asked about %s, whose input has changed: %s", run_id, slot, describe_error(error)
        )
        return None
    call = ToolCall(run.journal.run_id, run.trace_id, tool.name, slot, attempt, intent.key, None, tool.timeout)
    with run.control.sending(slot, f"tool:{tool.name}", tool.timeout):
        return await query_upstream(tool, args, call, run.runtime.secrets)
