"""Read a question's deadline and next steps from its journal. The rows repeat it for lists and the sweeper, but no
decision relies on them: a forger could move a deadline there. Time events count only with a valid code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from approvals.calendars import asof
from approvals.guards import DecisionGuard
from approvals.models import Approval, Escalation
from ledger import events as e
from ledger.chain import body_hash
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.codes import is_authentic
from ledger.keys import code_key
from ledger.models import Event
from runs.engine.gating.calendars import Calendar
from runs.engine.gating.timing import (
    Course,
    Moved,
    after_escalation,
    after_resume,
    after_stop,
    are_moments,
    first_look,
    later_by,
    resume_clock,
    terms_in,
)
from runs.engine.tape import payload_of
from runs.models import Wait
from runs.services import halted_time
from runs.services.halted_time import stretches

_KINDS = [
    kind.KIND
    for kind in (
        e.ApprovalRequested,
        e.ApprovalTimed,
        e.ApprovalReminded,
        e.ApprovalEscalated,
        e.InquiryMade,
        e.InquiryEnded,
    )
]


@dataclass(slots=True)
class Read:
    """A question's state by the slot's journal. `reminders`, `escalations` and `inquiries` count those of all questions
    at the slot, to number the next. `went` are this one's further queues, `asked` its open inquiries, `due` its next
    reminders."""

    course: Course
    reminders: int = 0
    escalations: int = 0
    went: list[str] = field(default_factory=list)
    inquiries: int = 0
    asked: set[int] = field(default_factory=set)
    due: list[str] = field(default_factory=list)


def read(approval: Approval, wait: Wait) -> Read:
    asked = Event.objects.filter(run_id=approval.run_id, slot=wait.slot, kind__in=_KINDS)
    retried = Event.objects.filter(run_id=approval.run_id, kind=e.RunRetried.KIND)
    rows = asked.union(retried, all=True).order_by("seq")
    return fold(str(approval.id), approval.deadline, _authentic(rows))


def _authentic(rows: Iterable[Event]) -> Iterable[e.Event]:
    key = code_key()
    for row in rows:
        clear, sealed = bytes(row.clear), None if row.sealed is None else bytes(row.sealed)
        if row.kind != e.ApprovalRequested.KIND:
            body = body_hash(clear, sealed)
            if row.code is None or not is_authentic(key, row.run_id, row.seq, body, bytes(row.code)):
                continue
        yield e.decode(clear, unpack(sealed) if row.kind != e.ApprovalRequested.KIND else None)


def fold(approval_id: str, deadline: datetime, events: Iterable[e.Event]) -> Read:
    """Fold events in order. `deadline` is used if no event has one."""
    found = Read(Course(deadline))
    for event in events:
        step(found, approval_id, event)
    return found


def step(found: Read, approval_id: str, event: e.Event) -> None:
    """Apply one event."""
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
        case e.InquiryMade():
            found.inquiries += 1
            if is_this:
                found.asked.add(event.n)
                found.course, found.due = after_stop(event.deadline, payload_of(event), was, found.due)
        case e.InquiryEnded() if is_this:
            found.asked.discard(event.n)
            found.course, found.due = after_resume(event.deadline, payload_of(event), was, found.due)
        case e.RunRetried():
            over = over_in(event)
            found.course = was if over is None else replace(was, over=(*was.over, over))
        case _:
            pass


def over_in(event: e.RunRetried) -> tuple[datetime, datetime] | None:
    """Return when the run had ended, by the retry's record; None for older records."""
    over = payload_of(event).get("over")
    if not isinstance(over, list) or len(over) != 2 or not are_moments(over):
        return None
    return datetime.fromisoformat(over[0]), datetime.fromisoformat(over[1])


def _reminded(found: Read, event: e.ApprovalReminded) -> None:
    was, is_late = found.course, event.cause == "no_deadline"
    deadline = datetime.fromisoformat(event.deadline)
    at = payload_of(event).get("at") if is_late else None  # start of the next reminder's period
    since = datetime.fromisoformat(at) if isinstance(at, str) and are_moments([at]) else was.since
    found.course = replace(
        was, deadline=deadline, since=since, reminded=was.reminded + 1, reminded_late=was.reminded_late + is_late
    )
    if not is_late:
        of = payload_of(event).get("of")
        found.due = found.due[of if isinstance(of, int) else 1 :]


