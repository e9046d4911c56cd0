"""Compute the state of an approval's deadlines from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from approvals.deadlines import ended_during
from durableagents.contrib.calendars.terms import (
    Course,
    after_escalation,
    after_resume,
    after_stop,
    are_moments,
    first_look,
    terms_in,
)
from ledger import events as e
from runs.engine.tape import payload_of


@dataclass(slots=True)
class Progress:
    """The state of an approval's deadlines, from the journal of its slot.

    `reminders` and `escalations` are totals for all approvals at the slot, from which the next one gets its number.
    `went` lists the queues to which this approval was escalated, `asked` its open inquiries, and `due` its next
    reminders.
    """

    course: Course
    reminders: int = 0
    escalations: int = 0
    went: list[str] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)
    due: list[str] = field(default_factory=list)


def step(found: Progress, approval_id: str, event: e.Event) -> None:
    """Apply one event of the journal."""
    is_this, was = getattr(event, "approval_id", "") == approval_id, found.course
    match event:
        case e.ApprovalRequested() if is_this:
            found.course = Course(datetime.fromisoformat(event.deadline))
        case e.ApprovalTimed() if is_this:
            terms = terms_in(payload_of(event))
            found.course = replace(was, terms=terms)
            found.due = [] if terms is None else list(terms["remind_at"])
        case e.ApprovalReminded():
            found.reminders += 1
            if is_this:
                _reminded(found, event)
        case e.ApprovalEscalated():
            found.escalations += 1
            if is_this:
                found.went.append(event.to)
                deadline = datetime.fromisoformat(event.deadline)
                found.course, found.due = after_escalation(deadline, payload_of(event), was)
        case e.InquiryMade() if is_this:
            found.asked.add(event.n)
            found.course, found.due = after_stop(event.deadline, payload_of(event), was, found.due)
        case e.InquiryEnded() if is_this:
            found.asked.discard(event.n)
            found.course, found.due = after_resume(event.deadline, payload_of(event), was, found.due)
        case e.RunRetried() if (over := ended_during(event)) is not None:
            found.course = replace(was, over=(*was.over, over))
        case _:
            pass


def _reminded(found: Progress, event: e.ApprovalReminded) -> None:
    was, is_late = found.course, event.cause == "no_deadline"
    deadline = datetime.fromisoformat(event.deadline)
    at = payload_of(event).get("at") if is_late else None  # start of the period after which the next reminder is due
    since = datetime.fromisoformat(at) if isinstance(at, str) and are_moments([at]) else was.since
    found.course = replace(
        was, deadline=deadline, since=since, reminded=was.reminded + 1, reminded_late=was.reminded_late + is_late
    )
    if not is_late:
        of = payload_of(event).get("of")
        found.due = found.due[of if isinstance(of, int) else 1 :]


def next_look(due: Sequence[str]) -> datetime | None:
    """Return when the first of these reminders is due."""
    return first_look({"remind_at": list(due)})
