"""Gates: ask people about a frozen plan, and turn their approval into a grant for exactly these bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn, Protocol, runtime_checkable
from uuid import UUID

from ledger import events as e
from runs.engine import amending
from runs.engine.amending import BROUGHT, NOT_TOLD, Unused, asked_besides, detail_of, id_of, timed, with_history
from runs.engine.budget import A_CALL
from runs.engine.canonical import canonical, printable
from runs.engine.errors import ApprovalExpired, ApprovalMissing, Expired, NotAsked, Rejected
from runs.engine.gating import documents
from runs.engine.gating.fields import amount_in, editable_entry, same_entry
from runs.engine.gating.proof import NO_PROOF, NOTHING, Proof, Proving, in_plan, wanted_of
from runs.engine.gating.stages import FAIL, Requirement, Stage, is_staged, lacking, next_stage, required_by
from runs.engine.gating.stages import passed as stages_before
from runs.engine.gating.timing import Terms, Time, Timed, settle
from runs.engine.journal import ATTENTION, Batch, GateOpening, Grant, WaitSpec, in_range
from runs.engine.logical_call import LogicalCall
from runs.engine.outcomes import Broken, Crashed, describe_call, differs
from runs.engine.policy import Demand
from runs.engine.steps.policies import answered, bring, is_of_these_bytes, is_shown
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import Evidence, Gate
from runs.engine.visit import Visit


async def passed(call: LogicalCall) -> tuple[str, str] | None:
    """Return the (slot, plan hash) of the grant for the intent, or None without a gate. Parks; raises Rejected.
    Further attempts are checked again: an earlier approval covers them only while the current rule asks nobody else;
    the database checks that it has not expired."""
    call.visit.afford(call.slot, call.attempt, A_CALL)  # nobody is asked about what the budget can't pay
    await bring(call)
    record, gate = call.record, call.tool.gate
    rule = gate if gate is not None and gate.is_needed(call.args) else None
    if record.gate is not None and not record.was_invoked:
        shown = payload_of(record.gate).get(documents.DOCUMENTS, [])
        if shown or call.documents:  # an older process asked without documents, and shows none now either
            must_show_the_same(call.visit, call.slot, record.gate, _shown(call).get(documents.DOCUMENTS, []))
    if problem := _not_bound(call):
        await ask_anew(call, problem=problem)
    if _demands(call) or any("policy" in question.payload for question in record.asked.values()):
        return await _by_policy(call, rule)
    if record.gate is not None:
        if _asks_others(call, rule, record.gate):
            await ask_anew(call)
        grant = await _decided(call)
        return grant.slot, grant.plan_hash
    if call.grant is not None:
        if record.grants and rule is not None and _whom(rule) != _of_grant(call.grant):
            await ask_anew(call)
        _check_grant(call, call.grant, _of_grant(call.grant) if rule is None else _whom(rule))
        return call.grant.slot, call.grant.plan_hash
    if rule is not None or record.grants:
        await ask_anew(call)
    return None


def _demands(call: LogicalCall) -> Sequence[Demand]:
    return () if call.judged is None else call.judged.requirements


async def _by_policy(call: LogicalCall, rule: Gate | None) -> tuple[str, str]:
    """Return the grant to use if a policy requires an approval, or did. Every named queue approves these exact bytes,
    one after the other: first those of the tool's own rule, at each of its stages, because no policy removes them. The
    last approval is used up and covers the earlier ones, which its approver was shown. A grant from the node is used up
    instead, unless the call's arguments were changed since."""
    record, given = call.record, answered(call)
    brought = call.grant if call.executed_hash == call.requested_hash else None
    if record.gate is not None and (record.decision is None or record.decision.verdict != "approved"):
        await _decided(call)
    if record.gate is not None and next_stage(record.gate, record.votes) is not None:
        await _decided(call)  # the next stage of a case comes before other queues
    if brought is not None and (brought.queue in given or (rule is not None and _whom(rule) != _of_grant(brought))):
        brought = None
    if brought is not None:
        _check_grant(call, brought, _of_grant(brought))
    if rule is not None and brought is None and _whom(rule) not in {*map(_asked_of, given.values())}:
        await ask_anew(call, unused=Unused(asked_besides("the tool's own rule", rule.queue, is_more=False)))
    yes = {*given} if brought is None else {*given} | brought.queues
    for each in _demands(call):
        policy = f"the policy {each.policy} (version {each.version})"
        if each.queue not in yes:
            await ask_anew(call, each, unused=Unused(asked_besides(policy, each.queue, is_more=False)))
        if not is_shown(call, each, given, brought):
            own = rule is not None and brought is None and each.queue in rule.requirement.queues
            more = Unused(asked_besides(policy, each.queue, is_more=True))
            await ask_anew(call, None if own else each, unused=more)
    if brought is not None:
        return brought.slot, brought.plan_hash
    grant = await _decided(call)
    return grant.slot, grant.plan_hash


