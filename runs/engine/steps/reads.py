"""Reads that needn't be made, and reads that must be made again.

A pure tool may say how long another call with the same arguments may take its answer from a cache; then it is on record
that it came from there. `max_age` is what a call demands: no older answer is taken from the cache, and one that is on
record and older is read again, as long as nothing was made of it: it is the last that the visit has on record. What
came after it was made of it, so it stands.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from ledger import events as e
from runs.engine.budget import A_CALL
from runs.engine.content.hooks import characters
from runs.engine.content.reads import MOST_BYTES, KeptRead
from runs.engine.errors import BadAnswer, MisusedContext
from runs.engine.fingerprint import tool_digest
from runs.engine.journal import Batch
from runs.engine.outcomes import Stopped
from runs.engine.runtime import log
from runs.engine.steps import policies
from runs.engine.steps.logical_call import LogicalCall
from runs.engine.tools import Tool


def check_max_age(tool: Tool, max_age: timedelta | None) -> None:
    """Raises MisusedContext for what is no time, and for a tool that does more than read."""
    if max_age is None:
        return
    if not isinstance(max_age, timedelta) or max_age < timedelta(0):
        raise MisusedContext(f"ctx.call({tool.name}, max_age={max_age!r}): give a timedelta")
    if not tool.is_pure:
        raise MisusedContext(f"ctx.call({tool.name}, max_age=…): only a pure tool can be asked again for its answer")


def is_too_old(call: LogicalCall) -> bool:
    """Whether what is on record of a read is older than the call allows, and nothing was made of it yet."""
    past, result = call.past, call.past.result
    if call.max_age is None or past.intent is not None or call.visit.tape.last != call.slot:
        return False
    if not isinstance(result, (e.ToolRead, e.CachedReadTaken, e.ToolReadAnew)):
        return False
    return call.visit.journal.now() - _read_at(call) > call.max_age


def _read_at(call: LogicalCall) -> datetime:
    result = call.past.result
    if isinstance(result, e.CachedReadTaken):
        return datetime.fromisoformat(result.read_at)
    payload = result.payload if result is not None and isinstance(result.payload, dict) else {}
    stated = payload.get("read_at")
    # One that doesn't say when it was made (its call named no max_age then) is too old for any.
    return datetime.fromisoformat(stated) if isinstance(stated, str) else datetime.min.replace(tzinfo=UTC)


async def from_cache(call: LogicalCall) -> BaseModel | None:
    """What another call read lately, put on record as this one's result; it needs no permit, for nothing leaves. None
    where the read has to be made."""
    visit, tool = call.visit, call.tool
    if tool.cache is None or call.past.result is not None or call.may_be_gated or visit.meter.counts_reads:
        return None
    call.park_on_timer()  # after an outage it comes back when it said, whatever woke the run
    kept = await visit.runtime.reads.find(key_of(call))
    if kept is None:
        return None
    age = visit.journal.now() - kept.at
    if age > tool.cache or (call.max_age is not None and age > call.max_age):
        return None
    try:
        answer = tool.checked(kept.result)
    except BadAnswer as error:
        log.warning("run %s: what the cache has for %s is not taken: %s", visit.run_id, tool.name, error)
        return None
    # Only now, and with nothing to wait for before the commit: what is set aside for one that has not begun would send
    # others back who come to the cap by it.
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)
    visit.check_stop()
    event = e.CachedReadTaken(
        slot=call.slot,
        attempt=call.attempt,
        tool=tool.name,
        requested_hash=call.requested_hash,
        read_at=kept.at.isoformat(),
        run_read=kept.run_id,
        slot_read=kept.slot,
        payload={"arguments": call.arguments, "result": answer.result},
    )
    reply = await visit.commit(Batch([event, *policies.told(call)], usage=A_CALL))
    visit.runtime.hit("CP6", tool.name)
    if not reply.is_done:
        visit.stop(Stopped("overtaken"))
    visit.boundary(reply)
    return answer.output


def told(call: LogicalCall, result: Any) -> e.Event:
    """A read with its answer; and when it was made, where the call says how old it may be."""
    payload = {"arguments": call.arguments, "result": result}
    if call.max_age is not None and call.began_at is not None:
        payload["read_at"] = call.began_at.isoformat()
    if call.is_read_anew:
        return call.read_anew(payload)
    return e.ToolRead(
        slot=call.slot, attempt=call.attempt, tool=call.tool.name, requested_hash=call.requested_hash, payload=payload
    )


def keep(call: LogicalCall, result: object) -> None:
    """Let others have what was read, from here on for as long as the tool says. Only what is on record."""
    tool = call.tool
    if tool.cache is None or call.began_at is None or call.past.intent is not None or characters(result) > MOST_BYTES:
        return
    kept = KeptRead(result, call.began_at, call.visit.run_id, call.slot)
    call.visit.runtime.reads.keep(key_of(call), tool.name, kept, tool.cache)


def key_of(call: LogicalCall) -> bytes:
    """What two calls must have in common: the tool as it is, the arguments as they are sent, and, unless the tool's
    answers are shared, the agent. Keyed, so that the arguments can't be guessed from it."""
    scope = "" if call.tool.shared else call.visit.agent.name
    what = {"read": call.tool.name, "made_of": tool_digest(call.tool), "scope": scope, "arguments": call.arguments}
    return bytes.fromhex(call.visit.runtime.hasher(what))
