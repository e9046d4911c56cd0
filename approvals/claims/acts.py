"""Saying that one is on a case, and letting it go. Each is one verb in one transaction, under the question's lock: so
of many at once there are no more than there is room for, and none once it is decided.

Nothing is decided by it. Whoever may decide may do so whoever else is on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from approvals.claims.shown import MINUTES, MOST_ON, OnIt, on_each
from approvals.models import Approval, ApprovalState, Claim, Decision
from approvals.queues.standing import facts_of
from approvals.services import AlreadyDecided, closed_by_time, may_decide
from approvals.votes import NOW, stages_of
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from runs.services.command import show_anew

MOST_NAMED = 5  # in a sentence


class Claimed(DurableAgentsError):
    """As many are on it as it takes."""

    status, code, title = 409, "claimed", "Somebody is on it"

    def __init__(self, others: Sequence[OnIt]) -> None:
        said = " ".join(
            f"{one.by} is reading it until {one.until:%Y-%m-%d %H:%M:%S} UTC." for one in others[:MOST_NAMED]
        )
        super().__init__(
            f"{said} Take it over from them, or decide it all the same.",
            claims=[{"id": one.id, "by": one.by, "until": one.until.isoformat()} for one in others],
        )


class NotOnIt(DurableAgentsError):
    """There is nothing to let go."""

    status, code, title = 409, "not-on-it", "You are not on it"

    def __init__(self, last: Claim | None) -> None:
        how = "" if last is None or last.ended_at is None else f": {_ended(last)} at {last.ended_at:%H:%M:%S} UTC"
        super().__init__(f"You are not on it{how}.")


def _ended(row: Claim) -> str:
    return f"{row.ended_by} took it over" if row.why == Claim.Why.TAKEN else "that ended"


@transaction.atomic
def claim(approval_id: UUID, *, by: Actor, minutes: int = MINUTES, take_over: int | None = None) -> Claim:
    """Somebody who may decide an open question is on it for so many minutes from now on; who is on it already stays so
    for as many.

    `take_over` is the number of somebody else's claim, which ends by this. Raises NotFound, Claimed where as many are
    on it as words are missing; Forbidden, AlreadyVoted, AlreadyDecided, as deciding it would.
    """
    approval = _locked(approval_id)
    if approval.state != ApprovalState.OPEN:
        raise AlreadyDecided(approval)
    if by.person is None:
        raise Forbidden("Only somebody with an account can be on a case.")
    may_decide(approval, facts_of(approval, approval.run, by, frozenset([by.role]), locked=True), by)
    now = database_now()
    if (late := closed_by_time(approval, approval.wait, now)) is not None:
        raise late
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
    """Let go of a question that one is on. Whoever could not decide it any more may, too. Raises NotFound, NotOnIt."""
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
    """The question's row, which whoever decides or ends it locks last. Nothing that they lock before is waited for
    under it. Raises NotFound."""
    found = Approval.objects.select_related("run", "wait").select_for_update(of=("self",)).filter(pk=approval_id)
    approval = found.first()
    if approval is None:
        raise NotFound("approval", approval_id)
    return approval


def _room(approval: Approval) -> int:
    """How many may be on it: as many as words are missing."""
    if approval.case_id is None:
        return 1
    said = list(Decision.objects.filter(approval=approval).select_related("approval"))
    return max([1, *(each.missing for each in stages_of([approval], said)[approval.pk] if each.state == NOW)])


def _stay(own: Claim | None, now: datetime, until: datetime) -> Claim | None:
    """The claim that is open already, for longer. What has lapsed is marked as such, and makes way for another one."""
    if own is None:
        return None
    if own.until <= now:
        _end(own, Claim.Why.LAPSED, max(own.at, own.until))
        return None
    own.until = until
    own.save(update_fields=["until"])
    return own


def _end_what_is_none(approval: Approval, person: int, counted: Sequence[int], now: datetime) -> None:
    """Whoever could decide it no more is on nothing since, and made room: they are not on it again by being able to
    anew."""
    rows = Claim.objects.filter(approval=approval, ended_at__isnull=True, until__gt=now)
    if len(counted) < MOST_ON:  # else there may be more of them than are known
        for row in rows.exclude(person=person).exclude(pk__in=counted)[:MOST_ON]:
            _end(row, Claim.Why.LAPSED, max(row.at, now))


def _end(row: Claim, why: Claim.Why, at: datetime, *, by: str = "") -> None:
    row.ended_at, row.ended_by, row.why = at, by, why
    row.save(update_fields=["ended_at", "ended_by", "why"])
