"""The gate of a tool call: people approve exactly the bytes to be sent, and the intent uses up the approval.

    first pass:  is an approval needed? → ask about the plan → park
    on resume:   decision → hash of the plan as it would be sent now → grant for the intent, or refused, or expired

Start reading at `obtain_grant`. Calls and `ctx.approve` share `open_gate` and `grant_from_decision`. A grant that a
node passes to a call is part of the state, which operators can edit. So only the journal is trusted to tell who was
asked, what was approved and whether the approval was used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, runtime_checkable
from uuid import NAMESPACE_URL, UUID, uuid5

from ledger import events as e
from runs.engine import amending
from runs.engine.budget import A_CALL
from runs.engine.canonical import Hasher, canonical, printable
from runs.engine.errors import ApprovalExpired, ApprovalMissing, DefinitionError, Expired, NotAsked, Rejected
from runs.engine.gating import documents
from runs.engine.gating.documents import DOCUMENTS, NO_APP, Document
from runs.engine.gating.fields import BROUGHT, SAME, Evidence, amount_in, editable_entry
from runs.engine.gating.history import HISTORY, UNEXPLAINED, Unused, history_of, requires_as_well
from runs.engine.gating.proof import NO_PROOF, Threshold, in_plan, wanted_of
from runs.engine.gating.stages import (
    FAIL,
    STAGES,
    Requirement,
    Stage,
    earlier_stages,
    has_proof,
    is_staged,
    is_whole,
    lacking,
    next_stage,
    required_by,
)
from runs.engine.gating.timing import QueueTiming, Terms, Time
from runs.engine.journal import ATTENTION, Batch, GateOpening, Grant, WaitSpec, deadline_in, in_range
from runs.engine.logical_call import LogicalCall
from runs.engine.outcomes import Broken, Crashed, describe_call, differs
from runs.engine.policy import Demand
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import Gate, Tool
from runs.engine.visit import Visit


async def obtain_grant(call: LogicalCall) -> tuple[str, str] | None:
    """Return the (slot, plan hash) of the grant for the intent, or None if no approval is needed.

    Parks if people must decide first; raises Rejected. A further attempt requests approval again if the current rule
    asks other people or gives a different reason. TX1 checks whether the grant has expired.
    """
    record, question, gate = call.record, call.record.gate, call.tool.gate
    call.visit.afford(call.slot, call.attempt, A_CALL)  # don't ask people about a call that the budget can't pay for
    if call.grant is not None:
        await load_grant(call)
    rule = gate if gate is not None and gate.rule_for(call.args) is not None else None
    is_by_policy = bool(call.demands)
    if question is not None:
        recorded = payload_of(question).get(DOCUMENTS, [])
        if not record.was_invoked and (recorded or call.documents):
            # Questions of older versions recorded no documents. In that case a replay must not have any either.
            check_documents_unchanged(call.visit, call.slot, question, _documents_in_plan(call).get(DOCUMENTS, []))
        if record.amended and (problem := _amendment_problem(call)):
            await request_approval(call, problem=problem)
        is_by_policy = is_by_policy or any("policy" in each.payload for each in record.asked.values())
    if is_by_policy:
        return await _obtain_policy_grant(call, rule)
    if question is not None:
        if record.grants and _has_rule_changed(call, rule, question):
            await request_approval(call)
        grant = await _own_grant(call)
        return grant.slot, grant.plan_hash
    if call.grant is not None:
        if record.grants and rule is not None and _approvers_of_rule(rule) != _approvers_of_grant(call.grant):
            await request_approval(call)
        _check_grant(call, call.grant, _approvers_of_grant(call.grant) if rule is None else _approvers_of_rule(rule))
        return call.grant.slot, call.grant.plan_hash
    if rule is not None or record.grants:
        await request_approval(call)
    return None


def _has_rule_changed(call: LogicalCall, rule: Gate | None, question: e.ApprovalRequested) -> bool:
    """Return whether the rule changed since an earlier attempt used the approval.

    A rule has changed if it has other approvers or a different reason.
    """
    was_used = question.approval_id in {approval_id for _, approval_id in call.record.grants.values()}
    if not was_used or rule is None:
        return False
    then = required_by(question.payload, question.queue)
    return (rule.requirement, rule.rule_for(call.args)) != (then, question.rule)


def _amendment_problem(call: LogicalCall) -> str:
    """Return why the approval of amended arguments doesn't suffice; empty if it does.

    When they were amended, the agent's code may not have been available, so its rule is checked again here.
    """
    record = call.record
    if amending.arguments_of(record) is None or record.was_invoked:
        return ""
    if record.decision is None or record.decision.verdict != "approved":
        return ""
    return call.misfit or amending.became(record, call.tool.gate, call.args)


Approvers = tuple[str, tuple[tuple[str, int], ...]]


def _approvers_of_rule(rule: Gate) -> Approvers:
    """Return the rule's first queue, and all its stages if one approval isn't enough."""
    return rule.queue, rule.requirement.pairs


def _approvers_of_grant(grant: Grant) -> Approvers:
    return grant.queue, grant.stages


def _approvers_of_question(question: e.ApprovalRequested) -> Approvers:
    required = required_by(question.payload, question.queue)
    return required.stages[0].queue, required.pairs


def refuse(call: LogicalCall, problem: str) -> NoReturn:
    """Stop for an operator, because the call would be made without a valid approval."""
    call.visit.stop(Broken("approval_missing", {"slot": call.slot, "tool": call.tool.name, "problem": problem}))


# --- ask and park -----------------------------------------------------------------------------------------------------


async def request_approval(
    call: LogicalCall,
    demanded: Demand | None = None,
    *,
    is_of_grant: bool = False,
    problem: str = "",
    unused: Unused = UNEXPLAINED,
) -> NoReturn:
    """Request approval of the call and park. Always unwinds.

    Asks the call's own queue, a policy's queue (`demanded`), or the queues of the node's grant again (`is_of_grant`).
    People are shown earlier answers, `problem`, and why the last approval was `unused`. The request is recorded at this
    call's slot, because the node has already passed the `ctx.approve` of its grant.
    """
    visit, tool, gate, question = call.visit, call.tool, call.tool.gate, call.record.gate
    passed_grant = None
    if call.grant is not None and call.grant_record is not None:
        passed_grant = call.grant.slot, call.grant_record
    grant_question = None if passed_grant is None else passed_grant[1].gate
    earlier = grant_question if is_of_grant else question or grant_question
    queue, rule, headline, more = _choose_queue(call, demanded, earlier)
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
        plan |= {name: earlier.payload[name] for name in ("amount",) if name in earlier.payload}
    # Keys without a value are left out, so that the bytes of older plans don't change.
    plan |= more
    if gate is not None and gate.same:
        plan[SAME] = list(gate.same)
    if call.documents or earlier is not None:
        plan |= _documents_in_plan(call, earlier)
    if demanded is not None:
        plan["policy"] = demanded.as_json()
        if passed_grant is not None and grant_question is not None:
            plan[BROUGHT] = passed_grant[0]
    elif gate is not None and gate.editable and queue == gate.queue:
        plan |= editable_entry(gate.editable, tool.input)
    history = []
    if passed_grant is not None or not call.is_new:
        history = history_of(call.record, call.slot, passed_grant, problem, unused)
    if history or plan["evidence"]:
        plan = _with_history(plan, history)
    await open_gate(
        visit,
        call.slot,
        plan,
        _request_of(call, demanded),
        n=0 if question is None else question.n + 1,
        facts=call.facts() if call.guards else (),
        contents=call.documents,
    )


def _choose_queue(
    call: LogicalCall, demanded: Demand | None, earlier: e.ApprovalRequested | None
) -> tuple[str, str, str, dict[str, Any]]:
    """Return the queue, rule and headline of a call's question, and the plan's entries for amount and stages."""
    gate, args = call.tool.gate, call.args
    if demanded is not None:
        headline, amount = ("", {}) if gate is None else (gate.headline_for(args), gate.amount_for(args))
        return demanded.queue, demanded.rule, headline, amount
    rule = None if gate is None else gate.rule_for(args)
    if gate is not None and (rule is not None or earlier is None):
        return gate.queue, rule or gate.rule, gate.headline_for(args), gate.amount_for(args) | gate.stages
    if earlier is None:
        refuse(call, call.grant_problem or "an earlier attempt used an approval that the node no longer requests")
    required = required_by(earlier.payload, earlier.queue)  # all stages are asked again, from the first one on
    return required.stages[0].queue, earlier.rule, "", required.in_plan()


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
    """Return everything that a decision covers, as plain data: the call, its rule and the evidence."""
    evidence_fields = [x.as_json() for x in evidence]
    title, effect, rule, headline, evidence_fields = printable([title, effect, rule, headline, evidence_fields])
    return {
        "agent": visit.graph_id,
        "run_id": visit.run_id,
        "slot": slot,
        "queue": queue,
        "rule": rule,
        "tool": tool,
        "arguments": arguments,
        "title": title,
        "effect": effect,
        "headline": headline,
        "evidence": evidence_fields,
    }


def _with_history(plan: dict[str, Any], lines: list[str]) -> dict[str, Any]:
    """Return a plan whose evidence begins with earlier answers and attempts, so that the decision covers them.

    Other evidence with the same label is dropped.
    """
    label, source = HISTORY
    evidence = [x for x in plan["evidence"] if (x["label"], x["source"]) != HISTORY]
    if lines:
        evidence.insert(0, Evidence(label, source, printable(lines)).as_json())
    return plan | {"evidence": evidence}


def _documents_in_plan(call: LogicalCall, earlier: e.ApprovalRequested | None = None) -> dict[str, Any]:
    """Return the plan's documents: those of the call, or those shown with its grant or its previous question."""
    grant_question = call.grant_record.gate if call.grant_record is not None else None
    before = next((payload_of(one) for one in (earlier, grant_question) if one is not None), {})
    carried = {name: before[name] for name in (DOCUMENTS,) if name in before}
    return documents.in_plan(call.documents) or carried


