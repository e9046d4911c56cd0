"""Claim and release a case. Each is one transaction under the question's lock, so claims never exceed the places and
none is added after the decision. A claim decides nothing: others may decide anyway."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from approvals.claims.shown import MINUTES, MOST_ON, OnIt, on_each
from approvals.models import Approval, ApprovalState, Claim, Decision
from approvals.queues.standing import facts_of
from approvals.services import AlreadyDecided, check_deadline, require_standing
from approvals.votes import NOW, stages_of
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from runs.services.command import show_anew

MOST_NAMED = 5  # in a sentence


class Claimed(DurableAgentsError):
    """All places on the case are taken."""

    status, code, title = 409, "claimed", "Already claimed"

    def __init__(self, others: Sequence[OnIt]) -> None:
        said = " ".join(
            f"{one.by} has claimed it until {one.until:%Y-%m-%d %H:%M:%S} UTC." for one in others[:MOST_NAMED]
        )
        super().__init__(
            f"{said} Take the claim over, or decide without one.",
            claims=[{"id": one.id, "by": one.by, "until": one.until.isoformat()} for one in others],
        )


class NotOnIt(DurableAgentsError):
    """There is no claim to release."""

    status, code, title = 409, "not-on-it", "You have no claim"

    def __init__(self, last: Claim | None) -> None:
        how = "" if last is None or last.ended_at is None else f": {_ended(last)} at {last.ended_at:%H:%M:%S} UTC"
        super().__init__(f"You have no claim on this{how}.")


def _ended(row: Claim) -> str:
    return f"{row.ended_by} took it over" if row.why == Claim.Why.TAKEN else "that ended"


@transaction.atomic
def claim(approval_id: UUID, *, by: Actor, minutes: int = MINUTES, take_over: int | None = None) -> Claim:
    """Claim an open question for so many minutes from now, or extend the own claim to that. `take_over` is the id of
    another's claim, which ends. Raises NotFound, Claimed if all places are taken; Forbidden, AlreadyVoted,
    AlreadyDecided as deciding would."""
    approval = _locked(approval_id)
    if approval.state != ApprovalState.OPEN:
        raise AlreadyDecided(approval)
    if by.person is None:
        raise Forbidden("Only a person with an account can claim an approval.")
    require_standing(approval, facts_of(approval, approval.run, by, frozenset([by.role]), locked=True), by)
    now = database_now()
    check_deadline(approval, approval.wait, now)
    others = [one for one in on_each([approval.pk])[approval.pk] if one.person != by.person]
    if any(one.id == take_over for one in others):
        _end(Claim.objects.get(approval=approval, id=take_over or 0), Claim.Why.TAKEN, now, by=by.ref)
        others = [one for one in others if one.id != take_over]
    own = Claim.objects.filter(approval=approval, person=by.person, ended_at__isnull=True).first()
    is_on_it = own is not None and own.until > now
    if not is_on_it and len(others) >= _room(approval):
        raise Claimed(others)
    if not is_on_it:
        _end_what_is_none(approval, by.person, [one.id for one in others], now)
    until = now + timedelta(minutes=minutes)
    row = _stay(own, now, until) or Claim.objects.create(
        approval=approval, person=by.person, by=by.ref, role=by.role, at=now, until=until
    )
    show_anew(approval.run_id)
    return row


@transaction.atomic
def release(approval_id: UUID, *, by: Actor) -> Claim:
    """Release the own claim, even without the right to decide any more. Raises NotFound, NotOnIt."""
    approval, now = _locked(approval_id), database_now()
    if by.person is None:
        raise NotOnIt(None)
    mine = Claim.objects.filter(approval=approval, person=by.person).order_by("-at", "-id")
    own = mine.filter(ended_at__isnull=True, until__gt=now).first()
    if own is None:
        raise NotOnIt(mine.first())
    _end(own, Claim.Why.LET_GO, now, by=by.ref)
    show_anew(approval.run_id)
    return own


def _locked(approval_id: UUID) -> Approval:
    """Lock the question's row: last in the lock order, so nothing else may be locked under it. Raises NotFound."""
    found = Approval.objects.select_related("run", "wait").select_for_update(of=("self",)).filter(pk=approval_id)
    approval = found.first()
    if approval is None:
        raise NotFound("approval", approval_id)
    return approval


def _room(approval: Approval) -> int:
    """Return the number of places: the votes still missing."""
    if approval.case_id is None:
        return 1
    said = list(Decision.objects.filter(approval=approval).select_related("approval"))
    return max([1, *(each.missing for each in stages_of([approval], said)[approval.pk] if each.state == NOW)])


def _stay(own: Claim | None, now: datetime, until: datetime) -> Claim | None:
    """Extend the open claim and return it. A lapsed one is ended, and None returned."""
    if own is None:
        return None
    if own.until <= now:
        _end(own, Claim.Why.LAPSED, max(own.at, own.until))
        return None
    own.until = until
    own.save(update_fields=["until"])
    return own


def _end_what_is_none(approval: Approval, person: int, counted: Sequence[int], now: datetime) -> None:
    """End claims of people who can no longer decide, so that regaining the right doesn't revive them."""
    rows = Claim.objects.filter(approval=approval, ended_at__isnull=True, until__gt=now)
    if len(counted) < MOST_ON:  # else there may be more of them than are known
        for row in rows.exclude(person=person).exclude(pk__in=counted)[:MOST_ON]:
            _end(row, Claim.Why.LAPSED, max(row.at, now))


def _end(row: Claim, why: Claim.Why, at: datetime, *, by: str = "") -> None:
    row.ended_at, row.ended_by, row.why = at, by, why
    row.save(update_fields=["ended_at", "ended_by", "why"])