async def _decided(call: LogicalCall) -> Grant:
    return await decided(
        call.visit,
        call.slot,
        call.record,
        tool=call.tool.name,
        arguments=call.arguments,
        why=call.spec.why,
        time=_time(call),
        proofs=_proofs(call),
    )


def _time(call: LogicalCall) -> Time:
    return Time(ATTENTION) if call.tool.gate is None else call.tool.gate.time


def _proofs(call: LogicalCall) -> dict[str, Proof]:
    return {each.queue: each.proof for each in _demands(call)}


def _asks_others(call: LogicalCall, rule: Gate | None, question: e.ApprovalRequested) -> bool:
    """Return whether an earlier attempt used the approval and the current rule asks others or has another reason."""
    was_used = question.approval_id in {approval_id for _, approval_id in call.record.grants.values()}
    if not was_used or rule is None:
        return False
    then = required_by(question.payload, question.queue)
    return (rule.requirement, rule.rule_for(call.args)) != (then, question.rule)


def required_of(queue: str, gate: Gate | None, quorum: int | None, then: Sequence[Stage] | None) -> Requirement:
    """Return who must approve if a node asks: by default as the tool's own gate says. Raises DefinitionError."""
    if quorum is None and then is None and gate is not None and gate.queue == queue:
        return gate.requirement
    return Requirement.of(queue, 1 if quorum is None else quorum, then or ())


Whom = tuple[str, tuple[tuple[str, int], ...]]


def _whom(rule: Gate) -> Whom:
    """Return the first queue, and all stages if one approval isn't enough."""
    return rule.queue, rule.requirement.pairs


def _of_grant(grant: Grant) -> Whom:
    return grant.queue, grant.stages


def _asked_of(question: e.ApprovalRequested) -> Whom:
    required = required_by(question.payload, question.queue)
    return required.stages[0].queue, required.pairs


def _not_bound(call: LogicalCall) -> str:
    """Return why an approval of amended arguments doesn't suffice: people may have lacked the agent's code."""
    record = call.record
    if amending.arguments_of(record) is None or record.was_invoked:
        return ""
    if record.decision is None or record.decision.verdict != "approved":
        return ""
    return call.misfit or amending.became(record, call.tool.gate, call.args)


def _check_grant(call: LogicalCall, grant: Grant, whom: Whom) -> None:
    """Stop for an operator unless the node's grant approves this exact call, by the people asked now."""
    if call.no_yes:
        refuse(call, call.no_yes)
    granted, now = (*_of_grant(grant), grant.requested_hash), (*whom, call.requested_hash)
    if granted != now:
        call.visit.stop(Broken("grant_mismatch", {"slot": call.slot, "granted": granted, "now": now}))
    if not is_of_these_bytes(call):
        refuse(call, f"the approval of slot {grant.slot} is about other bytes than are to be sent")
    if is_used(call.visit, grant.slot, besides=call.slot) or {*call.users} - {call.slot}:
        # The wait's row says so too, but a row can be reset.
        refuse(call, f"the approval of slot {grant.slot} was used by another call")


def refuse(call: LogicalCall, problem: str) -> NoReturn:
    """Stop for an operator: the call would be made without approval."""
    call.visit.stop(Broken("approval_missing", {"slot": call.slot, "tool": call.tool.name, "problem": problem}))


