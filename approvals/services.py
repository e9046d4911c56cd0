"""Decide questions. Each decision is one transaction, and of competing ones, one succeeds. Each decider has one
vote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import transaction
from psycopg.types.json import Jsonb

from approvals.deadlines import InTime, deadlines
from approvals.guards import DecisionGuard, DocumentsNeedApp, PendingDecision
from approvals.models import Approval, ApprovalState, Decision, listed_in_row
from approvals.policy import ABSTAIN, VERDICTS, Authority, Facts, judge, thresholds
from approvals.proofs import ProofNeedsApp
from approvals.queues.standing import facts_of, recorded_authority
from approvals.sameness import amount_of, call_of, same_of
from approvals.votes import case_of
from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified
from ledger.clock import database_now
from ledger.contents import stored_bytes, stored_json, stored_list, stored_text
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound, RecordDamaged
from ledger.models import Head
from runs import features
from runs.engine.errors import DefinitionError
from runs.engine.gating.stages import APPROVE, FAIL, is_staged
from runs.engine.journal import GateOpening, WaitSpec
from runs.journal.digests import hasher
from runs.models import Run, Wait
from runs.services.command import journal, locked, resolve, snapshot, wake

# A new question continues the revisions of a rejected one for the same tool, queue and run, or of a stage whose case
# was rejected later.
_OPEN = """
INSERT INTO approvals_approval (id, run_id, wait_id, queue, state, revision, previous_id, tool, title, effect, rule,
                                plan, plan_hash, evidence, why, requested_by, requester, opened_at, deadline, case_id,
                                timing, look_at, same, call, amount, documents)
SELECT %s, %s::uuid, %s, %s, 'open', coalesce(p.revision, 0) + 1, p.id, %s, %s, %s, %s, %s, %s, %s, %s, %s,
       (SELECT r.creator FROM runs_run r WHERE r.id = %s::uuid), clock_timestamp(), %s, %s,
       %s::jsonb, %s::timestamptz, %s, %s, %s, %s::jsonb
