"""A yes that a node brings along to its call, from the visit before perhaps.

Between two visits its grant lies in the state, where an operator's patch may write. So nothing of it is believed but
where the question stands: whom it was put to, what they said yes to, and whether that was used, the journal tells.
"""

from __future__ import annotations

from typing import NoReturn

from ledger import events as e
from runs.engine.budget import A_CALL
from runs.engine.errors import POLICY_DENIED, DefinitionError, PolicyDenied
from runs.engine.gate.requirement import is_staged, required_by
from runs.engine.gate.votes import is_whole, lacking, next_stage, passed, shows
from runs.engine.journal import Batch, Grant
from runs.engine.outcomes import Broken, Stopped
from runs.engine.policy import Asking, Demand, Judged
from runs.engine.steps.doubt import ask_person
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


async def judge(call: LogicalCall, *, anew: bool = False) -> None:
    """Have a call judged that nothing has left of. Raises PolicyDenied, which is on record then; stops where nobody can
    tell what is in force."""
    decision = call.record.decision
    if call.record.gate is not None and (decision is None or decision.verdict not in ("approved", LAPSED)):
        return  # people are asked, or have said no: that is looked at first
    judged = await _of(call, anew=anew)
    if judged is not None and judged.effect != "allow" and not anew:
        judged = await _of(call, anew=True)  # nobody is stopped by a policy of a moment ago
    call.judged = judged
    if judged is not None and judged.effect == "deny":
        await _deny(call, judged)


async def still(call: LogicalCall, *, is_sender_done: bool, anew: bool) -> None:
    """Before a call goes out once more: where a policy has become stricter than what it went out under, it doesn't. Its
    outcome may be open, so a person says what became of it; a further attempt is judged like a new call."""
    call.judged = judged = await _of(call, anew=anew)
    if judged is not None:
        await bring(call)
    if not anew and _forbids(call, judged):
        call.judged = judged = await _of(call, anew=True)  # nobody is stopped by a policy of a moment ago
    if judged is None or not _forbids(call, judged):
        return
    if call.tool.is_pure:
        await _deny(call, judged)
    what = "forbids it" if judged.effect == "deny" else f"wants the yes of {', '.join(missing(call, judged))} first"
    reason = f"it is not sent again: the policy {judged.policy} (version {judged.version}) {what} by now"
    await ask_person(call, reason, is_sender_done=is_sender_done)


def _forbids(call: LogicalCall, judged: Judged | None) -> bool:
    return judged is not None and (judged.effect == "deny" or bool(missing(call, judged)))


def missing(call: LogicalCall, judged: Judged) -> list[str]:
    """The queues whose yes to these very bytes is demanded, and not on record."""
    given, grant = answered(call), None if call.no_yes else call.grant
    is_in_use = grant is not None and call.record.grants.get(call.attempt, ("", ""))[0] == grant.slot
    brought = grant if is_in_use else None
    yes = {*given} | (brought.queues if brought is not None else set())
    return [
        each.queue for each in judged.requirements if each.queue not in yes or not is_shown(call, each, given, brought)
    ]


def is_shown(call: LogicalCall, demand: Demand, given: dict[str, e.ApprovalRequested], brought: Grant | None) -> bool:
    """Whether those who said yes for a policy's queue showed what it wants to be shown: at the call's own place, or
    where the grant that was brought along was given."""
    if not demand.proof.is_any:
        return True
    record, question = call.record, given.get(demand.queue)
    if question is not None and shows(question, record.decisions, record.votes, demand.proof):
        return True
    if brought is None or call.given is None or demand.queue not in brought.queues:
        return False
    record = call.given
    asked = [each for each in record.asked.values() if each.queue == demand.queue]
    return any(shows(each, record.decisions, record.votes, demand.proof) for each in asked[-1:])  # those of now


def answered(call: LogicalCall) -> dict[str, e.ApprovalRequested]:
    """The queues that said yes at the call's own place to just what is to be sent, each with its question. Of several
    stages none has said yes before all have."""
    record, given = call.record, {}
    yes = {each.approval_id: each.plan_hash for each in record.decisions if each.verdict == "approved"}
    of_whole_cases = {
        approval_id
        for last in record.asked.values()
        if is_staged(last.payload) and is_whole(last, record.asked, record.decisions, record.votes)
        for approval_id in (*passed(last), last.approval_id)
    }
    for question in record.asked.values():
        if yes.get(question.approval_id) != question.plan_hash:
            continue
        is_enough = question.approval_id in of_whole_cases
        if not is_staged(question.payload):
            is_enough = not lacking(question, record.asked, record.decisions, record.votes)
        now = {**question.payload, "tool": call.tool.name, "arguments": call.arguments}
        if is_enough and call.visit.runtime.hasher(now) == question.plan_hash:
            given[question.queue] = question
    return given


def told(call: LogicalCall) -> list[e.Event]:
    """What the policies said of it, to be put on record with what comes of that. Nothing, where there are none. Each is
    told under a number of its own, also where the commit before was refused."""
    judged = call.judged
    if judged is None:
        return []
    n, queues = call.past.judgements, [each.queue for each in judged.requirements]
    call.past.judgements += 1
    return [
        e.PolicyApplied(
            slot=call.slot,
            attempt=call.attempt,
            tool=call.tool.name,
            effect=judged.effect,
            revision=judged.revision,
            policy=judged.policy,
            version=judged.version,
            queues=queues,
            n=n,
        )
    ]


async def _of(call: LogicalCall, *, anew: bool) -> Judged | None:
    visit, tool = call.visit, call.tool
    judged = await visit.runtime.policies.judge(
        Asking(
            run_id=visit.run_id,
            agent=visit.agent.name,
            version=visit.agent.version,
            tool=tool.name,
            replay_class=str(tool.replay_class),
            risk=tool.risk,
            arguments=call.arguments,
            source=call.source,
            requester=visit.created.by,
            cost_micro=visit.meter.used.usd_micro,
        ),
        anew=anew,
    )
    if judged is not None and judged.problem:
        payload = {"slot": call.slot, "tool": tool.name, "problem": judged.problem}
        visit.stop(Broken("policies_not_genuine", payload))
    return judged


async def _deny(call: LogicalCall, judged: Judged) -> NoReturn:
    """A definite no, on record in the place of an outcome: nothing leaves."""
    visit, call.judged = call.visit, judged
    visit.check_stop()
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)  # its record may have to wait for others'
    policy = {"name": judged.policy, "version": judged.version}
    payload = {"message": judged.rule, "details": None, "arguments": call.arguments, "policy": policy}
    events = [call.failed(POLICY_DENIED, payload), *told(call)]
    reply = await visit.commit(Batch(events, call.booked("failed", payload), usage=A_CALL))
    if not reply.is_done:
        visit.stop(Stopped("overtaken"))
    visit.boundary(reply)
    raise PolicyDenied(call.tool.name, judged.policy, judged.version, judged.rule)