def check_documents_unchanged(
    visit: Visit, slot: str, question: e.ApprovalRequested, now: list[dict[str, Any]]
) -> None:
    """Stop if a replay has other documents than were shown, because a decision covers their bytes."""
    recorded = payload_of(question).get(DOCUMENTS, [])
    if recorded != now:
        calls = [describe_call(question.tool, arguments={DOCUMENTS: each}) for each in (recorded, now)]
        visit.stop(differs(slot, *calls))


@dataclass(frozen=True, slots=True)
class GateRequest:
    """A request for approval, apart from its plan. `demands` are from policies, `why` is the node's reason."""

    requested_hash: str
    why: str
    time: Time
    demands: Sequence[Demand] = ()


def _request_of(call: LogicalCall, demanded: Demand | None = None) -> GateRequest:
    gate = call.tool.gate
    time = Time(ATTENTION) if gate is None else gate.time
    if demanded is not None:
        time = Time(demanded.within)
    return GateRequest(call.requested_hash, call.spec.why, time, call.demands)


@runtime_checkable
class QueueSettings(Protocol):
    """Queues that have settings for time limits, and for the proof required with an approval."""

    def timing_of(self, name: str) -> QueueTiming | None: ...
    def threshold(self, queue: str) -> Threshold | None: ...


