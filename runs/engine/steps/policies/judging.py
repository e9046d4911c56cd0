"""A call before the policies in force: judged before it is intended, and again before it goes out once more.

What they say is on record with what comes of it, in the same commit. A call that they forbid fails for good, on record;
one that needs a yes comes to its gate with whom they name. What people have answered stands: who was rejected stays
rejected, and whoever was asked is waited for first. The database refuses an intent that was judged by others than those
in force when it is written (`runs_check_policies`): then the call is judged anew.
"""

from __future__ import annotations

from typing import NoReturn

from ledger import events as e
from runs.engine.budget.amounts import A_CALL
from runs.engine.errors import POLICY_DENIED, PolicyDenied
from runs.engine.gate.requirement import is_staged
from runs.engine.gate.votes import is_whole, lacking, passed, shows
from runs.engine.journal import Batch, Grant
from runs.engine.outcomes import Broken, Stopped
from runs.engine.policy.judgement import Asking, Demand, Judged
from runs.engine.steps.doubt import ask_person
from runs.engine.steps.logical_call import LogicalCall
from runs.engine.steps.policies.brought import bring
from runs.engine.tape import LAPSED


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
