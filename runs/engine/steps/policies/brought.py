"""A yes that a node brings along to its call, from the visit before perhaps.

Between two visits its grant lies in the state, where an operator's patch may write. So nothing of it is believed but
where the question stands: whom it was put to, what they said yes to, and whether that was used, the journal tells.
"""

from __future__ import annotations

from runs.engine.errors import DefinitionError
from runs.engine.gate.requirement import is_staged, required_by
from runs.engine.gate.votes import lacking, next_stage
from runs.engine.journal import Grant
from runs.engine.steps.logical_call import LogicalCall
from runs.engine.tape import LAPSED, Slot


async def bring(call: LogicalCall) -> None:
    """Have the grant of a call as the journal has it, with what was asked there; or why that is no yes."""
    if call.grant is None or call.given is not None:
        return
    call.given, call.users = await call.visit.asked(call.grant.slot)
    try:
        call.grant = _granted(call.grant.slot, call.given)
    except (DefinitionError, ValueError) as no:
        call.no_yes = f"there is no yes at slot {call.grant.slot}: {no}"


def _granted(slot: str, record: Slot) -> Grant:
    """Raises ValueError, in words, where nobody said yes or not all did; DefinitionError."""
    question, decision = record.gate, record.decision
    if question is None:
        raise ValueError("nobody was asked there")
    if decision is None or decision.verdict not in ("approved", LAPSED):
        raise ValueError("nobody has answered" if decision is None else f"the answer was {decision.verdict}")
    about = (decision.approval_id, decision.n, decision.plan_hash)
    if about != (question.approval_id, question.n, question.plan_hash):
        raise ValueError("the answer is about another question")
    if problem := lacking(question, record.asked, record.decisions, record.votes):
        raise ValueError(problem)
    if next_stage(question, record.votes) is not None:
        raise ValueError("it has a further stage")
    required = required_by(question.payload, question.queue)
    stages = required.pairs if is_staged(question.payload) else ()
    return Grant(
        slot,
        question.approval_id,
        question.plan_hash,
        question.requested_hash,
        decision.by,
        required.stages[0].queue,
        stages,
    )


def is_of_these_bytes(call: LogicalCall) -> bool:
    """Return whether the grant that the node brought approves exactly what is about to be sent."""
    assert call.given is not None and call.given.gate is not None
    question = call.given.gate
    now = {**question.payload, "tool": call.tool.name, "arguments": call.arguments}
    return call.visit.runtime.hasher(now) == question.plan_hash