async def open_gate(
    visit: Visit,
    slot: str,
    plan: dict[str, Any],
    request: GateRequest,
    *,
    n: int = 0,
    facts: Sequence[e.Event] = (),
    contents: Sequence[Document] = (),
) -> NoReturn:
    """Ask the plan's queue and park. Always unwinds.

    `n` counts earlier questions of the slot; `facts` are recorded with this question, and `contents` are the contents
    of the plan's documents.
    """
    if contents and not visit.runtime.shows_documents:
        raise DefinitionError(f"The documents of {plan['tool']!r} can't be shown: {NO_APP}.")
    queue, known = plan["queue"], visit.runtime.queues
    queues = required_by(plan, queue).queues if STAGES in plan else [queue]
    further = [request.time.escalate_to] if request.time.escalate_to else []
    for each in (*queues, *further):  # check all queues before asking the first one
        await check_recipient_exists(visit, slot, each, known, "queues")
    settings: QueueSettings | None = known if isinstance(known, QueueSettings) else None
    threshold = None if settings is None else settings.threshold(queue)
    plan.pop("proof", None)  # removes the proof of the previous stage
    if threshold is not None or request.demands:
        plan |= _required_proof(visit, plan, threshold, request.demands)
    timing = visit.runtime.queue_timing if settings is None else settings.timing_of(queue)
    terms = _terms(visit, request.time, timing)
    question = question_of(
        visit.run_id,
        slot,
        n,
        plan,
        hasher=visit.runtime.hasher,
        requested_hash=request.requested_hash,
        deadline=terms.deadline,
        terms=terms.said,
    )
    requested = question.asked
    gate = GateOpening(
        UUID(requested.approval_id),
        queue,
        plan["tool"],
        plan["title"],
        plan["effect"],
        plan["rule"],
        canonical(plan),
        requested.plan_hash,
        plan["evidence"],
        printable(request.why),
        visit.created.by,
        UUID([*earlier_stages(requested), requested.approval_id][0]) if STAGES in plan else None,
        terms.said,
        terms.look_at,
        plan.get(DOCUMENTS, []),
        {each.digest: each.bytes for each in contents},
    )
    await commit_question(visit, Batch([*question.events, *facts], wait=question.wait, gate=gate))
    visit.park(question.wait)


