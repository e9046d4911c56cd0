"""A tool call of a fork: whether something on record stands for it, so that nothing is sent."""

from __future__ import annotations

from runs.engine.steps.forks import fence, what_if
from runs.engine.steps.logical_call import LogicalCall


async def is_imagined(call: LogicalCall) -> bool:
    """Of a run that sends nothing, always: what stands for the call is on record now. Ends the run where there is
    none."""
    if what_if.of(call.visit) is None:
        return False
    tool = call.tool
    await what_if.answered(
        call.visit,
        call.slot,
        call.record,
        tool.name,
        call.requested_hash,
        arguments=call.arguments,
        given=tool.name,
        fits=lambda payload: tool.output.model_validate(payload["result"]),
    )
    return True


async def is_stood_for(call: LogicalCall) -> bool:
    """Whether what the origin did stands for it, by a person's word. Parks while nobody has said; raises Rejected."""
    tool = call.tool
    if tool.is_pure:
        return False
    asked = fence.Asked(
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
    return await fence.passed(call.visit, asked) is not None