def calendar_now(course: Course) -> Calendar | None:
    """Return the calendar that counts its time now; None around the clock."""
    terms = course.terms or {}
    is_working = terms.get("is_working") or course.escalated or course.reminded_late
    return asof.recorded(terms) if is_working else None


def look_at(due: Sequence[str]) -> datetime | None:
    return first_look({"remind_at": list(due)})


def stood(course: Course, wait: Wait, now: datetime) -> timedelta:
    """Return how long its run was stopped since its time started or it was opened."""
    return stood_in(course, wait.run_id, course.since or wait.opened_at, now)


def stood_in(course: Course, run_id: UUID, since: datetime, until: datetime, *, by_wall: bool = False) -> timedelta:
    """Return how much of a question's time its run was halted or ended between two moments. Working time if its
    calendar counts, unless `by_wall`."""
    ended = ((max(from_, since), min(to, until)) for from_, to in course.over)
    all_ = sorted([*stretches(run_id, since, until), *ended])
    calendar, sum_, last = calendar_now(course) if all_ and not by_wall else None, timedelta(), since
    for from_, to in all_:
        if (from_ := max(from_, last)) < to:  # overlaps count once
            sum_ += (to - from_) if calendar is None else calendar.between(from_, to)
            last = to
    return sum_


def shifted(due: Sequence[str], course: Course, stood: timedelta) -> list[str]:
    return [later(course, datetime.fromisoformat(each), stood).isoformat() for each in due]


def runs_out(course: Course, wait: Wait, now: datetime) -> datetime:
    """Return when its time ends (or its next reminder) by journal and stops of its run; the rows could be forged."""
    return later(course, course.deadline, stood(course, wait, now))


def later(course: Course, at: datetime, stood: timedelta) -> datetime:
    return later_by(calendar_now(course))(at, stood) if stood else at


class InTime(DecisionGuard):
    """Nothing is decided after the effective deadline."""

    def is_late(self, approval: Approval, wait: Wait, now: datetime) -> bool:
        course = read(approval, wait).course
        if course.ends_at is None or min(approval.deadline, course.ends_at) > now:
            return False
        return until(course, approval, wait, now) <= now


TIMING = InTime()


def until(course: Course, approval: Approval, wait: Wait, now: datetime) -> datetime:
    """Return the effective deadline: the earlier of row and journal, extended by halts of the run."""
    return later(course, min(approval.deadline, course.deadline), stood(course, wait, now))


def put_off(approval: Approval, wait: Wait, deadline: datetime) -> None:
    approval.deadline = wait.deadline = deadline
    approval.save(update_fields=["deadline"])
    wait.save(update_fields=["deadline"])


def restart_deadline(approval: Approval, wait: Wait, deadline: datetime, now: datetime) -> None:
    """Restart the deadline from now, with earlier halts already included."""
    put_off(approval, wait, deadline)
    halted_time.count_from(wait, now)


def follow(wait: Wait) -> None:
    """Update a question's rows to its run's stops, by journal and calendar; with a margin during a halt."""
    if wait.resolved_at is not None:
        return
    approval, now = Approval.objects.select_for_update().get(wait=wait), database_now()
    ends, ahead = runs_out(read(approval, wait).course, wait, now), halted_time.ahead_of(wait)
    put_off(approval, wait, ends if ahead is None or ahead <= now else max(ends, ahead))


def went_to(approval: Approval, n: int, to: str, cause: str, deadline: datetime, now: datetime) -> None:
    """Insert the row of the `n`-th escalation."""
    row = Escalation(
        approval=approval,
        n=n,
        run_id=approval.run_id,
        queue=to,
        cause=cause,
        deadline=deadline,
        at=now,
    )
    row.seal()
    row.save(force_insert=True)


def look_again(approval: Approval, at: datetime | None) -> None:
    approval.look_at = at
    approval.save(update_fields=["look_at"])


def resumed(course: Course, run_id: UUID, now: datetime) -> tuple[Moved, timedelta]:
    """Return a stopped question's times after it resumes, and how long it was stopped."""
    assert course.stop is not None
    return resume_clock(course, calendar_now(course), now, stood=stood_in(course, run_id, course.stop.at, now))
