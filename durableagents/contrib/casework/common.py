"""Shared by inquiries and delegations: lock an open question, and check the person who may decide it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Annotated
from uuid import UUID

from django.contrib.auth.models import User
from pydantic import Field

from approvals.models import Approval, ApprovalState, Delegation, Inquiry
from approvals.policy import Authority
from approvals.queues.acts import Name
from approvals.queues.standing import facts_of
from approvals.queues.who import account, can_look, check_text, wrong
from approvals.services import AlreadyDecided, check_deadline, locked_question, require_standing
from ledger.actors import Actor
from ledger.append import MAX_JUSTIFICATION
from ledger.clock import database_now
from ledger.errors import Forbidden, NotFound
from ledger.models import Head
from ledger.web.bodies import Strict
from runs.models import Run, Wait
from runs.services.bodies import SteerBody

Words = Annotated[str, Field(max_length=MAX_JUSTIFICATION)]


class InquiryBody(Strict):
    """The request body of an inquiry about an approval."""

    to: Annotated[Name, Field(description="User name of the person to ask.")]
    question: Words = Field(description="Text of the question.")


class AnswerBody(Strict):
    """The answer to an inquiry."""

    answer: Words = Field(description="Text of the answer.")


class DelegationBody(SteerBody):
    """The person who may decide an approval instead of the caller."""

    to: Annotated[Name, Field(description="User name of the person who may decide it.")]


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An open question with its run, head and wait, locked."""

    head: Head
    run: Run
    wait: Wait
    approval: Approval
    now: datetime


def lock_open_question(approval_id: UUID, by: Actor) -> OpenQuestion:
    """Lock an open question. Raises NotFound, AlreadyDecided, RecordDamaged."""
    unlocked = Approval.objects.select_related("run").filter(pk=approval_id).first()
    if unlocked is None:
        raise NotFound("approval", approval_id)
    if unlocked.state != ApprovalState.OPEN:
        raise AlreadyDecided(unlocked)
    head, run, wait, approval = locked_question(unlocked, by)
    now = database_now()
    check_deadline(approval, wait, now)
    return OpenQuestion(head, run, wait, approval, now)


def decider(approval_id: UUID, by: Actor) -> tuple[OpenQuestion, Authority]:
    """Lock an open question for a person who may decide it.

    Raises the errors of `lock_open_question`, and Forbidden, AlreadyVoted.
    """
    unlocked = Approval.objects.select_related("run").filter(pk=approval_id).first()
    if unlocked is None:
        raise NotFound("approval", approval_id)
    require_standing(unlocked, facts_of(unlocked, None, by, frozenset([by.role])), by)
    if by.person is None:
        raise Forbidden("Only a person with an account can ask about an approval or delegate it.")
    found = lock_open_question(approval_id, by)
    facts = facts_of(found.approval, found.run, by, frozenset([by.role]), locked=True)
    return found, require_standing(found.approval, facts, by)


def by_whom(row: Inquiry | Delegation) -> str:
    return f"{row.ended_by}{f' at {row.ended_at:%Y-%m-%d %H:%M:%S} UTC' if row.ended_at else ''}"


def free(model: type[Inquiry | Delegation], approval_id: UUID, n: int) -> int:
    """Return the first number from `n` on that no row uses.

    `n` is the journal's count; forged rows may have used more.
    """
    taken = set(model.objects.filter(approval=approval_id, n__gte=n).values_list("n", flat=True))
    return next(each for each in count(n) if each not in taken)


def named(name: str, by: Actor) -> User:
    """Return another person's account that has access to the console. Raises InvalidInput."""
    user = account("to", name, "whom you name")
    if user.pk == by.person:
        raise wrong("to", "is yourself", "someone else", "whom you name")
    if not can_look(user):
        raise wrong(
            "to", "has no role that gives access to it", "someone with another role than auditor", "whom you name"
        )
    check_text("to", user.get_username(), most=150)
    return user
