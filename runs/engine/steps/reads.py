"""Cached and repeated reads of pure tools.

A recorded answer older than `max_age` is read again only if it is the last record of the visit. Otherwise the run has
continued from it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from ledger import events as e
from runs.engine.budget import A_CALL
from runs.engine.content.hooks import characters
from runs.engine.content.reads import MAX_BYTES, KeptRead
from runs.engine.errors import BadAnswer, MisusedContext
from runs.engine.fingerprint import tool_digest
from runs.engine.guards import Guard
from runs.engine.journal import Batch
from runs.engine.logical_call import LogicalCall
from runs.engine.outcomes import Stopped
from runs.engine.runtime import log
from runs.engine.tools import Tool
from runs.engine.visit import Visit


def check_max_age(tool: Tool, max_age: timedelta | None) -> None:
    """Raise MisusedContext if `max_age` is invalid, or given for a tool that isn't pure."""
    if max_age is None:
        return
    if not isinstance(max_age, timedelta) or max_age < timedelta(0):
        raise MisusedContext(f"ctx.call({tool.name}, max_age={max_age!r}): give a timedelta")
    if not tool.is_pure:
        raise MisusedContext(f"ctx.call({tool.name}, max_age=…): only the call of a pure tool can be repeated")


def is_too_old(call: LogicalCall) -> bool:
    """Return whether a recorded read is older than allowed, and the run has not continued from it."""
    past, result = call.past, call.past.result
    if call.spec.max_age is None or past.intent is not None or call.visit.tape.last != call.slot:
        return False
    if not isinstance(result, (e.ToolRead, e.CachedReadTaken, e.ToolReadAnew)):
        return False
    return call.visit.journal.now() - _read_at(call) > call.spec.max_age


def _read_at(call: LogicalCall) -> datetime:
    result = call.past.result
    if isinstance(result, e.CachedReadTaken):
        return datetime.fromisoformat(result.read_at)
    payload = result.payload if result is not None and isinstance(result.payload, dict) else {}
    stated = payload.get("read_at")
    # A read without a recorded time was made without `max_age`. Such a read counts as too old.
    return datetime.fromisoformat(stated) if isinstance(stated, str) else datetime.min.replace(tzinfo=UTC)


class CacheGuard(Guard):
    """Answers reads with recent results of other calls, and caches results, for tools that have a cache."""

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return tool.cache is not None

    async def before_intent(self, call: LogicalCall) -> BaseModel | None:
        """Record and return another call's recent result; None if the read must be made. Needs no permit."""
        visit, tool = call.visit, call.tool
        if tool.cache is None or call.past.result is not None or call.may_be_gated or visit.meter.counts_reads:
            return None
        call.park_on_timer()  # after an outage, the run resumes when the timer fires, even if woken otherwise
        kept = await visit.runtime.reads.find(key_of(call))
        if kept is None:
            return None
        age = visit.journal.now() - kept.at
        if age > tool.cache or (call.spec.max_age is not None and age > call.spec.max_age):
            return None
        try:
            answer = tool.checked(kept.result)
        except BadAnswer as error:
            log.warning("run %s: what the cache has for %s is not taken: %s", visit.run_id, tool.name, error)
            return None
        # Reserved only now, so that nothing waits before the commit: an earlier reservation would turn away other
        # calls near the cap.
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
        reply = await visit.commit(Batch([event, *call.facts()], usage=A_CALL))
        visit.runtime.hit("CP6", tool.name)
        if not reply.is_done:
            visit.stop(Stopped("overtaken"))
        visit.boundary(reply)
        return answer.output

    def after_record(self, call: LogicalCall, result: Any) -> None:
        """Cache the result of a recorded read for the time that the tool declares."""
        tool = call.tool
        if tool.cache is None or call.began_at is None or call.past.intent is not None:
            return
        if characters(result) > MAX_BYTES:
            return
        kept = KeptRead(result, call.began_at, call.visit.run_id, call.slot)
        call.visit.runtime.reads.keep(key_of(call), tool.name, kept, tool.cache)


READ_CACHE = CacheGuard()


def read_event(call: LogicalCall, result: Any) -> e.Event:
    """Return the event of a read. It contains the time of the read if the call limits its age."""
    payload = {"arguments": call.arguments, "result": result}
    if call.spec.max_age is not None and call.began_at is not None:
        payload["read_at"] = call.began_at.isoformat()
    if call.is_repeated_read:
        return call.repeated_read(payload)
    return e.ToolRead(
        slot=call.slot, attempt=call.attempt, tool=call.tool.name, requested_hash=call.requested_hash, payload=payload
    )


def key_of(call: LogicalCall) -> bytes:
    """Return the cache key: tool, arguments, and agent unless the cache is shared.

    The key is a keyed digest, so that arguments can't be guessed.
    """
    scope = "" if call.tool.shared else call.visit.agent.name
    what = {"read": call.tool.name, "made_of": tool_digest(call.tool), "scope": scope, "arguments": call.arguments}
    return bytes.fromhex(call.visit.runtime.hasher(what))