@dataclass(frozen=True, slots=True)
class Question:
    """The request to people to approve a plan, with its wait.

    `events` also contains an event for its terms, if there are terms other than a deadline.
    """

    asked: e.ApprovalRequested
    wait: WaitSpec
    events: tuple[e.Event, ...]

    @property
    def plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = self.asked.payload
        return plan


def question_of(
    run_id: str,
    slot: str,
    n: int,
    plan: dict[str, Any],
    *,
    hasher: Hasher,
    requested_hash: str,
    deadline: datetime,
    terms: dict[str, Any] | None,
) -> Question:
    """Return the `n`-th question of a slot. Its id is derived from its place, so a replay gets the same id."""
    approval_id = str(uuid5(NAMESPACE_URL, f"{run_id}|{slot}|approval|{n}"))
    requested = e.ApprovalRequested(
        slot=slot,
        payload=plan,
        approval_id=approval_id,
        queue=plan["queue"],
        tool=plan["tool"],
        requested_hash=requested_hash,
        plan_hash=hasher(plan),
        rule=plan["rule"],
        deadline=deadline.isoformat(),
        n=n,
    )
    detail = {"queue": plan["queue"], "title": plan["title"], "headline": plan["headline"], "tool": plan["tool"]}
    detail["approval_id"] = approval_id
    if BROUGHT in plan:
        detail[BROUGHT] = plan[BROUGHT]
    if terms is not None and terms["on_timeout"] != "reject":
        detail["on_timeout"] = terms["on_timeout"]
    wait = WaitSpec(run_id, slot, 0, "approval", n, deadline, detail)
    return Question(requested, wait, (requested,) if terms is None else (requested, _timed(requested, terms)))


def _timed(requested: e.ApprovalRequested, terms: dict[str, Any]) -> e.ApprovalTimed:
    calendar = terms["calendar"] or {"name": "", "version": 0}
    return e.ApprovalTimed(
        slot=requested.slot,
        approval_id=requested.approval_id,
        on_timeout=terms["on_timeout"],
        calendar=calendar["name"],
        calendar_version=calendar["version"],
        n=requested.n,
        payload=terms,
    )


