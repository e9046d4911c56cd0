"""Delegate one question to a named person.

That person may decide it within the limits of both, and the two have one vote together. Each act is one transaction.
The principal may still decide, and may take the delegation back.
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import Approval, Delegation
from approvals.policy import No, judge
from approvals.queues.standing import facts_of
from approvals.queues.who import wrong
from durableagents.contrib.casework.common import by_whom, decider, free, lock_open_question, named
from durableagents.contrib.casework.inquiries import AlreadyEnded
from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.errors import Forbidden, InvalidInput, NotFound
from ledger.models import Event
from ledger.web.roles import roles
from runs import features
from runs.services.command import journal, show_to

MAX_OPEN, MAX_IN_ALL = 5, 40  # limit per question


class NotHeld(AlreadyEnded):
    """The delegation has already ended."""

    def __init__(self, row: Delegation) -> None:
        super(AlreadyEnded, self).__init__(f"The delegation was already ended by {by_whom(row)}.")


@transaction.atomic
def delegate(approval_id: UUID, *, to: str, justification: str, by: Actor) -> Delegation:
    """Let another person decide an open question on your behalf.

    Only people who may decide it by a role of their own may delegate it. `to` is the name of an account with a role
    other than auditor. Raises NotFound, Forbidden, InvalidInput, JustificationRequired, AlreadyDecided, AlreadyVoted,
    RecordDamaged; then nothing has changed.
    """
    found, authority = decider(approval_id, by)
    if authority.deputyship is not None:
        whom = authority.deputyship.principal.name
        raise Forbidden(f"You decide this on behalf of {whom}. So you can't delegate it further.")
    why, user = justified("delegate", justification), named(to, by)
    _must_be_new(approval_id, by.person, user.pk)
    principal = by.person
    assert principal is not None
    row = Delegation(
        approval=found.approval,
        run_id=found.run.pk,
        n=_number(found.approval, found.wait.slot),
        principal=principal,
        by=by.ref,
        role=by.role,
        deputy=user.pk,
        to=user.get_username(),
        reason=why,
        made_at=found.now,
    )
    row.seal()
    row.save(force_insert=True)
    _check(found.approval, user)
    acted(
        "delegate",
        by=by,
        head=found.head,
        subject=_subject(row),
        queue=found.approval.queue,
        justification=why,
        at=found.now,
    )
    event = e.ApprovalDelegated(
        slot=found.wait.slot,
        approval_id=str(approval_id),
        by=by.ref,
        role=by.role,
        principal=principal,
        to=row.to,
        person=user.pk,
        n=row.n,
        payload={"justification": why},
    )
    journal(found.run.pk, event, by=by)
    features.notify(
        features.Notification(
            kind="delegated",
            fact=f"{approval_id}:{row.n}",
            run_id=row.run_id,
            approval_id=approval_id,
            wait_id=found.wait.pk,
            person=user.pk,
        )
    )
    show_to(row.deputy)
    return row


def _must_be_new(approval_id: UUID, principal: int | None, deputy: int) -> None:
    """Check that this pair has no open delegation, and that the limits aren't exceeded. Raises InvalidInput."""
    rows = list(Delegation.objects.select_for_update().filter(approval=approval_id))
    if any(row.ended_at is None and (row.principal, row.deputy) == (principal, deputy) for row in rows):
        is_known = any(row.is_authentic for row in rows if (row.principal, row.deputy) == (principal, deputy))
        problem = (
            "already has it from you" if is_known else "has it through a row that this installation did not record"
        )
        raise wrong("to", problem, "someone else")
    rows = [row for row in rows if row.is_authentic]
    if len(rows) >= MAX_IN_ALL or sum(row.ended_at is None for row in rows) >= MAX_OPEN:
        raise wrong("to", f"would exceed the limit of {MAX_OPEN} at once, or {MAX_IN_ALL} in total", "take one back")


@transaction.atomic
def take_back(approval_id: UUID, n: int, *, justification: str, by: Actor) -> Delegation:
    """End a delegation, as its principal or deputy.

    Raises NotFound, Forbidden, AlreadyDecided, NotHeld, JustificationRequired.
    """
    unlocked = Delegation.objects.filter(approval=approval_id, n=n).first()
    if unlocked is None:
        raise NotFound("delegation", f"{approval_id}/{n}")
    if by.person is None or by.person not in (unlocked.principal, unlocked.deputy):
        raise Forbidden(
            f"Only {unlocked.by.partition(':')[2]}, who delegated it, and {unlocked.to} may end the delegation."
        )
    why, found = justified("delegate_end", justification), lock_open_question(approval_id, by)
    row = Delegation.objects.select_for_update().get(pk=unlocked.pk)
    if not row.is_authentic:
        raise NotFound("delegation", f"{approval_id}/{n}")
    if row.ended_at is not None:
        raise NotHeld(row)
    row.ended_at, row.ended_by = found.now, by.ref
    row.seal()
    row.save(update_fields=["ended_at", "ended_by", "code"])
    acted(
        "delegate_end",
        by=by,
        head=found.head,
        subject=_subject(row),
        queue=found.approval.queue,
        justification=why,
        at=found.now,
    )
    event = e.DelegationEnded(
        slot=found.wait.slot,
        approval_id=str(approval_id),
        by=by.ref,
        role=by.role,
        n=row.n,
        payload={"justification": why},
    )
    journal(found.run.pk, event, by=by)
    return row


def _number(approval: Approval, slot: str) -> int:
    """Return the next number at the slot: the journal's count, or a higher one if a forged row uses that number."""
    known = Event.objects.filter(run_id=approval.run_id, slot=slot, kind=e.ApprovalDelegated.KIND).count()
    return free(Delegation, approval.pk, known)


def _check(approval: Approval, user: User) -> None:
    """Check that the deputy could decide the question. Raises InvalidInput."""
    them = Actor("user", user.get_username(), person=user.pk)
    facts = facts_of(approval, approval.run, them, roles(user))
    found = judge(facts, approves=False)
    if isinstance(found, No):
        why = facts.who.own_act or facts.who.said
        reason = f"they {why}" if why else found.why.rstrip(".")
        problem = f"{user.get_username()} can't decide this: {reason}"
        errors = [{"field": "to", "problem": problem, "fix": "choose someone else"}]
        raise InvalidInput(f"{problem}. Choose someone else.", errors=errors)


def _subject(row: Delegation) -> str:
    return f"approval {row.approval_id} to {row.to}"
