"""Deciding: one verb, one transaction, one winner."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from approvals.models import Approval, ApprovalState, Decision
from approvals.policy import QUEUES, VERDICTS, may_decide
from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified
from ledger.clock import database_now
from ledger.codes import row_code
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound, RecordDamaged
from ledger.keys import code_key
from ledger.models import Event, Head
from runs.journal import wait_hooks
from runs.journal.digests import hasher
from runs.models import Run, Wait
from runs.services.authority import own_act
from runs.services.command import journal, locked, resolve, snapshot, wake

# How long a yes may lie unused: a run that is paused for longer has to ask again.
GRANT_LIVES = timedelta(days=7)


class AlreadyDecided(DurableAgentsError):
    status, code, title = 409, "already-decided", "Already decided"

    def __init__(self, approval: Approval) -> None:
        decision = approval.decisions.first()
        # Who let it expire, or ended its run, stands in its wait.
        by = decision.by if decision else approval.wait.resolved_by
        at = approval.decided_at or approval.wait.resolved_at
        who = f"{approval.state}{f' by {by}' if by else ''}{f' at {at:%Y-%m-%d %H:%M:%S} UTC' if at else ''}"
        super().__init__(f"This was {who}. What came first stands.", state=str(approval.state), decided_by=by)


class StalePlan(DurableAgentsError):
    status, code, title = 409, "stale-plan", "Not what is being asked"

    def __init__(self, approval: Approval) -> None:
        super().__init__(
            f"The decision names another plan than the one that waits (revision {approval.revision}). "
            "Read it again, then decide.",
            plan_hash=approval.plan_hash, revision=approval.revision,
        )  # fmt: skip


def deciding(approval: Approval, somebody: Actor, held: Iterable[str]) -> Actor:
    """Somebody with these roles as the one who decides this. Raises Forbidden for whoever may not, so that it is said
    before what is wrong with what they sent; `decide` judges it again."""
    role = QUEUES.get(approval.queue)
    if role is None or not may_decide(approval.queue, held):
        raise Forbidden(f"Only {role or 'nobody'} decides in {approval.queue}.")
    by = replace(somebody, role=role)
    _check_four_eyes(approval.run, by)
    return by


@transaction.atomic
def decide(approval_id: UUID, *, verdict: str, plan_hash: str, justification: str, by: Actor) -> Approval:
    """Approve or reject exactly the plan that was read.

    Raises NotFound, Forbidden, InvalidInput, JustificationRequired, AlreadyDecided, StalePlan, RecordDamaged; then
    nothing has changed.
    """
    unlocked = Approval.objects.filter(pk=approval_id).first()
    if unlocked is None:
        raise NotFound("approval", approval_id)
    _check_authority(unlocked, by)
    if verdict not in VERDICTS:
        fix = f"one of {', '.join(VERDICTS)}"
        raise InvalidInput(
            f"verdict must be {fix}.", errors=[{"field": "verdict", "problem": "not a verdict", "fix": fix}]
        )
    text = justified(verdict, justification)
    head, run = locked(unlocked.run_id, under=by)
    wait = Wait.objects.select_for_update().filter(pk=unlocked.wait_id).first()
    if wait is None:
        raise RecordDamaged(unlocked.run_id, "what waits for this decision")
    approval = Approval.objects.select_for_update().get(pk=approval_id)
    if approval.state != ApprovalState.OPEN or wait.resolved_at is not None:
        raise AlreadyDecided(approval)
    _check_four_eyes(run, by)  # here, for before the lock was won they may have steered the run themselves
    now, before = database_now(), snapshot(run, head)
    if _deadline(approval, wait) <= now:
        raise AlreadyDecided(_expired(approval, now))
    if plan_hash != approval.plan_hash or not _is_what_was_hashed(approval):
        raise StalePlan(approval)
    if verdict == "approve":
        approval.approve()
        wait.grant_hash, wait.grant_expires_at = approval.plan_hash, now + GRANT_LIVES
    else:
        approval.reject()
    _close(run, wait, approval, VERDICTS[verdict], by=by, justification=text, now=now)
    decision = Decision(
        approval=approval, verdict=verdict, plan_hash=plan_hash, justification=text, by=by.ref, person=by.person,
        role=by.role, auth=by.auth, address=by.address, seq=head.seq, chain=bytes(head.chain), before=before,
        after=snapshot(run, head), at=now,
    )  # fmt: skip
    decision.code = row_code(code_key(), "decision", decision.coded())
    decision.save(force_insert=True)
    return approval


def _deadline(approval: Approval, wait: Wait) -> datetime:
    """Until when it may be decided: the journal says so too, where nobody moves it."""
    events = Event.objects.filter(run_id=approval.run_id, slot=wait.slot, kind=e.ApprovalRequested.KIND)
    requests = [e.decode(bytes(clear)) for clear in events.values_list("clear", flat=True)]
    of_this = [x.deadline for x in requests if isinstance(x, e.ApprovalRequested) and x.approval_id == str(approval.id)]
    return min([approval.deadline, *map(datetime.fromisoformat, of_this)])


def _is_what_was_hashed(approval: Approval) -> bool:
    """Whether the bytes that the page shows are those that the hash binds. The database keeps them; this does not rely
    on it."""
    try:
        return hasher()(json.loads(bytes(approval.plan))) == approval.plan_hash
    except ValueError:
        return False


def _check_authority(approval: Approval, by: Actor) -> None:
    if not may_decide(approval.queue, [by.role]):
        raise Forbidden(
            f"Only {QUEUES.get(approval.queue, 'nobody')} decides in {approval.queue}; "
            f"you act as {by.role or 'no role'}."
        )


def _check_four_eyes(run: Run, by: Actor) -> None:
    """Whoever had a hand in what is asked doesn't decide it, by whatever name or key they come."""
    if did := own_act(run, by.person, by.name):
        raise Forbidden(f"You {did}: somebody else has to decide this.")


def _expired(approval: Approval, now: datetime) -> Approval:
    """How an approval whose deadline has just passed is shown, before the sweeper has written it."""
    approval.decided_at = approval.deadline
    approval.expire()
    return approval


def _close(
    run: Run, wait: Wait, approval: Approval, verdict: str, *, by: Actor, justification: str, now: datetime
) -> None:
    """What a decision and an expiry have in common: close the question and its wait, wake the run, put it on record."""
    approval.decided_at = now
    approval.save(update_fields=["state", "decided_at"])
    resolve(wait, verdict, by=by.ref, now=now)
    wake(run, now=now)
    event = e.ApprovalDecided(
        slot=wait.slot, n=wait.n, approval_id=str(approval.id), verdict=verdict, plan_hash=approval.plan_hash,
        by=by.ref, role=by.role, payload={"justification": justification},
    )  # fmt: skip
    journal(run.id, event, by=by)


def expire(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """The deadline passed undecided, which denies. Called by the sweeper with everything locked."""
    approval = Approval.objects.select_for_update().get(wait=wait)
    approval.expire()
    _close(run, wait, approval, "expired", by=by, justification="No decision was made before the deadline.", now=now)


def register() -> None:
    """Plug gates into the engine's waits."""
    from approvals.store import REOPEN, WITHDRAW, opener

    if opener not in wait_hooks.gate_opener:
        wait_hooks.gate_opener.append(opener)
        wait_hooks.on_withdraw.append(WITHDRAW)
        wait_hooks.on_reopen.append(REOPEN)
    wait_hooks.on_due["approval"] = expire
    wait_hooks.queues.update(QUEUES)