def _terms(visit: Visit, time: Time, timing: QueueTiming | None) -> Terms:
    """Return the terms that result from the settings in the code and those of the queue.

    Raises ValueError if out of range.
    """
    now = visit.journal.now()
    if timing is None:
        return Terms(deadline_in(now, time.within if isinstance(time.within, timedelta) else time.span))
    try:
        terms = timing.settle(now, time)
        in_range(terms.deadline)
    except OverflowError:
        raise ValueError(f"{time.within} from now is beyond the year 9999: use a shorter time") from None
    return terms


def _required_proof(
    visit: Visit, plan: dict[str, Any], threshold: Threshold | None, demands: Sequence[Demand]
) -> dict[str, Any]:
    """Return the plan's entry for the proof that its queue and policies require; empty if none."""
    proof = {each.queue: each.proof for each in demands}.get(plan["queue"], NO_PROOF)
    if threshold is not None:
        risk = next((tool.risk for tool in visit.agent.all_tools() if tool.name == plan["tool"]), "")
        proof = proof.joined(threshold.asked_of(amount_in(plan), risk))
    return in_plan(wanted_of(plan, proof))


async def commit_question(visit: Visit, batch: Batch) -> None:
    """Commit a question. Stops for an operator if its queue was closed meanwhile."""
    try:
        await visit.commit(batch)
    except NotAsked as error:
        slot, name = batch.events[-1].slot, str(error.told.get("queue"))
        problem = f"queue {name!r} was {error.told.get('state')} just now"
        visit.stop(Broken("unknown_queue", {"slot": slot, "queue": name, "problem": problem}))


@runtime_checkable
class Learning(Protocol):
    """A collection of names of queues or roles that may change while a worker runs.

    The collection is reloaded before a name is refused.
    """

    async def learn(self, name: str) -> None: ...


async def check_recipient_exists(visit: Visit, slot: str, name: str, known: Collection[str] | None, what: str) -> None:
    """Stop for an operator if a queue or role is unknown, because nobody could answer the question."""
    if known is not None and isinstance(known, Learning):
        await known.learn(name)
    if known is not None and name not in known:
        problem = f"{name!r} is unknown, so nobody could answer: the {what} are {', '.join(sorted(known)) or 'none'}"
        visit.stop(Broken("unknown_queue", {"slot": slot, "queue": name, "known": sorted(known), "problem": problem}))


# --- the decision -----------------------------------------------------------------------------------------------------


async def _own_grant(call: LogicalCall) -> Grant:
    about = call.visit, call.slot, call.record
    return await grant_from_decision(*about, _request_of(call), tool=call.tool.name, arguments=call.arguments)


async def grant_from_decision(
    visit: Visit, slot: str, record: Slot, request: GateRequest, *, tool: str, arguments: Any
) -> Grant:
    """Return the grant of an approved gate. Parks if undecided or if a stage remains; raises Rejected.

    Hashes the plan again with the current arguments, and trusts only an authenticated decision that names this question
    and hash, because anyone who can write to the database could change a row.
    """
    question, decision = record.gate, record.decision
    assert question is not None
    if decision is None:
        visit.park(WaitSpec(visit.run_id, slot, 0, "approval", question.n, visit.journal.now()))
    if decision.verdict != "approved":
        _deny(visit, question, decision)
    plan = question.payload
    plan_hash = visit.runtime.hasher({**plan, "tool": tool, "arguments": arguments})
    bound, now = (decision.approval_id, decision.n, decision.plan_hash), (question.approval_id, question.n, plan_hash)
    if bound != now:
        problem = "the decision is for another request, or for other arguments"
        payload = {"slot": slot, "tool": tool, "problem": problem, "decided": bound, "now": now}
        visit.stop(Broken("approval_missing", payload))
    grant = Grant(slot, question.approval_id, plan_hash, question.requested_hash, decision.by, question.queue)
    if STAGES not in plan and "proof" not in plan:
        return grant  # the plan requires nothing beyond the decision
    if problem := lacking(question, record.asked, record.decisions, record.votes):
        visit.stop(Broken("approval_missing", {"slot": slot, "tool": tool, "problem": problem}))
    if STAGES not in plan:
        return grant
    if (following := next_stage(question, record.votes)) is not None:
        request = replace(request, requested_hash=question.requested_hash, time=request.time.of_a_further_stage)
        await open_gate(visit, slot, following, request, n=question.n + 1)
    stages = required_by(plan, "").pairs
    return replace(grant, queue=stages[0][0], stages=stages)