async def ask_anew(
    call: LogicalCall,
    demanded: Demand | None = None,
    *,
    is_of_grant: bool = False,
    problem: str = "",
    unused: Unused = NOT_TOLD,
) -> NoReturn:
    """Ask for approval of the call again: its own queue, the one a policy `demanded`, or (`is_of_grant`) those of
    the node's grant. They see earlier answers, the last `problem`, and why it was `unused`. Always unwinds. The
    question is the call's own, even for a grant of `ctx.approve`: the node continued from that answer."""
    visit, tool, question, gate = call.visit, call.tool, call.record.gate, call.tool.gate
    given = (call.grant.slot, call.given) if call.grant is not None and call.given is not None else None
    earlier = None if is_of_grant else question
    earlier = earlier or (given[1].gate if given is not None else None)
    queue, rule, headline, more = _question_for(call, demanded, earlier)
    plan = plan_of(
        visit,
        call.slot,
        queue=queue,
        rule=rule,
        tool=tool.name,
        arguments=call.arguments,
        title=tool.title,
        effect=tool.effect,
        headline=headline,
        evidence=call.spec.evidence,
    )
    if earlier is not None:
        plan |= {name: earlier.payload[name] for name in ("title", "effect", "headline", "evidence")}
        more = {name: earlier.payload[name] for name in ("amount",) if name in earlier.payload} | more
    # Gates that declare none of these keep the plan they had before these existed.
    plan |= more | same_entry(tool) | _shown(call, earlier)
    if demanded is not None:
        plan |= {"policy": demanded.as_json()} | ({} if given is None or given[1].gate is None else {BROUGHT: given[0]})
    elif gate is not None and queue == gate.queue:
        plan |= editable_entry(gate.editable, tool.input)
    await open_gate(
        visit,
        call.slot,
        with_history(plan, call.record, given, problem, unused),
        requested_hash=call.requested_hash,
        why=call.spec.why,
        time=_time(call) if demanded is None else Time(demanded.within),
        n=0 if question is None else question.n + 1,
        judged=call.facts(),
        proofs=_proofs(call),
        contents=call.documents,
    )


def _question_for(
    call: LogicalCall, demanded: Demand | None, earlier: e.ApprovalRequested | None
) -> tuple[str, str, str, dict[str, Any]]:
    """Return the queue, rule and headline of a call's question, and what its plan says of amount and stages."""
    gate, args = call.tool.gate, call.args
    if demanded is not None:
        headline, amount = ("", {}) if gate is None else (gate.headline_for(args), gate.amount_for(args))
        return demanded.queue, demanded.rule, headline, amount
    if gate is not None and (earlier is None or gate.is_needed(args)):
        more = gate.amount_for(args) | gate.requirement.in_plan()
        return gate.queue, gate.rule_for(args), gate.headline_for(args), more
    if earlier is None:
        refuse(call, call.no_yes)
    required = required_by(earlier.payload, earlier.queue)  # all of them are asked again, from the first stage
    return required.stages[0].queue, earlier.rule, "", required.in_plan()


async def not_granted(call: LogicalCall, grant: tuple[str, str] | None, error: ApprovalMissing) -> NoReturn:
    """Handle a refused intent: ask again after an expired or revoked approval, otherwise stop for an operator."""
    taken = call.record.asked.get(error.told.get("approval", "")) if isinstance(error, ApprovalExpired) else None
    if isinstance(error, ApprovalExpired) and taken is not None:
        await _put_again(call, taken, error.told.get("grant"))
    if isinstance(error, ApprovalExpired) or call.record.grants:
        is_of_grant = grant is not None and grant[0] != call.slot
        expired = grant[0] if grant is not None and isinstance(error, ApprovalExpired) else ""
        await ask_anew(call, is_of_grant=is_of_grant, unused=Unused(expired=expired))
    refuse(call, str(error))


async def _put_again(call: LogicalCall, question: e.ApprovalRequested, grant: object) -> NoReturn:
    """Ask one queue again whose approval came from a standing `grant` that was revoked; other answers still count."""
    record, latest = call.record, call.record.gate
    assert latest is not None
    if is_staged(question.payload):  # standing grants don't apply to staged cases
        await ask_anew(call)
    demands = _demands(call) if "policy" in question.payload else ()
    demand = next((each for each in demands if each.queue == question.queue), None)
    unused = Unused(f"standing grant {grant} was taken back, and {question.queue} is asked again")
    await open_gate(
        call.visit,
        call.slot,
        with_history(dict(question.payload), record, None, unused=unused),
        requested_hash=call.requested_hash,
        why=call.spec.why,
        time=_time(call) if demand is None else Time(demand.within),
        n=latest.n + 1,
        judged=call.facts(),
        proofs=_proofs(call),
        contents=call.documents,
    )


def _shown(call: LogicalCall, earlier: e.ApprovalRequested | None = None) -> dict[str, Any]:
    """Return the plan's documents: the call's, or those shown with its grant or the previous question."""
    given = call.given.gate if call.given is not None else None
    before = next((payload_of(one) for one in (earlier, given) if one is not None), {})
    carried = {name: before[name] for name in (documents.DOCUMENTS,) if name in before}
    return documents.in_plan(call.documents) or carried


