"""The interface by which features take part in tool calls. `call.py` runs guards at fixed points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ledger import events as e

if TYPE_CHECKING:
    from runs.engine.logical_call import LogicalCall
    from runs.engine.tools import Tool
    from runs.engine.visit import Visit


class Guard:
    """A feature's part in tool calls. Guards run in the order of pipeline.py.

    For a new call with small arguments, only the guards in force for its tool run. For any other call all of them run,
    so each guard must tolerate calls that don't concern it. A guard is stateless and stores its data about a call on
    the call. To wait, it parks the visit; to refuse, it records the reason and raises an error.
    """

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        """Return whether the guard may affect this visit's calls of the tool.

        The answer is cached for the visit, until the `version` of its policies or limits changes. Apart from those, it
        may depend only on facts that are fixed during a visit.
        """
        raise NotImplementedError

    async def before_intent(self, call: LogicalCall) -> BaseModel | None:
        """Act before people are asked about the call and before its intent is written.

        It is called again if policies changed meanwhile, and before each further try of a read without an intent.
        Returns an output that answers the call and that the guard has recorded, or None to continue.
        """
        return None

    def facts(self, call: LogicalCall) -> list[e.Event]:
        """Return the guard's events for the record of an intent, a repeat, a read, a question or a denial."""
        return []

    async def before_try(self, call: LogicalCall) -> None:
        """Act before a try is sent: before its intent, or before a repeat is announced.

        A repeated read passes both points, so a second call of this method must change nothing.
        """

    async def before_repeat(self, call: LogicalCall, *, is_sender_done: bool) -> None:
        """Check that a call with an intent may be sent again.

        `is_sender_done`: no earlier try is in progress any more. With `call.needs_fresh_policies`, use the policies in
        force now instead of a cache.
        """

    def after_try(self, call: LogicalCall, error: BaseException | None) -> None:
        """React to the end of a try, regardless of what the call does with its result.

        This is not called for a try that was stopped by a fence or a halt. `error` is NotBegun if no thread was free.
        """

    def after_record(self, call: LogicalCall, result: Any) -> None:
        """React to a result after it was recorded."""

    def leave(self, call: LogicalCall) -> None:
        """Release what the guard holds for the call. This is also called if the call was cut short."""