def _deny(visit: Visit, question: e.ApprovalRequested, decision: e.ApprovalDecided) -> NoReturn:
    reason = (decision.payload or {}).get("justification") or "no decision before the deadline"
    denied = Expired if decision.verdict == "expired" else Rejected
    error = denied(question.queue, reason, decision.by, decision.verdict)
    if payload_of(decision).get("then") == FAIL:
        visit.stop(Crashed("rejected", str(error), ""))
    raise error


def required_of(queue: str, gate: Gate | None, quorum: int | None, then: Sequence[Stage] | None) -> Requirement:
    """Return who must approve when a node asks: by default the approvers of the tool's own gate.

    Raises DefinitionError.
    """
    if quorum is None and then is None and gate is not None and gate.queue == queue:
        return gate.requirement
    return Requirement.of(queue, 1 if quorum is None else quorum, then or ())


# --- people changed the arguments -------------------------------------------------------------------------------------


def amend_question(
    run_id: str,
    question: e.ApprovalRequested,
    arguments: dict[str, Any],
    *,
    tool: Tool | None,
    hasher: Hasher,
    by: str,
    role: str,
    justification: str,
    deadline: datetime | None = None,
    authority: Any = None,
    terms: dict[str, Any] | None = None,
) -> tuple[e.PlanAmended, Question]:
    """Return the amendment by which `by` replaces the arguments, and the question that follows it.

    The time limit and terms stay the same. `authority` is the basis of that person's right to decide, if it isn't their
    own role. Raises ValueError if the tool rejects the arguments.
    """
    plan = amending.amended_plan(payload_of(question), arguments, tool)
    following = question_of(
        run_id,
        question.slot or "",
        question.n + 1,
        plan,
        hasher=hasher,
        requested_hash=question.requested_hash,
        deadline=datetime.fromisoformat(question.deadline) if deadline is None else deadline,
        terms=terms,
    )
    payload = {
        "justification": justification,
        "arguments": arguments,
        "changes": amending.changes(payload_of(question)["arguments"], arguments),
    } | ({} if authority is None else {"standing": authority})
    amended = e.PlanAmended(
        slot=following.wait.slot,
        n=question.n,
        approval_id=question.approval_id,
        plan_hash=question.plan_hash,
        by=by,
        role=role,
        next=following.asked.approval_id,
        payload=payload,
    )
    return amended, following


# --- the intent was refused -------------------------------------------------------------------------------------------


async def handle_refused_grant(call: LogicalCall, grant: tuple[str, str] | None, error: ApprovalMissing) -> NoReturn:
    """Handle an intent that was refused because of its grant. Always unwinds.

    If a standing approval was revoked, its queue is asked again. If the last approval expired, or an earlier attempt
    was approved, the last approval's queues are asked again. Otherwise an operator must act.
    """
    requests, is_lapsed = call.record.asked, isinstance(error, ApprovalExpired)
    if isinstance(error, ApprovalExpired) and (revoked := requests.get(error.told.get("approval", ""))) is not None:
        await _ask_queue_again(call, revoked, error.told.get("grant"))
    if is_lapsed or call.record.grants:
        # The last approver was shown the earlier approvals, so only the last approval is requested again.
        is_of_grant = grant is not None and grant[0] != call.slot
        demand = None if is_of_grant or call.record.gate is None else _demand_behind(call, call.record.gate)
        expired = grant[0] if grant is not None and is_lapsed else ""
        await request_approval(call, demand, is_of_grant=is_of_grant, unused=Unused(expired=expired))
    refuse(call, str(error))


