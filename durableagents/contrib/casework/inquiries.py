"""Ask a named person about a case while the run keeps waiting.

The queue's settings may pause the deadline meanwhile. Each act is one transaction.
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from approvals.deadlines import MovedClock, deadlines, restart_deadline, time_events
from approvals.models import Approval, Inquiry
from approvals.queues.who import can_look, wrong
from durableagents.contrib.casework.common import OpenQuestion, by_whom, decider, free, lock_open_question, named
from ledger import events as e
from ledger.accounts import PROOF
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from runs import features
from runs.services.command import journal, show_to

MAX_OPEN, MAX_IN_ALL = 5, 40  # limit per question
ANSWERED, WITHDRAWN = "answered", "withdrawn"


class AlreadyEnded(DurableAgentsError):
    """The inquiry was already answered or withdrawn."""

    status, code, title = 409, "already-ended", "Already ended"

    def __init__(self, row: Inquiry) -> None:
        super().__init__(f"The inquiry was already {row.outcome or 'ended'} by {by_whom(row)}.")


@transaction.atomic
def ask(approval_id: UUID, *, to: str, question: str, by: Actor) -> Inquiry:
    """Ask somebody about an open question, as a person who may decide it.

    `to` is the name of an account with a role other than auditor. Raises NotFound, Forbidden, InvalidInput,
    JustificationRequired, AlreadyDecided, AlreadyVoted, RecordDamaged; then nothing has changed.
    """
    found, _ = decider(approval_id, by)
    text, user = justified("inquiry", question, field="question"), named(to, by)
    rows = [row for row in Inquiry.objects.filter(approval=found.approval.pk) if row.is_authentic]
    if len(rows) >= MAX_IN_ALL or sum(row.ended_at is None for row in rows) >= MAX_OPEN:
        many = f"would exceed the limit of {MAX_OPEN} open inquiries, or {MAX_IN_ALL} in total"
        raise wrong("to", many, "decide, or withdraw one")
    made, _ = _in_journal(found)
    moved = deadlines().stop_clock(found.approval, found.wait, found.now)
    n, asker = free(Inquiry, found.approval.pk, made), by.person
    assert asker is not None
    row = Inquiry(
        approval=found.approval,
        run_id=found.run.pk,
        n=n,
        asker=asker,
        by=by.ref,
        role=by.role,
        person=user.pk,
        to=user.get_username(),
        question=text,
        stops_clock=moved is not None,
        at=found.now,
    )
    row.seal()
    row.save(force_insert=True)
    event = e.InquiryMade(
        slot=found.wait.slot,
        approval_id=str(found.approval.pk),
        by=by.ref,
        role=by.role,
        to=user.get_username(),
        person=user.pk,
        deadline="" if moved is None else moved.deadline.isoformat(),
        n=n,
        payload={"question": text} | ({} if moved is None else {"clock": moved.record}),
    )
    _store_inquiry(found, moved)
    acted(
        "inquiry",
        by=by,
        head=found.head,
        subject=_subject(found.approval, user.get_username()),
        queue=found.approval.queue,
        justification=text,
        at=found.now,
    )
    journal(found.run.pk, event, by=by)
    _tell("inquiry", row, row.person)
    show_to(row.person)
    return row


@transaction.atomic
def answer(approval_id: UUID, n: int, *, answer: str, by: Actor) -> Inquiry:
    """Answer an inquiry, as the person who was asked. Raises the same errors as `ask`, and AlreadyEnded."""
    row = _find(approval_id, n)
    if by.person is None or row.person != by.person:
        raise Forbidden(f"Only {row.to}, who was asked, may answer.")
    user = User.objects.filter(pk=by.person, is_active=True).annotate(proof=PROOF).first()
    if user is None or not can_look(user):
        raise Forbidden("You no longer have a role that may answer.")
    text = justified("answer", answer, field="answer")
    return _end(approval_id, n, ANSWERED, text, by=by)


@transaction.atomic
def withdraw(approval_id: UUID, n: int, *, justification: str, by: Actor) -> Inquiry:
    """Withdraw an inquiry, as the person who asked. Raises as `answer`."""
    row = _find(approval_id, n)
    if by.person is None or row.asker != by.person:
        raise Forbidden(f"Only {row.by.partition(':')[2]}, who asked, may withdraw this.")
    return _end(approval_id, n, WITHDRAWN, justified("inquiry_withdraw", justification), by=by)


def _find(approval_id: UUID, n: int) -> Inquiry:
    row = Inquiry.objects.filter(approval=approval_id, n=n).first()
    if row is None or not row.is_authentic:
        raise NotFound("inquiry", f"{approval_id}/{n}")
    return row


def _end(approval_id: UUID, n: int, outcome: str, text: str, *, by: Actor) -> Inquiry:
    found = lock_open_question(approval_id, by)
    row = Inquiry.objects.select_for_update().get(approval=approval_id, n=n)
    if not row.is_authentic:
        raise NotFound("inquiry", f"{approval_id}/{n}")
    if row.ended_at is not None:
        raise AlreadyEnded(row)
    _, open_ = _in_journal(found)
    moved = deadlines().resume_clock(found.approval, found.wait, found.now) if open_ == {n} else None
    clock = {} if moved is None else {"clock": moved.record}
    row.outcome, row.answer, row.ended_by, row.ended_at = outcome, text, by.ref, found.now
    row.seal()
    row.save(update_fields=["outcome", "answer", "ended_by", "ended_at", "code"])
    event = e.InquiryEnded(
        slot=found.wait.slot,
        approval_id=str(approval_id),
        outcome=outcome,
        by=by.ref,
        role=by.role,
        deadline="" if moved is None else moved.deadline.isoformat(),
        n=n,
        payload={"answer": text} | clock,
    )
    _store_inquiry(found, moved)
    acted(
        "inquiry_answer" if outcome == ANSWERED else "inquiry_withdraw",
        by=by,
        head=found.head,
        subject=_subject(found.approval, row.to),
        queue=found.approval.queue,
        justification=text,
        at=found.now,
    )
    journal(found.run.pk, event, by=by)
    if outcome == ANSWERED:
        _tell("inquiry_answer", row, row.asker)
    show_to(row.asker)
    return row


def _subject(approval: Approval, to: str) -> str:
    return f"a question to {to} about approval {approval.pk}"


def _tell(kind: str, row: Inquiry, person: int) -> None:
    features.notify(
        features.Notification(
            kind=kind,
            fact=f"{row.approval_id}:{row.n}",
            run_id=row.run_id,
            approval_id=row.approval_id,
            person=person,
            about=str(row.n),
        )
    )


def _in_journal(found: OpenQuestion) -> tuple[int, set[int]]:
    """Return how many inquiries the slot's journal has, and the numbers of the open ones of this approval."""
    made, open_ = 0, set()
    for event in time_events(found.approval, found.wait):
        match event:
            case e.InquiryMade():
                made += 1
                open_ |= {event.n} if event.approval_id == str(found.approval.pk) else set()
            case e.InquiryEnded() if event.approval_id == str(found.approval.pk):
                open_.discard(event.n)
            case _:
                pass
    return made, open_


def _store_inquiry(found: OpenQuestion, moved: MovedClock | None) -> None:
    if moved is not None:
        restart_deadline(found.approval, found.wait, moved.deadline, found.now)
        if found.approval.look_at is None or found.approval.look_at > found.now:
            found.approval.look_at = moved.look_at
            found.approval.save(update_fields=["look_at"])
