"""Deadlines of approvals: read from the journal, extended while the run is halted, and expired once passed."""

# The rows repeat a deadline for lists and the sweeper, but no decision relies on the rows, because a forger could
# change them.

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL

from approvals.guards import DecisionGuard
from approvals.models import Approval, ApprovalState, Escalation
from ledger import events as e
from ledger.chain import body_hash
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.codes import is_authentic
from ledger.keys import code_key
from ledger.models import Event
from ledger.verification.runs import SLACK, EventLine, ReadJournal, at_most_once, compared
from runs import features
from runs.engine.gating.timing import Course, Terms
from runs.engine.tape import payload_of
from runs.models import Wait
from runs.services import halted_time
from runs.services.halted_time import MAX_AHEAD, stretches

log = logging.getLogger("approvals.deadlines")
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


@dataclass(frozen=True, slots=True)
class MissedDeadline:
    """A missed deadline, and the queue that is asked next.

    `is_away`: all deciders were away, so nobody waited for the deadline.
    """

    at: datetime
    queue: str
    is_away: bool = False


@dataclass(frozen=True, slots=True)
class DeadlineTexts:
    """Sentences about an approval's time, for pages; each may be empty.

    `is_halted`: its run is halted, and the clock stopped.
    """

    counted: str = ""
    then: str = "If nobody decides by then, it is rejected."
    so_far: str = ""
    ended: str = ""
    is_endless: bool = False
    is_halted: bool = False
    missed: MissedDeadline | None = None


@dataclass(frozen=True, slots=True)
class MovedClock:
    """A deadline that was moved because the approval's clock was stopped or restarted.

    `record` is its entry in the journal; `look_at` is an earlier time at which the sweeper checks the approval.
    """

    deadline: datetime
    record: dict[str, Any]
    look_at: datetime | None


@dataclass(frozen=True, slots=True)
class Revision:
    """The terms of an approval's next revision.

    `carry` returns further events for the revision, given its row and the id of its wait.
    """

    terms: Terms
    carry: Callable[[Approval, UUID], Sequence[e.Event]] = lambda following, wait_id: ()


def time_events(approval: Approval, wait: Wait) -> Iterator[e.Event]:
    """Yield the slot's events that affect the approval's time, in order.

    Events other than requests are skipped unless they have a valid code.
    """
    rows = Event.objects.filter(run_id=approval.run_id, slot=wait.slot, kind__in=_KINDS)
    retried = Event.objects.filter(run_id=approval.run_id, kind=e.RunRetried.KIND)
    key = code_key()
    for row in rows.union(retried, all=True).order_by("seq"):
        clear, sealed = bytes(row.clear), None if row.sealed is None else bytes(row.sealed)
        if row.kind != e.ApprovalRequested.KIND:
            body = body_hash(clear, sealed)
            if row.code is None or not is_authentic(key, row.run_id, row.seq, body, bytes(row.code)):
                continue
        yield e.decode(clear, unpack(sealed) if row.kind != e.ApprovalRequested.KIND else None)


def ended_during(event: e.RunRetried) -> tuple[datetime, datetime] | None:
    """Return the period between the run's end and its retry, from the retry's record; None for older records."""
    try:
        from_, to = map(datetime.fromisoformat, payload_of(event)["over"])
    except (KeyError, TypeError, ValueError):
        return None
    return (from_, to) if from_.tzinfo and to.tzinfo else None


def put_off(approval: Approval, wait: Wait, deadline: datetime) -> None:
    """Set the deadline in the rows of approval and wait."""
    approval.deadline = wait.deadline = deadline
    approval.save(update_fields=["deadline"])
    wait.save(update_fields=["deadline"])


def restart_deadline(approval: Approval, wait: Wait, deadline: datetime, now: datetime) -> None:
    """Restart the deadline from now; `deadline` is already extended by earlier halts."""
    put_off(approval, wait, deadline)
    halted_time.count_from(wait, now)