def _demand_behind(call: LogicalCall, question: e.ApprovalRequested) -> Demand | None:
    """Return the current policy demand behind a question.

    None if the question was asked because of the tool's own rule.
    """
    demands = call.demands if "policy" in question.payload else ()
    return next((each for each in demands if each.queue == question.queue), None)


async def _ask_queue_again(call: LogicalCall, question: e.ApprovalRequested, number: object) -> NoReturn:
    """Ask a queue again because its standing approval (`number`) was revoked. Other approvals still count."""
    record, latest = call.record, call.record.gate
    assert latest is not None
    if is_staged(question.payload):  # standing approvals don't apply to approvals with stages
        await request_approval(call)
    unused = Unused(f"standing approval {number} was revoked, so {question.queue} is asked again")
    history = history_of(record, call.slot, None, "", unused)
    await open_gate(
        call.visit,
        call.slot,
        _with_history(question.payload, history),
        _request_of(call, _demand_behind(call, question)),
        n=latest.n + 1,
        facts=call.facts(),
        contents=call.documents,
    )


# --- a grant that the node obtained before, by ctx.approve ------------------------------------------------------------


async def load_grant(call: LogicalCall) -> None:
    """Replace the node's grant with the journal's record of it.

    If the grant isn't valid, `grant_problem` says why, and `_check_grant` then refuses the call.
    """
    if call.grant is None or call.grant_record is not None:
        return
    call.grant_record, call.grant_users = await call.visit.asked(call.grant.slot)
    try:
        call.grant = _validated_grant(call.grant.slot, call.grant_record)
    except (DefinitionError, ValueError) as error:
        call.grant_problem = f"slot {call.grant.slot} has no approval: {error}"


def _validated_grant(slot: str, record: Slot) -> Grant:
    """Return the grant as recorded. Raises DefinitionError, and ValueError unless it is completely approved."""
    question, decision = record.gate, record.decision
    if question is None:
        raise ValueError("no approval was requested there")
    if decision is None or decision.verdict != "approved":
        raise ValueError("nobody has answered" if decision is None else f"the verdict was {decision.verdict}")
    about = (decision.approval_id, decision.n, decision.plan_hash)
    if about != (question.approval_id, question.n, question.plan_hash):
        raise ValueError("the decision is about another request")
    if problem := lacking(question, record.asked, record.decisions, record.votes):
        raise ValueError(problem)
    if next_stage(question, record.votes) is not None:
        raise ValueError("it has a further stage")
    approvers = _approvers_of_question(question)
    return Grant(slot, question.approval_id, question.plan_hash, question.requested_hash, decision.by, *approvers)


def _check_grant(call: LogicalCall, grant: Grant, approvers: Approvers) -> None:
    """Stop for an operator unless the grant is unused and fits this call and the current approvers."""
    if call.grant_problem:
        refuse(call, call.grant_problem)
    granted, now = (*_approvers_of_grant(grant), grant.requested_hash), (*approvers, call.requested_hash)
    if granted != now:
        call.visit.stop(Broken("grant_mismatch", {"slot": call.slot, "granted": granted, "now": now}))
    assert call.grant_record is not None and call.grant_record.gate is not None
    if not _matches_plan(call, call.grant_record.gate):
        refuse(call, f"the approval of slot {grant.slot} is for other arguments")
    if is_used(call.visit, grant.slot, excluding=call.slot) or {*call.grant_users} - {call.slot}:
        # The wait's row also tells whether the grant was used, but a row can be reset.
        refuse(call, f"the approval of slot {grant.slot} was used by another call")


def _matches_plan(call: LogicalCall, question: e.ApprovalRequested) -> bool:
    """Return whether a question is about exactly the call that is about to be sent."""
    now = {**question.payload, "tool": call.tool.name, "arguments": call.arguments}
    return call.visit.runtime.hasher(now) == question.plan_hash


def is_used(visit: Visit, slot: str, *, excluding: str = "") -> bool:
    """Return whether a call was sent under this slot's grant, other than the call at the slot `excluding`."""
    intents = (
        a.intent for name, known in visit.tape.slots.items() if name != excluding for a in known.attempts.values()
    )
    return any(isinstance(x, e.ToolInvoked) and x.grant == slot for x in intents)