FROM (SELECT approvals_may_ask(%s) AS is_open) AS asked LEFT JOIN LATERAL (
    SELECT a.id, a.revision FROM approvals_approval a
    WHERE a.run_id = %s::uuid AND a.tool = %s AND a.queue = %s
      AND (a.state = 'rejected' OR a.state = 'approved' AND EXISTS (
          SELECT 1 FROM approvals_approval z
          WHERE z.run_id = a.run_id AND z.case_id = a.case_id AND z.state = 'rejected'))
      AND NOT EXISTS (SELECT 1 FROM approvals_approval n WHERE n.previous_id = a.id)
    ORDER BY a.opened_at DESC LIMIT 1
) AS p ON true
WHERE asked.is_open
"""
# Checks that a question's queue accepts questions now: see approvals/sql/decisions.sql.
ON_ASK = "SELECT approvals_may_ask(%s)"
REOPEN = """
UPDATE approvals_approval a SET state = 'open', decided_at = NULL
FROM runs_wait w WHERE a.run_id = %s AND a.state = 'withdrawn' AND w.id = a.wait_id AND w.resolved_at IS NULL
"""
WITHDRAW = """
UPDATE approvals_approval a SET state = 'withdrawn', decided_at = clock_timestamp()
FROM runs_wait w WHERE a.run_id = %s AND a.state = 'open' AND w.id = a.wait_id AND w.resolution = 'withdrawn'
"""


def opener(gate: GateOpening, wait: WaitSpec) -> tuple[str, list[Any]]:
    """Return the statement that opens a question and stores its documents."""
    run_id = UUID(wait.run_id)
    store, stored = "", list[Any]()
    if gate.contents and (statement := features.only(lambda each: each.store_documents)):  # the engine checked them
        store, stored = statement(gate.contents)
    return store + _OPEN, [
        *stored,
        gate.approval_id,
        wait.run_id,
        wait.id,
        gate.queue,
        gate.tool,
        stored_text(gate.title, run_id),
        gate.effect,
        gate.rule,
        stored_bytes(gate.plan, run_id),
        gate.plan_hash,
        Jsonb(stored_json(gate.evidence, run_id)),
        stored_text(gate.why, run_id),
        gate.requested_by,
        wait.run_id,
        wait.deadline,
        gate.case,
        None if gate.timing is None else Jsonb(gate.timing),
        gate.look_at,
        same_of(gate.plan),
        call_of(gate.plan),
        amount_of(gate.plan),
        Jsonb(stored_list(gate.documents, run_id, listed_in_row(gate.documents))),
        gate.queue,
        wait.run_id,
        gate.tool,
        gate.queue,
    ]


P = ParamSpec("P")
T = TypeVar("T")
SECOND_FACTORS = ("+totp", "+recovery_code", "+passkey")  # suffixes of an actor's `auth`
# How long an approval may stay unused: a run paused for longer has to ask again.
GRANT_LIVES = timedelta(days=7)


class AlreadyDecided(DurableAgentsError):
    """Someone decided it first; `decided_by` and `detail` tell who it was and when."""

    status, code, title = 409, "already-decided", "Already decided"

    def __init__(self, approval: Approval) -> None:
        # Forged decisions are ignored. Without such a decision, the wait names what closed it: expiry or the end of the
        # run.
        closing = list(approval.decisions.filter(closes=True).select_related("approval"))
        ours = [row.by for row in closing if row.is_authentic]
        by = ours[0] if ours else approval.wait.resolved_by
        at = approval.decided_at or approval.wait.resolved_at
        who = f"{approval.state}{f' by {by}' if by else ''}{f' at {at:%Y-%m-%d %H:%M:%S} UTC' if at else ''}"
        super().__init__(f"This was {who}. The first decision stands.", state=str(approval.state), decided_by=by)


class StalePlan(DurableAgentsError):
    """The decision names another plan than the current one; `plan_hash` and `revision` are the current ones."""

    status, code, title = 409, "stale-plan", "Stale plan"

    def __init__(self, approval: Approval) -> None:
        super().__init__(
            f"The decision names a plan that isn't the current one (revision {approval.revision}). "
            "Read it again, then decide.",
            plan_hash=approval.plan_hash,
            revision=approval.revision,
        )


class AlreadyVoted(DurableAgentsError):
    """The caller, or the person they represent, has voted on this approval."""

    status, code, title = 409, "already-voted", "Already voted"

    def __init__(self, why: str) -> None:
        super().__init__(why)


class OtherStage(DurableAgentsError):
    """The decision names another stage than the current one; `stage` is the current one."""

    status, code, title = 409, "other-stage", "Wrong stage"

    def __init__(self, stage: int, given: int) -> None:
        super().__init__(
            f"The decision names stage {given}, but this approval is for stage {stage}. Read it again, then decide.",
            stage=stage,
        )


def actor_for_decision(approval: Approval, actor: Actor, held_roles: Iterable[str]) -> Actor:
    """Return the actor with the role that may decide, before the form is checked. Raises Forbidden."""
    facts = facts_of(approval, approval.run, actor, frozenset(held_roles))
    return replace(actor, role=_judge_standing(approval, facts, approves=False).role)


def _judge_standing(approval: Approval, facts: Facts, *, approves: bool) -> Authority:
    """Return the authority to decide.

    Raises Forbidden with the reason; after a vote AlreadyVoted, or AlreadyDecided.
    """
    found = judge(facts, approves=approves)
    if isinstance(found, Authority):
        return found
    if not found.has_voted:
        raise Forbidden(found.why)
    raise AlreadyVoted(found.why) if approval.state == ApprovalState.OPEN else AlreadyDecided(approval)


def _guards() -> tuple[DecisionGuard, ...]:
    return (DocumentsNeedApp(), InTime(), ProofNeedsApp(), *features.parts_of_all(lambda each: each.decision_guards))


def checked_before_locks(function: Callable[Concatenate[UUID, P], T]) -> Callable[Concatenate[UUID, P], T]:
    """Run the guards' slow plan checks before any lock is taken. Raises NotShown, Busy."""

    @wraps(function)
    def wrapper(approval_id: UUID, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs.get("verdict", APPROVE) == APPROVE:  # a body without `verdict` always approves
            approval = Approval.objects.filter(pk=approval_id).only("plan").first()
            for guard in _guards():
                guard.before_locks(b"" if approval is None else bytes(approval.plan))
        return function(approval_id, *args, **kwargs)

    return wrapper


@checked_before_locks
@transaction.atomic
def decide(
    approval_id: UUID,
    *,
    verdict: str,
    plan_hash: str,
    justification: str,
    by: Actor,
    stage: int | None = None,
    typed: Mapping[str, str] | None = None,
    extra_terms: Mapping[str, Any] | None = None,
    evidence: Any = None,
) -> Approval:
    """Decide on exactly the plan that was read: approve, reject, reject and fail the run, or abstain.

    With several deciders, the last approval needed grants the call, and one rejection ends it. `stage` is the stage
    that was read, for callers that want it checked; `typed` is the text typed as proof; `extra_terms` are recorded with
    the authority; `evidence` is for the guards of features. Raises NotFound, Forbidden, InvalidInput,
    JustificationRequired, NotShown, Busy, AlreadyDecided, AlreadyVoted, OtherStage, StalePlan, ProofNeeded,
    KeyCannotProve, NothingProves, RecordDamaged, NotCounted; then nothing has changed.
    """
    unlocked = Approval.objects.filter(pk=approval_id).first()
    if unlocked is None:
        raise NotFound("approval", approval_id)
    facts = facts_of(unlocked, None, by, frozenset([by.role]))
    _check_acting_role(_judge_standing(unlocked, facts, approves=False), facts, by)
    text = _reason(verdict, justification)
    head, run, wait, approval = locked_question(unlocked, by)
    check_no_forged_decision(approval)
    # Check again under the locks: a role, limit, deputyship or part in the run may have changed meanwhile.
    facts = facts_of(approval, run, by, frozenset([by.role]), locked=True)
    now, before = database_now(), snapshot(run, head)
    authority, by = _require_standing_for_verdict(approval, facts, by, verdict)
    check_deadline(approval, wait, now)
    if plan_hash != approval.plan_hash or not is_plan_intact(approval):
        raise StalePlan(approval)
    pending = PendingDecision(approval, run, verdict, by, now, thresholds(facts, authority), typed or {}, evidence)
    proof = _given_proof(pending)
    terms = {**(recorded_authority(authority, facts.asked) or {}), **(extra_terms or {})} or None
    vote = _JudgedVote(verdict, text, authority, terms, by, now, proof)
    decision = decision_row(approval, verdict, head, before, by=by, justification=text, authority=terms, at=now)
    decision.proof = proof
    decision.closes = _record_vote(run, wait, approval, vote, stage)
    decision.after = snapshot(run, head)
    decision.store()
    for guard in _guards():
        guard.store(pending, decision)
    return approval


def decision_row(
    approval: Approval,
    verdict: str,
    head: Head,
    before: dict[str, Any],
    *,
    by: Actor,
    justification: str,
    authority: dict[str, Any] | None,
    at: datetime,
) -> Decision:
    """Return an unsaved row of a decision on the current plan."""
    return Decision(
        approval=approval,
        verdict=verdict,
        plan_hash=approval.plan_hash,
        justification=justification,
        by=by.ref,
        person=by.person,
        role=by.role,
        auth=by.auth,
        address=by.address,
        seq=head.seq,
        chain=bytes(head.chain),
        before=before,
        standing=authority,
        at=at,
    )


def _require_standing_for_verdict(approval: Approval, facts: Facts, by: Actor, verdict: str) -> tuple[Authority, Actor]:
    """Return the authority for this verdict, and the actor with the role that has it.

    Approving and denying may need different roles. Raises the same as `require_standing`.
    """
    _check_acting_role(_judge_standing(approval, facts, approves=False), facts, by)
    authority = _judge_standing(approval, facts, approves=verdict == APPROVE)
    _check_second_factor(authority, by)
    return authority, replace(by, role=authority.role)


def _reason(verdict: str, justification: str) -> str:
    """Return the justification. Raises InvalidInput for an unknown verdict, JustificationRequired."""
    if verdict not in (*VERDICTS, ABSTAIN):
        fix = f"one of {', '.join((*VERDICTS, ABSTAIN))}"
        raise InvalidInput(
            f"verdict must be {fix}.", errors=[{"field": "verdict", "problem": "not a verdict", "fix": fix}]
        )
    return justified(verdict, justification)


@dataclass(frozen=True, slots=True)
class _JudgedVote:
    """A vote by a person who may give it, with the basis of that right."""

    verdict: str
    text: str
    standing: Authority
    terms: dict[str, Any] | None
    by: Actor
    now: datetime
    proof: dict[str, Any] | None = None

    @property
    def payload(self) -> dict[str, Any]:
        terms = {} if self.terms is None else {"standing": self.terms}
        terms |= {} if self.proof is None else {"proof": self.proof}
        return {"justification": self.text} | terms | ({"then": FAIL} if self.verdict == FAIL else {})


def _given_proof(pending: PendingDecision) -> dict[str, Any] | None:
    """Return the decision's proof; None if none is needed.

    Raises StalePlan if the plan is unreadable, and the guards' errors.
    """
    proof: dict[str, Any] = {}
    try:
        for guard in _guards():
            proof |= guard.proof(pending)
    except DefinitionError as error:
        raise StalePlan(pending.approval) from error
    return proof or None


def _record_vote(run: Run, wait: Wait, approval: Approval, vote: _JudgedVote, stage: int | None) -> bool:
    """Record one vote and its consequences; return whether it closes the question.

    Raises OtherStage, StalePlan, Forbidden, NotCounted, RecordDamaged.
    """
    if approval.case_id is None and vote.verdict != ABSTAIN:
        _check_stage_read(stage, 1)
        event = _close(run, wait, approval, VERDICTS[vote.verdict], by=vote.by, payload=vote.payload, now=vote.now)
        journal(run.id, event, by=vote.by)
        return True
    case = case_of(approval, wait)
    _check_stage_read(stage, case.stage)
    if case.question.plan_hash != approval.plan_hash:
        raise StalePlan(approval)
    if vote.by.person is None:
        raise Forbidden("Only a person with an account can vote with others, or abstain.")
    voted = case.vote(wait, vote.verdict, vote.standing, by=vote.by, payload=vote.payload)
    if vote.verdict == ABSTAIN or (vote.verdict == APPROVE and not case.is_last(voted)):
        journal(run.id, voted, by=vote.by)
        return False
    decided = _close(run, wait, approval, VERDICTS[vote.verdict], by=vote.by, payload=vote.payload, now=vote.now)
    if vote.verdict == APPROVE:
        case.check(voted, decided)
    journal(run.id, voted, decided, by=vote.by)
    return True


def check_stage(approval: Approval, wait: Wait, stage: int | None) -> None:
    """Check that the approval is still at the stage that was read. Raises OtherStage."""
    _check_stage_read(stage, 1 if approval.case_id is None else case_of(approval, wait).stage)


def _check_stage_read(stage: int | None, current: int) -> None:
    if stage is not None and stage != current:
        raise OtherStage(current, stage)


def locked_question(unlocked: Approval, by: Actor) -> tuple[Head, Run, Wait, Approval]:
    """Return an open question, head, run and wait, locked in the common order. Raises RecordDamaged, AlreadyDecided."""
    head, run = locked(unlocked.run_id, under=by)
    wait = Wait.objects.select_for_update().filter(pk=unlocked.wait_id).first()
    if wait is None:
        raise RecordDamaged(unlocked.run_id, "the wait for this decision")
    approval = Approval.objects.select_for_update().get(pk=unlocked.pk)
    if approval.state != ApprovalState.OPEN or wait.resolved_at is not None:
        raise AlreadyDecided(approval)
    return head, run, wait, approval


def check_no_forged_decision(approval: Approval) -> None:
    """Check that an open question has no closing decision, which would be forged. Raises RecordDamaged."""
    if approval.decisions.filter(closes=True).exists():
        raise RecordDamaged(approval.run_id, "a decision that this installation did not write", is_forged=True)


def is_plan_intact(approval: Approval) -> bool:
    """Return whether the plan's bytes match their hash and its stages match the row's `case_id`."""
    plan = approval.planned()
    try:
        return hasher()(plan) == approval.plan_hash and is_staged(plan) == (approval.case_id is not None)
    except ValueError:
        return False


def require_standing(approval: Approval, facts: Facts, by: Actor) -> Authority:
    """Return the authority to decide.

    Raises Forbidden if they may not decide, act under another role, or lack the second factor that a deputy needs;
    AlreadyVoted, AlreadyDecided.
    """
    authority = _judge_standing(approval, facts, approves=False)
    _check_acting_role(authority, facts, by)
    _check_second_factor(authority, by)
    return authority


def check_deadline(approval: Approval, wait: Wait, now: datetime) -> None:
    """Check that the deadline has not passed, even if the sweeper hasn't recorded that yet. Raises AlreadyDecided."""
    if any(guard.is_late(approval, wait, now) for guard in _guards()):
        approval.decided_at = approval.deadline
        approval.expire()  # not saved: the sweeper does that
        raise AlreadyDecided(approval)


def _check_acting_role(authority: Authority, facts: Facts, by: Actor) -> None:
    """Check that the actor's role is that of the queue they decide at. Raises Forbidden."""
    if by.role != authority.role:
        where = authority.queue or facts.name
        raise Forbidden(f"Only {authority.role} decides in {where}; you act as {by.role or 'no role'}.")


def _check_second_factor(authority: Authority, by: Actor) -> None:
    """Check that a deputy has the second factor their principal needs. Raises Forbidden."""
    is_wanted = any(fnmatchcase(authority.role, pattern) for pattern in settings.DURABLEAGENTS.second_factor_roles)
    in_place = authority.deputyship is not None and by.kind == "user"
    if is_wanted and in_place and not by.auth.endswith(SECOND_FACTORS):
        raise Forbidden(f"Deciding as {authority.role} requires a second factor. Set one up, then sign in again.")


def _close(
    run: Run, wait: Wait, approval: Approval, verdict: str, *, by: Actor, payload: dict[str, Any], now: datetime
) -> e.ApprovalDecided:
    """Close the question and its wait, and wake the run; return the event to record."""
    match verdict:
        case "approved":
            approval.approve()
            wait.grant_hash, wait.grant_expires_at = approval.plan_hash, now + GRANT_LIVES
        case "expired":
            approval.expire()
        case _:
            approval.reject()
    approval.decided_at = now
    approval.save(update_fields=["state", "decided_at"])
    resolve(wait, verdict, by=by.ref, now=now)
    wake(run, now=now)
    return e.ApprovalDecided(
        slot=wait.slot,
        n=wait.n,
        approval_id=str(approval.id),
        verdict=verdict,
        plan_hash=approval.plan_hash,
        by=by.ref,
        role=by.role,
        payload=payload,
    )


def on_due(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """Handle a passed deadline. The caller, the sweeper, has locked head, run and wait."""
    approval, keeper = Approval.objects.select_for_update().get(wait=wait), deadlines()
    if not keeper.is_put_right(keeper.course(approval, wait), approval, wait, now):
        expire(run, wait, now, by)


def expire(run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """Deny a question whose deadline passed undecided. The caller holds all locks."""
    approval = Approval.objects.select_for_update().get(wait=wait)
    payload = {"justification": "No decision was made before the deadline."}
    journal(run.id, _close(run, wait, approval, "expired", by=by, payload=payload, now=now), by=by)
