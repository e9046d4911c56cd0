"""Verify deadlines with terms against the journal: a record must explain each of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from approvals.deadlines import DeadlineChecks
from approvals.models import Approval
from durableagents.contrib.calendars import versions
from durableagents.contrib.calendars.progress import Progress, next_look, step
from durableagents.contrib.calendars.terms import Course, plus, resume_clock, stop_clock
from ledger import events as e
from ledger.clock import database_now
from ledger.verification.runs import SLACK, EventLine, ReadJournal, compared
from runs.engine.gating import timing
from runs.engine.tape import payload_of

if TYPE_CHECKING:
    from durableagents.contrib.calendars.clock import BusinessDeadlines


class TimeChecks(DeadlineChecks):
    """Checks one run's approvals against the progress and escalations in the journal."""

    def __init__(self, journal: ReadJournal, deadlines: BusinessDeadlines) -> None:
        super().__init__(journal, deadlines)
        self.clock = deadlines
        self.of: dict[str, Progress] = {}
        self.last_reminder: dict[str, int] = {}
        self.changed: dict[str, str] = {}  # by approval: the one whose plan it amends

    def see(self, line: EventLine) -> None:
        super().see(line)
        if isinstance(line.event, e.PlanAmended):
            self.changed[line.event.next] = line.event.approval_id

    def begin(self, id: str, deadline: datetime, at: datetime) -> None:
        self.of[id] = Progress(Course(deadline, since=at))
        self.courses[id] = self.of[id].course

    def knows(self, id: str) -> bool:
        return id in self.of

    def move(self, line: EventLine, id: str, event: e.Event) -> None:
        course, seq = self.of[id].course, line.seq
        match event:
            case e.ApprovalReminded():
                self.last_reminder[id] = seq
                deadline = datetime.fromisoformat(event.deadline)
                if event.cause != "no_deadline" and deadline != course.deadline:
                    self.wrong.append(f"event {seq}: a reminder of approval {id} changed its deadline")
                if event.cause == "no_deadline" and not course.is_endless:
                    self.wrong.append(f"event {seq}: approval {id} has a deadline, but stayed open beyond it")
                elif event.cause == "no_deadline":
                    self.check_not_early(line, id, "waited on")
            case e.ApprovalEscalated():
                if event.cause == "timeout":
                    self.check_not_early(line, id, f"went to {event.to}")
                self.wrong += self._wrong_step(seq, event)
            case e.InquiryMade() | e.InquiryEnded():
                self.wrong += self._wrong_clock(line, event)
            case _:
                pass
        step(self.of[id], id, event)
        self.courses[id] = self.of[id].course

    def answerable(self, course: timing.Course, at: datetime) -> datetime:
        if not isinstance(course, Course) or course.stop is None:
            return super().answerable(course, at)
        stopped = self.clock.stopped_in(course, self.journal.run_id, course.stop.at, at)
        return resume_clock(course, self.clock.calendar(course), at, stood=stopped)[0].deadline

    def _wrong_step(self, seq: int, event: e.ApprovalEscalated) -> Iterator[str]:
        """Check the queue and time of an escalation against the terms and their calendar."""
        terms, payload = self.of[event.approval_id].course.terms or {}, payload_of(event)
        steps, place = terms.get("steps", []), payload.get("step")
        named = steps[place] if isinstance(place, int) and 0 <= place < len(steps) else None
        if named is None or named["to"] != event.to:
            yield f"event {seq}: approval {event.approval_id} went to {event.to}, which its terms do not name"
            return
        if event.cause == "amended":
            known = self.of[event.approval_id]
            if event.to not in self._queues(self.changed.get(event.approval_id, "")):
                yield f"event {seq}: approval {event.approval_id} went to {event.to}, unlike the one that it amends"
            if datetime.fromisoformat(event.deadline) != known.course.deadline:
                yield f"event {seq}: approval {event.approval_id} got a wrong deadline at {event.to}"
            return
        at, calendar = datetime.fromisoformat(payload["at"]), versions.recorded_calendar(terms)
        right = (plus if calendar is None else calendar.after)(at, timedelta(minutes=named["minutes"]))
        if datetime.fromisoformat(event.deadline) != right:
            yield f"event {seq}: approval {event.approval_id} has deadline {event.deadline}, not {right.isoformat()}"

    def _queues(self, id: str) -> list[str]:
        return [event.to for _, event in self.went.get(id, [])]

    def _wrong_clock(self, line: EventLine, event: e.InquiryMade | e.InquiryEnded) -> Iterator[str]:
        """Check that a clock was stopped or resumed as its terms allow, and at the right time."""
        known, what = self.of[event.approval_id], f"event {line.seq}: the deadline of approval {event.approval_id}"
        course, calendar = known.course, self.clock.calendar(known.course)
        since = (course.stop.at if course.stop else course.since) or line.at
        stood = self.clock.stopped_in(course, self.journal.run_id, since, line.at)
        if isinstance(event, e.InquiryMade):
            right = stop_clock(course, known.due, calendar, _at(event, line), stood=stood)
        else:
            is_last = course.stop is not None and known.asked == {event.n}
            right = resume_clock(course, calendar, _at(event, line), stood=stood)[0] if is_last else None
        if (right is None) != (not event.deadline):
            yield f"{what} {'was paused' if event.deadline else 'resumed'}, which its terms do not allow"
        elif right is not None and abs(right.deadline - datetime.fromisoformat(event.deadline)) > SLACK:
            yield f"{what} gives until {event.deadline}, not {right.deadline.isoformat()}"

    def about(self, what: str, row: Approval) -> Iterator[str]:
        """Check the columns of an approval that concern time."""
        id = str(row.id)
        known, seq = self.of[id], self.last_reminder.get(id, 0)
        terms = known.course.terms
        went = self._queues(id)
        yield from compared(
            what,
            row,
            {
                "timing": None if terms is None else dict(terms),
                "escalated_to": went or None,
                "reminded": known.course.reminded,
            },
        )
        if not (self.journal.is_about(seq, row.reminded_at) if seq else row.reminded_at is None):
            yield f"{what}: the time of its last reminder differs from the journal's"
        yield from super().about(what, row)
        if row.look_at not in self._looks(id, known) and not self._is_looked_at_later(known, row):
            yield f"{what}: the time of its next reminder is wrong"

    def _is_looked_at_later(self, known: Progress, row: Approval) -> bool:
        next_ = next_look(known.due)
        if next_ is None or row.look_at is None:
            return False
        until, course = row.wait.resolved_at or database_now(), known.course
        stopped = self.clock.stopped_in(course, self.journal.run_id, course.since or until, until)
        return next_ < row.look_at <= self.clock.later(course, next_, stopped)

    def _looks(self, id: str, known: Progress) -> set[datetime | None]:
        """Return when the approval may be checked next: for a reminder, or because everybody may be away."""
        terms, found = known.course.terms or {}, {next_look(known.due)}
        if terms.get("at_once_if_away"):
            found.add(datetime.fromisoformat(terms["look_at"]))
            found |= {datetime.fromisoformat(payload_of(event)["at"]) for _, event in self.went.get(id, [])}
        return found


def _at(event: e.InquiryMade | e.InquiryEnded, line: EventLine) -> datetime:
    """Return the event's own time. The time of the event's journal line is slightly later."""
    clock = payload_of(event).get("clock")
    at = clock.get("at") if isinstance(clock, dict) else None
    return datetime.fromisoformat(at) if isinstance(at, str) else line.at