class Deadlines:
    """Deadlines counted around the clock. An app may provide a subclass in its feature's `deadlines`."""

    def course(self, approval: Approval, wait: Wait) -> Course:
        """Return the history of an approval's deadline from the journal."""
        found = Course(approval.deadline)
        for event in time_events(approval, wait):
            found = _next(found, str(approval.id), event)
        return found

    def later(self, course: Course, at: datetime, by: timedelta) -> datetime:
        """Return the point in time at which the approval's clock has run for `by` since `at`."""
        return at + by

    def counter(self, course: Course) -> Callable[[datetime, datetime], timedelta]:
        """Return a function that returns how much of the approval's time lies between two points in time."""
        return lambda from_, to: to - from_

    def stopped_in(
        self, course: Course, run_id: UUID, since: datetime, until: datetime, *, by_wall: bool = False
    ) -> timedelta:
        """Return how much of an approval's time its run was halted or ended between two points in time.

        With `by_wall`, all time counts, whatever the approval's calendar.
        """
        ended = ((max(from_, since), min(to, until)) for from_, to in course.over)
        all_ = sorted([*stretches(run_id, since, until), *ended])
        counted = self.counter(course) if all_ and not by_wall else Deadlines.counter(self, course)
        sum_, last = timedelta(), since
        for from_, to in all_:
            if (from_ := max(from_, last)) < to:  # overlaps count once
                sum_ += counted(from_, to)
                last = to
        return sum_

    def stopped(self, course: Course, wait: Wait, now: datetime) -> timedelta:
        """Return how long the run was stopped since the approval's time started, or since the wait was opened."""
        return self.stopped_in(course, wait.run_id, course.since or wait.opened_at, now)

    def passes_at(self, course: Course, wait: Wait, now: datetime) -> datetime:
        """Return when the approval's time ends (or its next reminder is due), from its journal and the periods in which
        its run was stopped.

        Rows are ignored, because they could be forged.
        """
        stopped = self.stopped(course, wait, now)
        return self.later(course, course.deadline, stopped) if stopped else course.deadline

    def effective(self, approval: Approval, wait: Wait, now: datetime) -> tuple[datetime, timedelta]:
        """Return the effective deadline and the extension that it contains.

        This is the earlier of the row's and the journal's deadline, extended by the time the run was stopped.
        """
        return self._effective(self.course(approval, wait), approval, wait, now)

    def _effective(self, course: Course, approval: Approval, wait: Wait, now: datetime) -> tuple[datetime, timedelta]:
        deadline, stopped = min(approval.deadline, course.deadline), self.stopped(course, wait, now)
        ends = self.later(course, deadline, stopped) if stopped else deadline
        return ends, ends - deadline

    def is_late(self, approval: Approval, wait: Wait, now: datetime) -> bool:
        """Return whether the effective deadline has passed, so that nothing may be decided any more."""
        course = self.course(approval, wait)
        if course.ends_at is None or min(approval.deadline, course.ends_at) > now:
            return False
        return self._effective(course, approval, wait, now)[0] <= now

    def is_put_right(self, course: Course, approval: Approval, wait: Wait, now: datetime) -> bool:
        """Restore the journal's deadline in the rows if it has not passed. Return whether it was restored."""
        if (ends := self.passes_at(course, wait, now)) <= now:
            return False
        if ends == course.deadline:
            log.error(
                "run %s: the deadline of approval %s was changed outside the application and has been restored",
                approval.run_id,
                approval.id,
            )
        put_off(approval, wait, ends)
        return True

    def follow(self, wait: Wait) -> None:
        """Update the deadline in the rows from the journal and the time the run was stopped; during a halt, add a
        margin."""
        if wait.resolved_at is not None:
            return
        approval, now = Approval.objects.select_for_update().get(wait=wait), database_now()
        ends, upcoming = self.passes_at(self.course(approval, wait), wait, now), halted_time.ahead_of(wait)
        put_off(approval, wait, ends if upcoming is None or upcoming <= now else max(ends, upcoming))

    def stop_clock(self, approval: Approval, wait: Wait, now: datetime) -> MovedClock | None:
        """Return the changes that stop the clock during an inquiry; None if the clock keeps running."""
        return None

    def resume_clock(self, approval: Approval, wait: Wait, now: datetime) -> MovedClock | None:
        """Return the changes that restart the clock after the last inquiry; None if the clock was not stopped."""
        return None

    def revise(self, approval: Approval, wait: Wait, queue: str, now: datetime) -> Revision:
        """Return the terms of the next revision, which is requested from this queue."""
        return Revision(Terms(self.passes_at(self.course(approval, wait), wait, now)))

    def annotations(self) -> dict[str, RawSQL]:
        """Return the query annotations that pages need to show an approval's time."""
        halted = "approvals_approval.state = 'open' AND runs_halted_by(approvals_approval.run_id, NULL) IS NOT NULL"
        return {"is_halted": RawSQL(halted, [], output_field=BooleanField())}

    def texts(self, approval: Approval) -> DeadlineTexts:
        """Return the sentences that pages show about an approval's time."""
        is_expired = approval.state == ApprovalState.EXPIRED
        ended = "Nothing was sent. The agent is told that nobody answered." if is_expired else ""
        return DeadlineTexts(ended=ended, is_halted=bool(getattr(approval, "is_halted", False)))

    def checks(self, journal: ReadJournal) -> DeadlineChecks:
        """Return the checks of a run's deadlines against its journal."""
        return DeadlineChecks(journal, self)


