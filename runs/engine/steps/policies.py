"""Policy checks of a call, and approvals brought by a node. A grant lies in the state, where operators can edit it,
so only the journal is trusted for who was asked, what was approved and whether it was used."""

from __future__ import annotations

from typing import NoReturn

from ledger import events as e
from runs.engine.budget import A_CALL
from runs.engine.errors import POLICY_DENIED, DefinitionError, PolicyDenied
from runs.engine.gating.stages import is_staged, is_whole, lacking, next_stage, passed, required_by, shows
from runs.engine.guards import Guard
from runs.engine.journal import Batch, Grant
from runs.engine.logical_call import LogicalCall
from runs.engine.outcomes import Broken, Stopped
from runs.engine.policy import Asking, Demand, Judged
from runs.engine.tape import Slot
from runs.engine.tools import Tool
from runs.engine.unknown import ask_person
from runs.engine.visit import Visit


async def bring(call: LogicalCall) -> None:
    """Replace the call's grant by the journal's record of it, or note why it is no approval."""
    if call.grant is None or call.given is not None:
        return
    call.given, call.users = await call.visit.asked(call.grant.slot)
    try:
        call.grant = _granted(call.grant.slot, call.given)
    except (DefinitionError, ValueError) as no:
        call.no_yes = f"there is no yes at slot {call.grant.slot}: {no}"


def _granted(slot: str, record: Slot) -> Grant:
    """Return the recorded grant. Raises ValueError if it isn't completely approved; DefinitionError."""
    question, decision = record.gate, record.decision
    if question is None:
        raise ValueError("nobody was asked there")
    if decision is None or decision.verdict != "approved":
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
    """Return whether the node's grant approves exactly what is about to be sent."""
    assert call.given is not None and call.given.gate is not None
    question = call.given.gate
    now = {**question.payload, "tool": call.tool.name, "arguments": call.arguments}
    return call.visit.runtime.hasher(now) == question.plan_hash


class PolicyGuard(Guard):
    """Judges calls by the policies in force: a call is denied, or needs approvals, which its gate then asks for."""

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return visit.runtime.policies.may_apply()

    async def before_intent(self, call: LogicalCall) -> None:
        """Judge a call that was not sent yet. Raises PolicyDenied once recorded; stops if policies are unknown."""
        decision = call.record.decision
        if call.record.gate is not None and (decision is None or decision.verdict != "approved"):
            return  # people were asked, or have denied: that comes first
        judged = await _judged(call, anew=call.must_look_anew)
        if judged is not None and judged.effect != "allow" and not call.must_look_anew:
            judged = await _judged(call, anew=True)  # never stop a call by outdated policies
        call.judged = judged
        if judged is not None and judged.effect == "deny":
            await _deny(call, judged)

    async def before_repeat(self, call: LogicalCall, *, is_sender_done: bool) -> None:
        """Check a repeat: if a policy became stricter, a person settles the call instead of sending it again."""
        call.judged = judged = await _judged(call, anew=call.must_look_anew)
        if judged is not None:
            await bring(call)
        if not call.must_look_anew and _forbids(call, judged):
            call.judged = judged = await _judged(call, anew=True)  # never stop a call by outdated policies
        if judged is None or not _forbids(call, judged):
            return
        if call.tool.is_pure:
            await _deny(call, judged)
        what = "forbids it" if judged.effect == "deny" else f"wants the yes of {', '.join(missing(call, judged))} first"
        reason = f"it is not sent again: the policy {judged.policy} (version {judged.version}) {what} by now"
        await ask_person(call, reason, is_sender_done=is_sender_done)

    def facts(self, call: LogicalCall) -> list[e.Event]:
        """Return the verdict to record; each has its own number, even if an earlier commit was refused."""
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


POLICIES = PolicyGuard()


def _forbids(call: LogicalCall, judged: Judged | None) -> bool:
    return judged is not None and (judged.effect == "deny" or bool(missing(call, judged)))


def missing(call: LogicalCall, judged: Judged) -> list[str]:
    """Return the queues whose approval of these exact bytes is required and not recorded."""
    given, grant = answered(call), None if call.no_yes else call.grant
    is_in_use = grant is not None and call.record.grants.get(call.attempt, ("", ""))[0] == grant.slot
    brought = grant if is_in_use else None
    yes = {*given} | (brought.queues if brought is not None else set())
    return [
        each.queue for each in judged.requirements if each.queue not in yes or not is_shown(call, each, given, brought)
    ]


def is_shown(call: LogicalCall, demand: Demand, given: dict[str, e.ApprovalRequested], brought: Grant | None) -> bool:
    """Return whether approvals for a policy's queue have its proof, at the call or at the given grant."""
    if not demand.proof.is_any:
        return True
    record, question = call.record, given.get(demand.queue)
    if question is not None and shows(question, record.decisions, record.votes, demand.proof):
        return True
    if brought is None or call.given is None or demand.queue not in brought.queues:
        return False
    record = call.given
    asked = [each for each in record.asked.values() if each.queue == demand.queue]
    return any(shows(each, record.decisions, record.votes, demand.proof) for each in asked[-1:])  # the current ones


def answered(call: LogicalCall) -> dict[str, e.ApprovalRequested]:
    """Return, by queue, questions whose approval covers exactly these bytes; staged cases only as a whole."""
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


async def _judged(call: LogicalCall, *, anew: bool) -> Judged | None:
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
            source=call.spec.source,
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
    visit, call.judged = call.visit, judged
    visit.check_stop()
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)  # recording it may have to wait for others' records
    policy = {"name": judged.policy, "version": judged.version}
    payload = {"message": judged.rule, "details": None, "arguments": call.arguments, "policy": policy}
    events = [call.failed(POLICY_DENIED, payload), *call.facts()]
    reply = await visit.commit(Batch(events, call.booked("failed", payload), usage=A_CALL))
    if not reply.is_done:
        visit.stop(Stopped("overtaken"))
    visit.boundary(reply)
    raise PolicyDenied(call.tool.name, judged.policy, judged.version, judged.rule)
