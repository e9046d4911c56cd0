"""Claim and release an approval.

Each act is one transaction under the approval's lock, so there are never more claims than votes needed, and none is
added after the decision. A claim has no effect on who may decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

from django.db import transaction
from pydantic import Field

from approvals.models import Approval, ApprovalState, Decision
from approvals.queues.standing import facts_of
from approvals.services import AlreadyDecided, check_deadline, require_standing
from approvals.votes import NOW, stages_of
from durableagents.contrib.casework.models import Claim
from durableagents.contrib.casework.queries import MAX_ACTIVE, MAX_MINUTES, ActiveClaim, active_claims
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from ledger.web.bodies import Strict
from runs.services.command import redraw

DEFAULT_MINUTES = 10
MAX_NAMED = 5  # how many names a sentence lists
Minutes = Annotated[int, Field(ge=1, le=MAX_MINUTES, description="Duration in minutes, from now.")]
ClaimId = Annotated[int | None, Field(ge=1, le=2**53 - 1, description="`id` of another person's claim to end.")]


class ClaimBody(Strict):
    """Duration of the claim, and the person whose claim it replaces if no place is free."""

    minutes: Minutes = DEFAULT_MINUTES
    take_over: ClaimId = None


class Claimed(DurableAgentsError):
    """All places for claims on the approval are taken. `claims` and `detail` tell by whom and until when."""

    status, code, title = 409, "claimed", "Already claimed"

    def __init__(self, others: Sequence[ActiveClaim]) -> None:
        sentences = " ".join(
            f"{one.by} has claimed it until {one.until:%Y-%m-%d %H:%M:%S} UTC." for one in others[:MAX_NAMED]
        )
        super().__init__(
            f"{sentences} Take the claim over, or decide without one.",
            claims=[{"id": one.id, "by": one.by, "until": one.until.isoformat()} for one in others],
        )


class NoClaim(DurableAgentsError):
    """There is no claim to release."""

    status, code, title = 409, "not-on-it", "You have no claim"

    def __init__(self, last: Claim | None) -> None:
        end = "" if last is None or last.ended_at is None else f": {_ended(last)} at {last.ended_at:%H:%M:%S} UTC"
        super().__init__(f"You have no claim on this{end}.")


def _ended(row: Claim) -> str:
    return f"{row.ended_by} took it over" if row.why == Claim.Why.TAKEN else "that ended"


@transaction.atomic
def claim(approval_id: UUID, *, by: Actor, minutes: int = DEFAULT_MINUTES, take_over: int | None = None) -> Claim:
    """Claim an open approval for some minutes from now, or extend your own claim to that time.

    `take_over` is the id of another person's claim, which ends. Raises NotFound, Claimed if all places are taken, and
    Forbidden, AlreadyVoted, AlreadyDecided as for a decision.
    """
    approval = _locked(approval_id)
    if approval.state != ApprovalState.OPEN:
        raise AlreadyDecided(approval)
    if by.person is None:
        raise Forbidden("Only a person with an account can claim an approval.")
    require_standing(approval, facts_of(approval, approval.run, by, frozenset([by.role]), locked=True), by)
    now = database_now()
    check_deadline(approval, approval.wait, now)
    others = [one for one in active_claims([approval.pk])[approval.pk] if one.person != by.person]
    if any(one.id == take_over for one in others):
        _end(Claim.objects.get(approval=approval, id=take_over or 0), Claim.Why.TAKEN, now, by=by.ref)
        others = [one for one in others if one.id != take_over]
    own = Claim.objects.filter(approval=approval, person=by.person, ended_at__isnull=True).first()
    is_active = own is not None and own.until > now
    if not is_active and len(others) >= _places(approval):
        raise Claimed(others)
    if not is_active:
        _end_lost_claims(approval, by.person, [one.id for one in others], now)
    until = now + timedelta(minutes=minutes)
    row = _extend(own, now, until) or Claim.objects.create(
        approval=approval, person=by.person, by=by.ref, role=by.role, at=now, until=until
    )
    redraw(approval.run_id)
    return row


@transaction.atomic
def release(approval_id: UUID, *, by: Actor) -> Claim:
    """Release the caller's own claim, even if they may no longer decide. Raises NotFound, NoClaim."""
    approval, now = _locked(approval_id), database_now()
    if by.person is None:
        raise NoClaim(None)
    mine = Claim.objects.filter(approval=approval, person=by.person).order_by("-at", "-id")
    own = mine.filter(ended_at__isnull=True, until__gt=now).first()
    if own is None:
        raise NoClaim(mine.first())
    _end(own, Claim.Why.LET_GO, now, by=by.ref)
    redraw(approval.run_id)
    return own


def _locked(approval_id: UUID) -> Approval:
    """Lock the approval's row. Raises NotFound.

    The claim comes last in the lock order, so nothing may be locked after it.
    """
    found = Approval.objects.select_related("run", "wait").select_for_update(of=("self",)).filter(pk=approval_id)
    approval = found.first()
    if approval is None:
        raise NotFound("approval", approval_id)
    return approval


def _places(approval: Approval) -> int:
    """Return how many people may claim the approval at once: as many as there are missing votes."""
    if approval.case_id is None:
        return 1
    decisions = list(Decision.objects.filter(approval=approval).select_related("approval"))
    return max([1, *(each.missing for each in stages_of([approval], decisions)[approval.pk] if each.state == NOW)])


def _extend(own: Claim | None, now: datetime, until: datetime) -> Claim | None:
    """Extend the open claim and return it. If it has lapsed, end it and return None."""
    if own is None:
        return None
    if own.until <= now:
        _end(own, Claim.Why.LAPSED, max(own.at, own.until))
        return None
    own.until = until
    own.save(update_fields=["until"])
    return own


def _end_lost_claims(approval: Approval, person: int, counted: Sequence[int], now: datetime) -> None:
    """End claims of people who can no longer decide, so that the claims don't revive if they regain the right."""
    rows = Claim.objects.filter(approval=approval, ended_at__isnull=True, until__gt=now)
    if len(counted) < MAX_ACTIVE:  # once MAX_ACTIVE claims are counted, there may be more that weren't read
        for row in rows.exclude(person=person).exclude(pk__in=counted)[:MAX_ACTIVE]:
            _end(row, Claim.Why.LAPSED, max(row.at, now))


def _end(row: Claim, why: Claim.Why, at: datetime, *, by: str = "") -> None:
    row.ended_at, row.ended_by, row.why = at, by, why
    row.save(update_fields=["ended_at", "ended_by", "why"])
