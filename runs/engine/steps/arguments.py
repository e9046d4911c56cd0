"""Screening of what a tool is called with, before anybody is asked and before anything leaves.

What stands for the arguments is on record before it is shown to an approver or sent, in the same commit or in one
before. A call whose intent is on record is not looked at again: its bytes may be with the other side.
"""

from __future__ import annotations

from pydantic import ValidationError

from ledger import events as e
from ledger.kinds.screening import CONTENT_REFUSED
from runs.engine.budget.amounts import A_CALL
from runs.engine.content.hooks import Piece
from runs.engine.content.shipped import ALWAYS, may_pass_to_tool
from runs.engine.journal import Batch
from runs.engine.screening.verdicts import Finding, due, look, recorded, refusal
from runs.engine.steps.logical_call import ARGUMENTS, LogicalCall


async def screen_arguments(call: LogicalCall, source: str, name: str) -> None:
    """Have a call's arguments looked at, and go on with what stands for them. Raises ContentRefused."""
    visit, past = call.visit, call.past
    screens = due(visit, past)
    if screens is ALWAYS and may_pass_to_tool(call.arguments):
        return  # nearly every call: nobody else is to be asked
    piece = Piece(
        content=call.arguments, source=source, name=name, to="tool", target=call.tool.name,
        agent=visit.agent.graph_id, run_id=visit.run_id, is_restored=bool(past.screenings or past.waits),
    )  # fmt: skip
    findings = [_fitting(call, each) for each in await look(visit, screens, {ARGUMENTS: piece})]
    is_refused = any(each.is_refused for each in findings)
    replaced = [each.stands for each in findings if not each.is_refused]
    events = recorded(
        visit, call.slot, call.attempt, past, to=f"tool {call.tool.name}", asked=screens, pieces={ARGUMENTS: piece},
        findings=findings, stands={ARGUMENTS: replaced[-1]} if replaced and not is_refused else {},
    )  # fmt: skip
    if is_refused:
        await _withhold(call, events)
    if replaced:
        call.replace(replaced[-1])
    for event in events:
        visit.buffer(event)  # nothing depends on it before the commit that asks for the call, or makes it


def _fitting(call: LogicalCall, found: Finding) -> Finding:
    """What isn't the tool's input any more can't stand for it; of what people were asked about nothing is changed."""
    problem = ""
    if not found.is_refused:
        try:
            call.tool.input.model_validate(found.stands)
        except ValidationError:
            problem = "what it put in the place is no input of the tool"
        if call.record.gate is not None or call.grant is not None:
            problem = "people were asked about these arguments, so they can't be changed any more"
    return Finding(found.place, found.piece, found.screen, problem, True) if problem else found


async def _withhold(call: LogicalCall, events: list[e.Event]) -> None:
    """A definite no, on record in the place of an outcome: nothing leaves."""
    visit, no = call.visit, refusal(call.past)
    assert no is not None
    visit.check_stop()
    visit.afford(call.slot, call.attempt, A_CALL)
    failed = call.failed(CONTENT_REFUSED, {"message": str(no)})
    visit.boundary(await visit.commit(Batch([*events, failed], usage=A_CALL)))
    raise no
