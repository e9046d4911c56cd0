"""Verify deadlines against the journal: each is explained by a record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from approvals.calendars import asof
from approvals.models import Approval, Escalation
from approvals.timing.course import Read, calendar_now, later, look_at, over_in, step, stood_in
from ledger import events as e
from ledger.clock import database_now
from ledger.verification.runs import SLACK, Line, ReadJournal, at_most_once, compared
from runs.engine.gating.timing import Course, plus, resume_clock, stop_clock
from runs.engine.tape import payload_of
from runs.services.halted_time import MAX_AHEAD


class Times:
    """One run's questions: progress and escalations by the journal."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.of: dict[str, Read] = {}
        self.timed: dict[str, int] = {}
        self.last_reminder: dict[str, int] = {}
        self.went: dict[str, list[tuple[int, e.ApprovalEscalated]]] = {}
        self.most: dict[str, datetime] = {}  # latest deadline of a question that follows an amendment
        self.carried: dict[str, list[str]] = {}  # and the queues it inherits
        self.wrong: list[str] = []
        self.ended: datetime | None = None  # when its run last ended

    def see(self, line: Line) -> None:
        """Apply one event."""
        event = line.event
        match event:
            case e.ApprovalRequested(approval_id=id):
                deadline = datetime.fromisoformat(event.deadline)
                self.of[id] = Read(Course(deadline, since=line.at))
                if deadline > self.most.get(id, deadline):
                    self.wrong.append(f"event {line.seq}: approval {id} got more time than what it is a change of had")
            case e.ApprovalDecided(approval_id=id, verdict="expired") if id in self.of:
                self._too_early(line, id, "expired")
            case e.ApprovalDecided(approval_id=id) | e.ApprovalVoted(approval_id=id) if id in self.of:
                course = self.of[id].course
                is_late = course.ends_at is not None and line.at > course.ends_at
                if is_late and line.at > self._latest(line, course) + MAX_AHEAD:
                    self.wrong.append(f"event {line.seq}: approval {id} was decided after its time was over")
            case e.PlanAmended(approval_id=id, next=next) if id in self.of:
                self.most[next] = self._latest(line, self.of[id].course)
                self.carried[next] = list(self.of[id].went)
            case e.ApprovalTimed() | e.ApprovalReminded() | e.ApprovalEscalated():
                self._see(line, event)
            case e.RunRetried():
                self.wrong += self._wrong_rest(line, event)
                for id in self.of:
                    step(self.of[id], id, event)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                self.ended = line.at
            case e.InquiryMade() | e.InquiryEnded() if event.approval_id in self.of:
                self.wrong += self._wrong_clock(line, event)
                step(self.of[event.approval_id], event.approval_id, event)
            case _:
                pass

    def _too_early(self, line: Line, id: str, what: str) -> None:
        """Check that a deadline's consequence didn't come before it, as by moving its row."""
        if line.at < self.of[id].course.deadline:
            self.wrong.append(f"event {line.seq}: approval {id} {what} before its time was over")

    def _latest(self, line: Line, course: Course) -> datetime:
        if course.stop is not None:
            stood = stood_in(course, self.journal.run_id, course.stop.at, line.at)
            return resume_clock(course, calendar_now(course), line.at, stood=stood)[0].deadline + SLACK
        return self._runs_out(course, line.at) + SLACK

    def _runs_out(self, course: Course, until: datetime) -> datetime:
        """Return when its time ends with its run's stops until then. Older versions counted wall-clock time instead."""
        by_wall = stood_in(course, self.journal.run_id, course.since or until, until, by_wall=True)
        return max(course.deadline + by_wall, later(course, course.deadline, self._stood(course, until)))

    def _stood(self, course: Course, until: datetime) -> timedelta:
        return stood_in(course, self.journal.run_id, course.since or until, until)

    def _wrong_rest(self, line: Line, event: e.RunRetried) -> Iterator[str]:
        """Check that the run had ended as a retry says: nothing else extends deadlines."""
        over = over_in(event)
        if over is not None and (
            self.ended is None or abs(over[0] - min(self.ended, over[1])) > SLACK or abs(over[1] - line.at) > SLACK
        ):
            yield f"event {line.seq}: the run had not ended from {over[0].isoformat()} to {over[1].isoformat()}"

    def _see(self, line: Line, event: e.ApprovalTimed | e.ApprovalReminded | e.ApprovalEscalated) -> None:
        seq, id = line.seq, event.approval_id
        if id not in self.of:
            self.wrong.append(f"event {seq} tells of approval {id}, which nobody asked for")
            return
        match event:
            case e.ApprovalTimed():
                self.timed[id] = seq
            case e.ApprovalReminded():
                self.last_reminder[id] = seq
                deadline, now = datetime.fromisoformat(event.deadline), self.of[id].course
                if event.cause != "no_deadline" and deadline != now.deadline:
                    self.wrong.append(f"event {seq}: a reminder of approval {id} moved its deadline")
                if event.cause == "no_deadline" and not now.is_endless:
                    self.wrong.append(f"event {seq}: approval {id} has a deadline, and waited on beyond it")
                elif event.cause == "no_deadline":
                    self._too_early(line, id, "waited on")
            case e.ApprovalEscalated():
                if event.cause == "timeout":
                    self._too_early(line, id, f"went to {event.to}")
                self.went.setdefault(id, []).append((seq, event))
                self.wrong += self._wrong_step(seq, event)
        step(self.of[id], id, event)

    def _wrong_step(self, seq: int, event: e.ApprovalEscalated) -> Iterator[str]:
        """Check an escalation's queue and time by the terms and their calendar."""
        terms, payload = self.of[event.approval_id].course.terms or {}, payload_of(event)
        steps, place = terms.get("steps", []), payload.get("step")
        named = steps[place] if isinstance(place, int) and 0 <= place < len(steps) else None
        if named is None or named["to"] != event.to:
            yield f"event {seq}: approval {event.approval_id} went to {event.to}, which its terms do not name"
            return
        if event.cause == "amended":
            known = self.of[event.approval_id]
            if event.to not in self.carried.get(event.approval_id, []):
                yield f"event {seq}: approval {event.approval_id} went to {event.to}, where what it changes never went"
            if datetime.fromisoformat(event.deadline) != known.course.deadline:
                yield f"event {seq}: approval {event.approval_id} got another time with {event.to}"
            return
        at, calendar = datetime.fromisoformat(payload["at"]), asof.recorded(terms)
        right = (plus if calendar is None else calendar.after)(at, timedelta(minutes=named["minutes"]))
        if datetime.fromisoformat(event.deadline) != right:
            yield f"event {seq}: approval {event.approval_id} got until {event.deadline}, and not {right.isoformat()}"

    def _wrong_clock(self, line: Line, event: e.InquiryMade | e.InquiryEnded) -> Iterator[str]:
        """Check that a clock stopped or resumed by its terms, and by the right time."""
        known, what = self.of[event.approval_id], f"event {line.seq}: the clock of approval {event.approval_id}"
        course, calendar = known.course, calendar_now(known.course)
        since = (course.stop.at if course.stop else course.since) or line.at
        stood = stood_in(course, self.journal.run_id, since, line.at)
        if isinstance(event, e.InquiryMade):
            right = stop_clock(course, known.due, calendar, _at(event, line), stood=stood)
        else:
            is_last = course.stop is not None and known.asked == {event.n}
            right = resume_clock(course, calendar, _at(event, line), stood=stood)[0] if is_last else None
        if (right is None) != (not event.deadline):
            yield f"{what} {'stood' if event.deadline else 'ran on'}, which its terms do not say"
        elif right is not None and abs(right.deadline - datetime.fromisoformat(event.deadline)) > SLACK:
            yield f"{what} gives until {event.deadline}, and not {right.deadline.isoformat()}"

    def deadline(self, request: e.ApprovalRequested, row: Approval) -> datetime:
        """Return the present deadline: the journal's, or the row's if the run's stops can explain it."""
        course = self.of[request.approval_id].course
        if row.deadline == course.deadline:
            return row.deadline
        most = self._runs_out(course, row.wait.resolved_at or database_now())
        is_put_off = course.deadline < most and course.deadline < row.deadline <= most + MAX_AHEAD
        return row.deadline if is_put_off else course.deadline

    def about(self, what: str, row: Approval) -> Iterator[str]:
        """Check a question's time columns."""
        id = str(row.id)
        known, seq = self.of[id], self.last_reminder.get(id, 0)
        terms = known.course.terms
        went = [event.to for _, event in self.went.get(id, [])]
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
            yield f"{what}: the time of its last reminder is not the journal's"
        if not self._is_wait_s(known.course, row):
            yield f"{what}: its deadline is not that of its wait"
        if row.look_at not in self._looks(id, known) and not self._is_looked_at_later(known, row):
            yield f"{what}: it is looked at when nobody is to be reminded, or is not when someone is"

    def _is_wait_s(self, course: Course, row: Approval) -> bool:
        """Return whether question and wait have the same deadline; after its end, the wait's may be later."""
        later = row.wait.deadline - row.deadline
        most = self._runs_out(course, row.wait.resolved_at) if row.wait.resolved_at is not None else None
        return not later or (most is not None and timedelta() < later and row.wait.deadline <= most + MAX_AHEAD)

    def _is_looked_at_later(self, known: Read, row: Approval) -> bool:
        next_ = look_at(known.due)
        if next_ is None or row.look_at is None:
            return False
        stood = self._stood(known.course, row.wait.resolved_at or database_now())
        return next_ < row.look_at <= later(known.course, next_, stood)

    def _looks(self, id: str, known: Read) -> set[datetime | None]:
        """Return when it may be looked at next: for a reminder, or to check whether everybody is away."""
        terms, found = known.course.terms or {}, {look_at(known.due)}
        if terms.get("at_once_if_away"):
            found.add(asof.moment(terms["look_at"]))
            found |= {asof.moment(payload_of(event)["at"]) for _, event in self.went.get(id, [])}
        return found

    def escalations(self) -> Iterator[str]:
        """Compare rows and events in both directions."""
        yield from self.wrong
        missing = {(id, n): told for id, all_ in self.went.items() for n, told in enumerate(all_, 1)}
        rows = list(self.journal.rows(Escalation, "id"))
        yield from at_most_once("the escalation of approval", [(str(row.approval_id), row.n) for row in rows])
        for row in rows:
            what, told = f"escalation {row.id}", missing.pop((str(row.approval_id), row.n), None)
            if told is None:
                yield f"{what} has no event"
                continue
            seq, event = told
            yield from compared(
                what,
                row,
                {
                    "queue": event.to,
                    "cause": event.cause,
                    "deadline": datetime.fromisoformat(event.deadline),
                },
            )
            if not self.journal.is_about(seq, row.at):
                yield f"{what}: its time is not that of its event"
            if not row.is_authentic:
                yield f"{what} was not written with this installation's key, or was changed"
        for id, n in missing:
            yield f"the escalation {n} of approval {id} has no row"

    def where(self, what: str, approval_id: str, standing: Any) -> Iterator[str]:
        queue = standing.get("queue") if isinstance(standing, dict) else None
        if queue is not None and queue not in [event.to for _, event in self.went.get(approval_id, [])]:
            yield f"{what}: it was made at {queue}, where approval {approval_id} never went"


def _at(event: e.InquiryMade | e.InquiryEnded, line: Line) -> datetime:
    """Return the event's own time: its line is a little later."""
    clock = payload_of(event).get("clock")
    return asof.moment(clock["at"]) if isinstance(clock, dict) and isinstance(clock.get("at"), str) else line.at