def must_show_the_same(visit: Visit, slot: str, question: e.ApprovalRequested, now: list[dict[str, Any]]) -> None:
    """Stop if a replay has other documents than were shown: a decision binds those bytes."""
    recorded = payload_of(question).get(documents.DOCUMENTS, [])
    if recorded != now:
        said = [describe_call(question.tool, arguments={documents.DOCUMENTS: each}) for each in (recorded, now)]
        visit.stop(differs(slot, *said))


def plan_of(
    visit: Visit,
    slot: str,
    *,
    queue: str,
    rule: str,
    tool: str,
    arguments: Any,
    title: str,
    effect: str,
    headline: str,
    evidence: Sequence[Evidence],
) -> dict[str, Any]:
    """Return all that a decision binds as plain data: who does what, how, by which rule, on what evidence."""
    shown = [x.as_json() for x in evidence]
    title, effect, rule, headline, shown = printable([title, effect, rule, headline, shown])
    return {
        "agent": visit.agent.graph_id,
        "run_id": visit.run_id,
        "slot": slot,
        "queue": queue,
        "rule": rule,
        "tool": tool,
        "arguments": arguments,
        "title": title,
        "effect": effect,
        "headline": headline,
        "evidence": shown,
    }


async def open_gate(
    visit: Visit,
    slot: str,
    plan: dict[str, Any],
    *,
    requested_hash: str,
    why: str,
    time: Time,
    n: int = 0,
    judged: Sequence[e.Event] = (),
    proofs: Mapping[str, Proof] = NOTHING,
    contents: Sequence[documents.Document] = (),
) -> NoReturn:
    """Ask the plan's queue and park. Always unwinds. `n` counts earlier questions of the slot; `judged` are policy
    events, `proofs` what they require by queue, `contents` the plan's documents."""
    further = {time.escalate_to} - {""}
    for queue in [*required_by(plan, plan["queue"]).queues, *further]:  # all stages, before the first is asked
        await must_be_known(visit, slot, queue, visit.runtime.queues, "queues")
    plan = {name: value for name, value in plan.items() if name != "proof"} | _proof(visit, plan, proofs)
    terms = _terms(visit, plan["queue"], time)
    deadline = terms.deadline
    approval_id = id_of(visit.run_id, slot, n)
    plan_hash = visit.runtime.hasher(plan)
    question = e.ApprovalRequested(
        slot=slot,
        payload=plan,
        approval_id=str(approval_id),
        queue=plan["queue"],
        tool=plan["tool"],
        requested_hash=requested_hash,
        plan_hash=plan_hash,
        rule=plan["rule"],
        deadline=deadline.isoformat(),
        n=n,
    )
    detail = detail_of(plan, approval_id, terms.said)
    wait = WaitSpec(visit.run_id, slot, 0, "approval", n, deadline, detail)
    gate = GateOpening(
        approval_id,
        plan["queue"],
        plan["tool"],
        plan["title"],
        plan["effect"],
        plan["rule"],
        canonical(plan),
        plan_hash,
        plan["evidence"],
        printable(why),
        visit.created.by,
        UUID([*stages_before(question), question.approval_id][0]) if is_staged(plan) else None,
        terms.said,
        terms.remind_at,
        plan.get(documents.DOCUMENTS, []),
        {each.digest: each.bytes for each in contents},
    )
    told_of_time = [] if terms.said is None else [timed(question, terms.said)]
    await put(visit, Batch([question, *told_of_time, *judged], wait=wait, gate=gate))
    visit.park(wait)


def _terms(visit: Visit, queue: str, time: Time) -> Terms:
    """Return the terms from the code's settings and the queue's. Raises ValueError for a deadline out of range."""
    queues: object = visit.runtime.queues
    said = queues.timing_of(queue) if isinstance(queues, Timed) else None
    try:
        terms = settle(visit.journal.now(), time, queue=said)
        in_range(terms.deadline)
    except OverflowError:
        raise ValueError(f"{time.within} from now is beyond the year 9999: wait for less") from None
    return terms


