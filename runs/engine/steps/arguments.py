"""Guards that check a call before its intent: its tool's certificate, and its arguments.

Replaced arguments are recorded at the latest in the commit that opens a question about them or writes the intent. A
call with an intent isn't checked again, because it may have been sent.
"""

from __future__ import annotations

from pydantic import ValidationError

from ledger import events as e
from ledger.kinds import CONTENT_REFUSED
from runs.engine.amending import looks_before
from runs.engine.budget import A_CALL
from runs.engine.canonical import has_at_most
from runs.engine.content.hooks import ALWAYS, MAX_FOR_TOOL, Piece
from runs.engine.guards import Guard
from runs.engine.journal import Batch
from runs.engine.logical_call import ARGUMENTS, LogicalCall
from runs.engine.outcomes import Broken
from runs.engine.runtime import log
from runs.engine.screening import Finding, due, look, recorded, refusal
from runs.engine.tools import Tool
from runs.engine.visit import Visit


class CertificateGuard(Guard):
    """Refuses or marks calls of keyed tools that no probe has certified, depending on the setting."""

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return visit.runtime.certificates.policy != "allow" and not (tool.is_pure or tool.is_unsafe)

    async def before_intent(self, call: LogicalCall) -> None:
        if self.is_in_force(call.visit, call.tool):
            await _check_certificate(call)


class ScreeningGuard(Guard):
    """Asks content hooks about the arguments. A built-in hook checks their size."""

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return bool(visit.runtime.screens or visit.agent.screens)

    async def before_intent(self, call: LogicalCall) -> None:
        await _screen_arguments(call, call.spec.source, call.spec.name or call.visit.node)


CERTIFICATES, SCREENING = CertificateGuard(), ScreeningGuard()


async def _check_certificate(call: LogicalCall) -> None:
    """Stop or mark a call of an uncertified keyed tool. Nothing was sent, so the run can be retried."""
    visit, tool, certificates = call.visit, call.tool, call.visit.runtime.certificates
    verdict = await certificates.standing(visit.agent.name, tool)
    if not verdict.is_certified:  # the cached verdict may be outdated
        verdict = await certificates.standing(visit.agent.name, tool, is_fresh=True)
    if verdict.is_certified:
        return
    text = f"{tool.name} is not certified ({verdict.word.replace('_', ' ')})"
    if certificates.policy == "refuse":
        problem = f"{text}, and this installation calls no keyed tool that isn't: nothing was sent"
        fix = f"manage.py probe {tool.name} --agent {visit.graph_id} --input FILE, then retry the run"
        payload = {"tool": tool.name, "slot": call.slot, "standing": verdict.word, "problem": problem, "fix": fix}
        visit.stop(Broken("uncertified_tool", payload))
    log.warning("run %s: %s, and is called all the same", visit.run_id, text)
    call.marks = {"uncertified": verdict.word}


async def _screen_arguments(call: LogicalCall, source: str, name: str) -> None:
    visit, past = call.visit, call.past
    screens = due(visit, past, looks_before(call.record))
    if screens is ALWAYS and has_at_most(call.arguments, MAX_FOR_TOOL):
        return  # true for nearly every call: no other hook needs to be asked
    piece = Piece(
        content=call.arguments,
        source=source,
        name=name,
        to="tool",
        target=call.tool.name,
        agent=visit.graph_id,
        run_id=visit.run_id,
        is_restored=bool(past.screenings or past.waits),
    )
    findings = [_fitting(call, each) for each in await look(visit, screens, {ARGUMENTS: piece})]
    is_refused = any(each.is_refused for each in findings)
    replaced = [each.stands for each in findings if not each.is_refused]
    events = recorded(
        visit,
        call.slot,
        call.attempt,
        past,
        to=f"tool {call.tool.name}",
        screens=screens,
        pieces={ARGUMENTS: piece},
        findings=findings,
        replaced={ARGUMENTS: replaced[-1]} if replaced and not is_refused else {},
    )
    if is_refused:
        await _withhold(call, events)
    if replaced:
        call.replace(replaced[-1])
    for event in events:
        visit.buffer(event)  # nothing depends on it before the question or the intent is committed


def _fitting(call: LogicalCall, found: Finding) -> Finding:
    """Refuse a replacement that doesn't fit the tool's input, or that comes after people were asked."""
    problem = ""
    if not found.is_refused:
        try:
            call.tool.input.model_validate(found.stands)
        except ValidationError:
            problem = "its replacement is not a valid input of the tool"
        if call.record.gate is not None or call.grant is not None:
            problem = "people were asked about these arguments, so they can't be changed any more"
    return Finding(found.place, found.piece, found.screen, problem, True) if problem else found


async def _withhold(call: LogicalCall, events: list[e.Event]) -> None:
    visit, no = call.visit, refusal(call.past)
    assert no is not None
    visit.check_stop()
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)  # its commit may have to wait for others
    failed = call.failed(CONTENT_REFUSED, {"message": str(no)})
    visit.boundary(await visit.commit(Batch([*events, failed], usage=A_CALL)))
    raise no
