"""Protocol by which features take part in tool calls; call.py runs guards at fixed points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ledger import events as e

if TYPE_CHECKING:
    from runs.engine.logical_call import LogicalCall
    from runs.engine.tools import Tool
    from runs.engine.visit import Visit


class Guard:
    """A feature's part in tool calls. Guards run in the order of pipeline.py: a new, small call meets those in force
    for its tool, any other call all of them, so each must tolerate calls that don't concern it. A guard is stateless
    and stores what it knows of a call on the call. It waits by parking the visit, and refuses by recording why, then
    raising.
    """

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        """Return whether the guard may affect this visit's calls of the tool. The answer is kept for the visit,
        until the `version` of its policies or limits changes; otherwise it may depend only on what is fixed in a
        visit."""
        raise NotImplementedError

    async def before_intent(self, call: LogicalCall) -> BaseModel | None:
        """Act before people are asked about the call and before its intent is written; again if policies changed
        meanwhile, and before each further try of a read without an intent. Return an output to answer the call with,
        which the guard has recorded; None lets it go on."""
        return None

    def facts(self, call: LogicalCall) -> list[e.Event]:
        """Return what is recorded of the guard's part with the intent, a repeat, a read, a question or a denial."""
        return []

    async def before_try(self, call: LogicalCall) -> None:
        """Act before a try is sent: before its intent, or before a repeat is announced. A repeated read passes both, so
        a second time must change nothing."""

    async def before_repeat(self, call: LogicalCall, *, is_sender_done: bool) -> None:
        """Check that a call with an intent may be sent again. With `is_sender_done` nothing of an earlier try is in
        progress; with `call.needs_fresh_policies` go by what is in force now, not by a cache."""

    def after_try(self, call: LogicalCall, error: BaseException | None) -> None:
        """Take note of how a try ended, whatever the call makes of it. Not called for a try that a fence or a halt
        stopped; NotBegun if no thread was free."""

    def after_record(self, call: LogicalCall, result: Any) -> None:
        """Take note of a result, once it is on record."""

    def leave(self, call: LogicalCall) -> None:
        """Release what the guard holds for the call, also if it was cut short."""