# --- approvals that policies require ----------------------------------------------------------------------------------


async def _obtain_policy_grant(call: LogicalCall, rule: Gate | None) -> tuple[str, str]:
    """Return the (slot, plan hash) of the grant to use if policies require approvals, now or on an earlier pass.

    The queues of the tool's own rule are asked first, stage by stage, then each policy's queue in turn, always about
    these exact bytes. The intent uses up the last approval, whose approver was shown the others; or the node's grant,
    unless the arguments were changed since.
    """
    record, approved = call.record, approved_questions(call)
    node_grant = call.grant if call.executed_hash == call.requested_hash else None
    if record.gate is not None and (record.decision is None or record.decision.verdict != "approved"):
        await _own_grant(call)
    if record.gate is not None and next_stage(record.gate, record.votes) is not None:
        await _own_grant(call)  # remaining stages come before other queues
    if node_grant is not None:
        is_for_rule = rule is None or _approvers_of_rule(rule) == _approvers_of_grant(node_grant)
        if node_grant.queue in approved or not is_for_rule:
            node_grant = None  # the call's own questions take precedence over the node's grant
    if node_grant is not None:
        _check_grant(call, node_grant, _approvers_of_grant(node_grant))  # approvers were compared above
    approvers = {*map(_approvers_of_question, approved.values())}
    if rule is not None and node_grant is None and _approvers_of_rule(rule) not in approvers:
        await request_approval(call, unused=Unused(requires_as_well("the tool's own rule", rule.queue, is_more=False)))
    queues = {*approved} if node_grant is None else {*approved} | node_grant.queues
    for each in call.demands:
        policy = f"the policy {each.policy} (version {each.version})"
        if each.queue not in queues:
            await request_approval(call, each, unused=Unused(requires_as_well(policy, each.queue, is_more=False)))
        if not has_required_proof(call, each, approved, node_grant):
            own = rule is not None and node_grant is None and each.queue in rule.requirement.queues
            more = Unused(requires_as_well(policy, each.queue, is_more=True))
            await request_approval(call, None if own else each, unused=more)
    if node_grant is not None:
        return node_grant.slot, node_grant.plan_hash
    grant = await _own_grant(call)
    return grant.slot, grant.plan_hash


def has_required_proof(
    call: LogicalCall, demand: Demand, approved: dict[str, e.ApprovalRequested], node_grant: Grant | None
) -> bool:
    """Return whether the approvals of a demand's queue have the proof that the policy requires.

    They may come from this call's questions or from the node's grant.
    """
    if not demand.proof.is_any:
        return True
    record, question = call.record, approved.get(demand.queue)
    if question is not None and has_proof(question, record.decisions, record.votes, demand.proof):
        return True
    if node_grant is None or call.grant_record is None or demand.queue not in node_grant.queues:
        return False
    record = call.grant_record
    requests = [each for each in record.asked.values() if each.queue == demand.queue]  # only the latest one counts
    return any(has_proof(each, record.decisions, record.votes, demand.proof) for each in requests[-1:])


def approved_questions(call: LogicalCall) -> dict[str, e.ApprovalRequested]:
    """Return, by queue, the questions approved for these exact bytes. Questions with stages count once complete."""
    record, found = call.record, {}
    plan_hashes = {each.approval_id: each.plan_hash for each in record.decisions if each.verdict == "approved"}
    of_whole_cases = {
        approval_id
        for last in record.asked.values()
        if is_staged(last.payload) and is_whole(last, record.asked, record.decisions, record.votes)
        for approval_id in (*earlier_stages(last), last.approval_id)
    }
    for question in record.asked.values():
        if plan_hashes.get(question.approval_id) != question.plan_hash:
            continue
        is_enough = question.approval_id in of_whole_cases
        if not is_staged(question.payload):
            is_enough = not lacking(question, record.asked, record.decisions, record.votes)
        if is_enough and _matches_plan(call, question):
            found[question.queue] = question
    return found