PLAIN = Deadlines()


def deadlines() -> Deadlines:
    """Return the implementation of deadlines in this process: an app's, or the default."""
    return features.only(lambda each: each.deadlines) or PLAIN


class InTime(DecisionGuard):
    """Refuses decisions after the effective deadline."""

    def is_late(self, approval: Approval, wait: Wait, now: datetime) -> bool:
        return deadlines().is_late(approval, wait, now)


def _next(course: Course, id: str, event: e.Event) -> Course:
    """Return the deadline's history after an event.

    A deadline that an app has moved stays moved, even if the app is no longer installed.
    """
    match event:
        case e.ApprovalRequested(approval_id=about, deadline=deadline) if about == id:
            return Course(datetime.fromisoformat(deadline))
        case e.ApprovalReminded() | e.ApprovalEscalated() | e.InquiryMade() | e.InquiryEnded() if (
            event.approval_id == id and event.deadline
        ):
            return replace(course, deadline=datetime.fromisoformat(event.deadline))
        case e.RunRetried() if (over := ended_during(event)) is not None:
            return replace(course, over=(*course.over, over))
        case _:
            return course


class DeadlineChecks:
    """Checks that the records account for each deadline of a run.

    Approvals with terms are checked by the app that knows the terms.
    """

    def __init__(self, journal: ReadJournal, deadlines: Deadlines) -> None:
        self.journal = journal
        self.deadlines = deadlines
        self.courses: dict[str, Course] = {}
        self.with_terms: set[str] = set()
        self.went: dict[str, list[tuple[int, e.ApprovalEscalated]]] = {}
        self.most: dict[str, datetime] = {}  # latest deadline of an approval that follows an amendment
        self.ended: datetime | None = None  # when its run last ended
        self.wrong: list[str] = []

    def see(self, line: EventLine) -> None:
        """Apply one event."""
        match event := line.event:
            case e.ApprovalRequested(approval_id=id):
                deadline = datetime.fromisoformat(event.deadline)
                self.begin(id, deadline, line.at)
                if deadline > self.most.get(id, deadline):
                    self.wrong.append(f"event {line.seq}: approval {id} got more time than the approval that it amends")
            case e.ApprovalDecided(approval_id=id, verdict="expired") if self.knows(id):
                self.check_not_early(line, id, "expired")
            case e.ApprovalDecided(approval_id=id) | e.ApprovalVoted(approval_id=id) if self.knows(id):
                course = self.course_of(id)
                is_late = course.ends_at is not None and line.at > course.ends_at
                if is_late and line.at > self.answerable(course, line.at) + SLACK + MAX_AHEAD:
                    self.wrong.append(f"event {line.seq}: approval {id} was decided after its deadline")
            case e.PlanAmended(approval_id=id) if self.knows(id):
                self.most[event.next] = self.answerable(self.course_of(id), line.at) + SLACK
            case e.RunRetried():
                self.wrong += self.check_retry(line, event)
                for id in self.courses:
                    self.move(line, id, event)
            case e.ApprovalTimed() | e.ApprovalReminded() | e.ApprovalEscalated():
                if event.approval_id not in self.courses:
                    self.wrong.append(
                        f"event {line.seq} tells of approval {event.approval_id}, which no event requested"
                    )
                    return
                self.move(line, event.approval_id, event)
                if isinstance(event, e.ApprovalEscalated):
                    self.went.setdefault(event.approval_id, []).append((line.seq, event))
            case e.InquiryMade() | e.InquiryEnded() if event.approval_id in self.courses:
                self.move(line, event.approval_id, event)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                self.ended = line.at
            case _:
                pass

    def begin(self, id: str, deadline: datetime, at: datetime) -> None:
        """Start the history of an approval's deadline."""
        self.courses[id] = Course(deadline, since=at)

    def move(self, line: EventLine, id: str, event: e.Event) -> None:
        """Apply an event to the history of an approval's deadline."""
        self.with_terms |= {id} if isinstance(event, e.ApprovalTimed) else set()
        self.courses[id] = _next(self.courses[id], id, event)

    def knows(self, id: str) -> bool:
        """Return whether an approval's time can be checked here, because it has no terms that only an app knows."""
        return id in self.courses and id not in self.with_terms

    def course_of(self, id: str) -> Course:
        """Return the history of an approval's deadline from the journal."""
        return self.courses[id]

    def check_not_early(self, line: EventLine, id: str, what: str) -> None:
        """Check that a deadline didn't take effect early, for example because its row was moved."""
        if line.at < self.course_of(id).deadline:
            self.wrong.append(f"event {line.seq}: approval {id} {what} before its deadline")

    def check_retry(self, line: EventLine, event: e.RunRetried) -> Iterator[str]:
        """Check that the run had ended during the period that the retry records, which extends deadlines."""
        over = ended_during(event)
        if over is not None and (
            self.ended is None or abs(over[0] - min(self.ended, over[1])) > SLACK or abs(over[1] - line.at) > SLACK
        ):
            yield f"event {line.seq}: the run had not ended from {over[0].isoformat()} to {over[1].isoformat()}"

    def answerable(self, course: Course, at: datetime) -> datetime:
        """Return the latest time at which the approval may be decided, as known at the time `at`."""
        return self.latest(course, at)

    def latest(self, course: Course, until: datetime) -> datetime:
        """Return when the approval's time ends, extended by the time its run was stopped up to `until`.

        Older versions extended it by wall-clock time, so return the later of both results.
        """
        since, run_id = course.since or until, self.journal.run_id
        by_wall = self.deadlines.stopped_in(course, run_id, since, until, by_wall=True)
        stopped = self.deadlines.stopped_in(course, run_id, since, until)
        return max(course.deadline + by_wall, self.deadlines.later(course, course.deadline, stopped))

    def deadline(self, request: e.ApprovalRequested, row: Approval) -> datetime:
        """Return the present deadline: the journal's, or the row's if the time the run was stopped accounts for it."""
        course = self.course_of(request.approval_id)
        if row.deadline == course.deadline or not self.knows(request.approval_id):
            return row.deadline
        most = self.latest(course, row.wait.resolved_at or database_now())
        is_put_off = course.deadline < most and course.deadline < row.deadline <= most + MAX_AHEAD
        return row.deadline if is_put_off else course.deadline

    def about(self, what: str, row: Approval) -> Iterator[str]:
        """Check an approval's columns that concern time."""
        if self.knows(str(row.id)) and not self._is_of_its_wait(self.course_of(str(row.id)), row):
            yield f"{what}: its deadline differs from its wait's"

    def _is_of_its_wait(self, course: Course, row: Approval) -> bool:
        """Return whether approval and wait have the same deadline; after its end, the wait's may be later."""
        later = row.wait.deadline - row.deadline
        most = self.latest(course, row.wait.resolved_at) if row.wait.resolved_at is not None else None
        return not later or (most is not None and timedelta() < later and row.wait.deadline <= most + MAX_AHEAD)

    def escalations(self) -> Iterator[str]:
        """Compare escalation rows and events in both directions."""
        yield from self.wrong
        missing = {(id, n): recorded for id, all_ in self.went.items() for n, recorded in enumerate(all_, 1)}
        rows = list(self.journal.rows(Escalation, "id"))
        yield from at_most_once("the escalation of approval", [(str(row.approval_id), row.n) for row in rows])
        for row in rows:
            what, recorded = f"escalation {row.id}", missing.pop((str(row.approval_id), row.n), None)
            if recorded is None:
                yield f"{what} has no event"
                continue
            seq, event = recorded
            deadline = datetime.fromisoformat(event.deadline)
            yield from compared(what, row, {"queue": event.to, "cause": event.cause, "deadline": deadline})
            if not self.journal.is_about(seq, row.at):
                yield f"{what}: its time differs from that of its event"
            if not row.is_authentic:
                yield f"{what} was not written with this installation's key, or was changed"
        for id, n in missing:
            yield f"the escalation {n} of approval {id} has no row"

    def where(self, what: str, approval_id: str, terms: Any) -> Iterator[str]:
        """Check that an approval had been escalated to the queue at which a decision was made."""
        queue = terms.get("queue") if isinstance(terms, dict) else None
        if queue is not None and queue not in [event.to for _, event in self.went.get(approval_id, [])]:
            yield f"{what}: it was made at {queue}, which approval {approval_id} never reached"
