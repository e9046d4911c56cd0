"""Deciding: one verb, one transaction, one winner."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from approvals.models import Approval, ApprovalState, Decision
from approvals.policy import VERDICTS, Facts, No, Standing, judge
from approvals.queues.along import FACTS
from approvals.queues.standing import facts_of, told
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
from runs.services.command import journal, locked, resolve, snapshot, wake

# How long a yes may lie unused: a run that is paused for longer has to ask again.
SECOND_FACTORS = ("+totp", "+recovery_code")  # by which an actor's `auth` ends
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
    facts = facts_of(approval, approval.run, somebody, frozenset(held))
    return replace(somebody, role=_standing(facts, approves=False).role)


def _standing(facts: Facts, *, approves: bool) -> Standing:
    """Raises Forbidden, which says why not."""
    found = judge(facts, approves=approves)
    if isinstance(found, No):
        raise Forbidden(found.why)
    return found


@transaction.atomic
def decide(approval_id: UUID, *, verdict: str, plan_hash: str, justification: str, by: Actor) -> Approval:
    """Approve or reject exactly the plan that was read.

    Raises NotFound, Forbidden, InvalidInput, JustificationRequired, AlreadyDecided, StalePlan, RecordDamaged; then
    nothing has changed.
    """
    unlocked = Approval.objects.filter(pk=approval_id).first()
    if unlocked is None:
        raise NotFound("approval", approval_id)
    _check_authority(facts_of(unlocked, None, by, frozenset([by.role])), by)
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
    # Judged anew, and this is what counts: before the locks were won they may have steered the run themselves, or have
    # lost their role, their limit or the place that they stand in.
    facts = facts_of(approval, run, by, frozenset([by.role]), locked=True)
    now, before = database_now(), snapshot(run, head)
    standing = _standing(facts, approves=verdict == "approve")
    _must_be_as(standing.role, facts, by)
    _must_be_strong(standing, by)
    terms = told(standing, facts.asked)
    if (late := closed_by_time(approval, wait, now)) is not None:
        raise late
    if plan_hash != approval.plan_hash or not reads_as_hashed(approval):
        raise StalePlan(approval)
    if verdict == "approve":
        approval.approve()
        wait.grant_hash, wait.grant_expires_at = approval.plan_hash, now + GRANT_LIVES
    else:
        approval.reject()
    _close(run, wait, approval, VERDICTS[verdict], by=by, justification=text, now=now, terms=terms)
    decision = Decision(
        approval=approval, verdict=verdict, plan_hash=plan_hash, justification=text, by=by.ref, person=by.person,
        role=by.role, auth=by.auth, address=by.address, seq=head.seq, chain=bytes(head.chain), before=before,
        after=snapshot(run, head), standing=terms, at=now,
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


def reads_as_hashed(approval: Approval) -> bool:
    """Whether the bytes that the page shows are those that the hash binds. The database keeps them; this does not rely
    on it."""
    try:
        return hasher()(json.loads(bytes(approval.plan))) == approval.plan_hash
    except ValueError:
        return False


def may_decide(facts: Facts, by: Actor) -> Standing:
    """Raises Forbidden for whoever may not decide there at all, or acts under another role than the queue's, or in
    another's place without having shown what the other would have to show."""
    standing = _standing(facts, approves=False)
    _must_be_as(standing.role, facts, by)
    _must_be_strong(standing, by)
    return standing


def _check_authority(facts: Facts, by: Actor) -> None:
    """Raises Forbidden for whoever may not decide there at all, or acts under another role than the queue's."""
    _must_be_as(_standing(facts, approves=False).role, facts, by)


def closed_by_time(approval: Approval, wait: Wait, now: datetime) -> AlreadyDecided | None:
    """What to raise where its deadline has just passed."""
    return AlreadyDecided(_expired(approval, now)) if _deadline(approval, wait) <= now else None


def _must_be_as(role: str, facts: Facts, by: Actor) -> None:
    if by.role != role:
        raise Forbidden(f"Only {role} decides in {facts.name}; you act as {by.role or 'no role'}.")


def _must_be_strong(standing: Standing, by: Actor) -> None:
    """Whoever decides in another's place has shown what the other would have to show. Raises Forbidden."""
    is_wanted = any(fnmatchcase(standing.role, pattern) for pattern in settings.DURABLEAGENTS.second_factor_roles)
    in_place = standing.deputyship is not None and by.kind == "user"
    if is_wanted and in_place and not by.auth.endswith(SECOND_FACTORS):
        raise Forbidden(f"Who decides as {standing.role} signs in with a second factor: set one up, and sign in anew.")


def _expired(approval: Approval, now: datetime) -> Approval:
    """How an approval whose deadline has just passed is shown, before the sweeper has written it."""
    approval.decided_at = approval.deadline
    approval.expire()
    return approval


def _close(
    run: Run, wait: Wait, approval: Approval, verdict: str, *, by: Actor, justification: str, now: datetime,
    terms: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """What a decision and an expiry have in common: close the question and its wait, wake the run, put it on record."""
    approval.decided_at = now
    approval.save(update_fields=["state", "decided_at"])
    resolve(wait, verdict, by=by.ref, now=now)
    wake(run, now=now)
    payload = {"justification": justification} | ({} if terms is None else {"standing": terms})
    event = e.ApprovalDecided(
        slot=wait.slot, n=wait.n, approval_id=str(approval.id), verdict=verdict, plan_hash=approval.plan_hash,
        by=by.ref, role=by.role, payload=payload,
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
    wait_hooks.queues.statement = FACTS
