"""The guard that checks calls against policies. The gate obtains the approvals that policies require."""

from __future__ import annotations

from typing import NoReturn

from ledger import events as e
from runs.engine.budget import A_CALL
from runs.engine.errors import POLICY_DENIED, PolicyDenied
from runs.engine.gate import approved_questions, has_required_proof, load_grant
from runs.engine.guards import Guard
from runs.engine.journal import Batch
from runs.engine.logical_call import LogicalCall
from runs.engine.outcomes import Broken, Stopped
from runs.engine.policy import Asking, Judged
from runs.engine.tools import Tool
from runs.engine.unknown import ask_person
from runs.engine.visit import Visit


class PolicyGuard(Guard):
    """Evaluates the policies in force for calls.

    A call may be denied, or need approvals, which its gate then requests.
    """

    def is_in_force(self, visit: Visit, tool: Tool) -> bool:
        return visit.runtime.policies.may_apply()

    async def before_intent(self, call: LogicalCall) -> None:
        """Evaluate the policies for a call that was not sent yet. Stops if the policies in force are unknown.

        Raises PolicyDenied, after recording that.
        """
        decision = call.record.decision
        if call.record.gate is not None and (decision is None or decision.verdict != "approved"):
            return  # an open or denied question comes first
        judged = await _judged(call, fresh=call.needs_fresh_policies)
        if judged is not None and judged.effect != "allow" and not call.needs_fresh_policies:
            judged = await _judged(call, fresh=True)  # a call is never stopped by outdated policies
        call.judged = judged
        if judged is not None and judged.effect == "deny":
            await _deny(call, judged)

    async def before_repeat(self, call: LogicalCall, *, is_sender_done: bool) -> None:
        """Check a repeat. If policies have become stricter, a person must settle the call, and it isn't sent again."""
        call.judged = judged = await _judged(call, fresh=call.needs_fresh_policies)
        if judged is not None:
            await load_grant(call)
        if not call.needs_fresh_policies and _forbids(call, judged):
            call.judged = judged = await _judged(call, fresh=True)  # a call is never stopped by outdated policies
        if judged is None or not _forbids(call, judged):
            return
        if call.tool.is_pure:
            await _deny(call, judged)
        what = "forbids it" if judged.effect == "deny" else f"wants the yes of {', '.join(missing(call, judged))} first"
        reason = f"it is not sent again: the policy {judged.policy} (version {judged.version}) {what} now"
        await ask_person(call, reason, is_sender_done=is_sender_done)

    def facts(self, call: LogicalCall) -> list[e.Event]:
        """Return the event of the verdict. Each event has its own number, even if an earlier commit was refused."""
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
    """Return the queues whose approval of these exact bytes is required but not recorded."""
    given, grant = approved_questions(call), None if call.grant_problem else call.grant
    is_in_use = grant is not None and call.record.grants.get(call.attempt, ("", ""))[0] == grant.slot
    brought = grant if is_in_use else None
    yes = {*given} | (brought.queues if brought is not None else set())
    return [
        each.queue
        for each in judged.requirements
        if each.queue not in yes or not has_required_proof(call, each, given, brought)
    ]


async def _judged(call: LogicalCall, *, fresh: bool) -> Judged | None:
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
        fresh=fresh,
    )
    if judged is not None and judged.problem:
        payload = {"slot": call.slot, "tool": tool.name, "problem": judged.problem}
        visit.stop(Broken("policies_not_genuine", payload))
    return judged


async def _deny(call: LogicalCall, judged: Judged) -> NoReturn:
    visit, call.judged = call.visit, judged
    visit.check_stop()
    visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)  # its commit may have to wait for others
    policy = {"name": judged.policy, "version": judged.version}
    payload = {"message": judged.rule, "details": None, "arguments": call.arguments, "policy": policy}
    events = [call.failed(POLICY_DENIED, payload), *call.facts()]
    reply = await visit.commit(Batch(events, call.booked("failed", payload), usage=A_CALL))
    if not reply.is_done:
        visit.stop(Stopped("overtaken"))
    visit.boundary(reply)
    raise PolicyDenied(call.tool.name, judged.policy, judged.version, judged.rule)