def _proof(visit: Visit, plan: dict[str, Any], proofs: Mapping[str, Proof]) -> dict[str, Any]:
    """Return the plan's entry for the proof that its queue and policies require; empty if none."""
    queues: object = visit.runtime.queues
    threshold = queues.threshold(plan["queue"]) if isinstance(queues, Proving) else None
    proof = proofs.get(plan["queue"], NO_PROOF)
    if threshold is not None:
        risk = next((tool.risk for tool in visit.agent.all_tools() if tool.name == plan["tool"]), "")
        proof = proof.joined(threshold.asked_of(amount_in(plan), risk))
    return in_plan(wanted_of(plan, proof))


async def put(visit: Visit, batch: Batch) -> None:
    """Ask people. A queue closed meanwhile refuses in its transaction, and an operator learns at once."""
    try:
        await visit.commit(batch)
    except NotAsked as no:
        slot, name = batch.events[-1].slot, str(no.told.get("queue"))
        problem = f"{name!r} is asked, and was {no.told.get('state')} in this very moment"
        visit.stop(Broken("unknown_queue", {"slot": slot, "queue": name, "problem": problem}))


@runtime_checkable
class Learning(Protocol):
    """Names of queues or people that change while a worker runs: reloaded before a name is refused."""

    async def learn(self, name: str) -> None: ...


async def must_be_known(visit: Visit, slot: str, name: str, known: Collection[str] | None, what: str) -> None:
    """Stop for an operator if an unknown queue or role is asked: nobody could answer before the deadline."""
    if known is not None and isinstance(known, Learning):
        await known.learn(name)
    if known is not None and name not in known:
        problem = f"{name!r} is asked, whom nobody answers for: the {what} are {', '.join(sorted(known)) or 'none'}"
        visit.stop(Broken("unknown_queue", {"slot": slot, "queue": name, "known": sorted(known), "problem": problem}))


async def decided(
    visit: Visit,
    slot: str,
    record: Slot,
    *,
    tool: str,
    arguments: Any,
    why: str,
    time: Time,
    proofs: Mapping[str, Proof] = NOTHING,
) -> Grant:
    """Return the grant of an approved gate. Parks if undecided or for the next stage, raises Rejected if denied. The
    plan is hashed again with the current arguments, so that a changed one fits no wait. The row is not trusted, as
    anyone who can write to the database can change it: the authenticated decision must name this question and these
    exact bytes."""
    question, decision = record.gate, record.decision
    assert question is not None
    if decision is None:
        visit.park(WaitSpec(visit.run_id, slot, 0, "approval", question.n, visit.journal.now()))
    if decision.verdict != "approved":
        _deny(visit, question, decision)
    plan_hash = visit.runtime.hasher({**question.payload, "tool": tool, "arguments": arguments})
    bound, now = (decision.approval_id, decision.n, decision.plan_hash), (question.approval_id, question.n, plan_hash)
    if bound != now:
        problem = "the decision is about another question, or about other bytes than are to be sent"
        payload = {"slot": slot, "tool": tool, "problem": problem, "decided": bound, "now": now}
        visit.stop(Broken("approval_missing", payload))
    if problem := lacking(question, record.asked, record.decisions, record.votes):
        visit.stop(Broken("approval_missing", {"slot": slot, "tool": tool, "problem": problem}))
    if not is_staged(question.payload):
        return Grant(slot, question.approval_id, plan_hash, question.requested_hash, decision.by, question.queue)
    if (plan := next_stage(question, record.votes)) is not None:
        await open_gate(
            visit,
            slot,
            plan,
            requested_hash=question.requested_hash,
            why=why,
            time=time.of_a_further_stage,
            n=question.n + 1,
            proofs=proofs,
        )
    stages = required_by(question.payload, "").pairs
    return Grant(slot, question.approval_id, plan_hash, question.requested_hash, decision.by, stages[0][0], stages)


def _deny(visit: Visit, question: e.ApprovalRequested, decision: e.ApprovalDecided) -> NoReturn:
    reason = (decision.payload or {}).get("justification") or "no decision before the deadline"
    denied = Expired if decision.verdict == "expired" else Rejected
    no = denied(question.queue, reason, decision.by, decision.verdict)
    if payload_of(decision).get("then") == FAIL:
        visit.stop(Crashed("rejected", str(no), ""))
    raise no


def is_used(visit: Visit, slot: str, *, besides: str = "") -> bool:
    """Return whether a call other than the one at `besides` was sent under this slot's grant."""
    intents = (a.intent for name, known in visit.tape.slots.items() if name != besides for a in known.attempts.values())
    return any(isinstance(x, e.ToolInvoked) and x.grant == slot for x in intents)
