"""Compute deadlines from terms, calendars, escalations and pauses, replacing the core's plain deadlines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from approvals.deadlines import Deadlines, DeadlineTexts, MissedDeadline, MovedClock, Revision, time_events
from approvals.models import Approval, Escalation
from durableagents.contrib.calendars import texts, versions
from durableagents.contrib.calendars.hours import Calendar
from durableagents.contrib.calendars.progress import Progress, next_look, step
from durableagents.contrib.calendars.terms import (
    Course,
    first_look,
    later_by,
    reminders,
    resume_clock,
    resume_record,
    stop_clock,
    stop_record,
)
from durableagents.contrib.calendars.verify import TimeChecks
from ledger import events as e
from ledger.verification.runs import ReadJournal
from runs.engine.gating import timing
from runs.engine.gating.timing import Terms
from runs.models import Wait

_MISSED = """CASE WHEN approvals_approval.escalated_to IS NOT NULL THEN (
    SELECT json_build_array(e.at, e.queue, e.cause)::text FROM approvals_escalation e
    WHERE e.approval_id = approvals_approval.id ORDER BY e.n DESC LIMIT 1) END"""


class BusinessDeadlines(Deadlines):
    """Deadlines from recorded terms and calendars."""

    def read(self, approval: Approval, wait: Wait) -> Progress:
        """Return the state of an approval's deadlines, from its journal."""
        found = Progress(Course(approval.deadline))
        for event in time_events(approval, wait):
            step(found, str(approval.id), event)
        return found

    def course(self, approval: Approval, wait: Wait) -> Course:
        return self.read(approval, wait).course

    def calendar(self, course: timing.Course) -> Calendar | None:
        """Return the calendar by which the approval's time is counted now; None if around the clock."""
        if not isinstance(course, Course):
            return None
        terms = course.terms or {}
        is_working = terms.get("is_working") or course.escalated or course.reminded_late
        return versions.recorded_calendar(terms) if is_working else None

    def later(self, course: timing.Course, at: datetime, by: timedelta) -> datetime:
        return later_by(self.calendar(course))(at, by) if by else at

    def counter(self, course: timing.Course) -> Callable[[datetime, datetime], timedelta]:
        calendar = self.calendar(course)
        return super().counter(course) if calendar is None else calendar.between

    def shifted(self, due: Sequence[str], course: Course, by: timedelta) -> list[str]:
        """Return the reminder times `due`, each moved later by `by`."""
        return [self.later(course, datetime.fromisoformat(each), by).isoformat() for each in due]

    def stop_clock(self, approval: Approval, wait: Wait, now: datetime) -> MovedClock | None:
        known = self.read(approval, wait)
        stopped = self.stopped(known.course, wait, now)
        moved = stop_clock(known.course, known.due, self.calendar(known.course), now, stood=stopped)
        return None if moved is None else MovedClock(moved.deadline, stop_record(moved), next_look(moved.due))

    def resume_clock(self, approval: Approval, wait: Wait, now: datetime) -> MovedClock | None:
        course = self.course(approval, wait)
        if course.stop is None:
            return None
        stopped = self.stopped_in(course, wait.run_id, course.stop.at, now)
        moved, paused = resume_clock(course, self.calendar(course), now, stood=stopped)
        return MovedClock(moved.deadline, resume_record(moved, now, paused), next_look(moved.due))

    def revise(self, approval: Approval, wait: Wait, queue: str, now: datetime) -> Revision:
        known = self.read(approval, wait)
        first, deadline = self._rest(approval, known, wait, now)
        # an approval without expiry has no remaining time to carry over
        if queue != approval.queue and not known.course.is_endless:
            first = self._rest_of_first(approval, wait, queue, now, deadline)

        def carry(following: Approval, wait_id: UUID) -> list[e.Event]:
            return _carry_on(following, wait_id, wait.slot, known, now) if queue == approval.queue else []

        return Revision(Terms(deadline, first, None if first is None else first_look(first)), carry)

    def _rest(
        self, approval: Approval, known: Progress, wait: Wait, now: datetime
    ) -> tuple[dict[str, Any] | None, datetime]:
        """Return terms and deadline of the next revision.

        The terms are those of this revision, without reminders already sent and pauses already used. A clock stopped
        for an inquiry resumes.
        """
        course, still = known.course, self.stopped(known.course, wait, now)
        due, deadline = self.shifted(known.due, course, still), self.later(course, course.deadline, still)
        if course.terms is None:
            return None, deadline
        if course.stop is not None:
            stopped = self.stopped_in(course, approval.run_id, course.stop.at, now)
            moved, _ = resume_clock(course, self.calendar(course), now, stood=stopped)
            course, due, deadline = moved.course, moved.due, moved.deadline
        return _with_rest(dict(known.course.terms or {}), course, due, now), deadline

    def _rest_of_first(
        self, approval: Approval, wait: Wait, queue: str, now: datetime, deadline: datetime
    ) -> dict[str, Any] | None:
        """Return the terms recorded for the first stage, with reminders in the remaining time.

        Used if the next revision goes to another queue. None if the terms are unknown: then the strictest rule applies,
        denial at the deadline without escalation.
        """
        of_run = Approval.objects.select_related("wait").filter(run_id=approval.run_id)
        first = of_run.filter(pk=approval.case_id or approval.pk).first()
        if first is None or (first.wait.slot, first.queue) != (wait.slot, queue):
            return None
        course = self.course(first, first.wait)
        if (terms := course.terms) is None:
            return None
        calendar = versions.recorded_calendar(terms) if terms.get("is_working") else None
        span = max(timedelta(), deadline - now if calendar is None else calendar.between(now, deadline))
        fields = {name: value for name, value in terms.items() if name != "look_at"}
        return _with_rest(fields, course, reminders(terms, calendar, now, span), now)

    def annotations(self) -> dict[str, RawSQL]:
        return {**super().annotations(), "missed": RawSQL(_MISSED, [], output_field=TextField())}

    def texts(self, approval: Approval) -> DeadlineTexts:
        plain = replace(super().texts(approval), missed=_missed(approval))
        terms = approval.timing
        if not isinstance(terms, dict):
            return plain
        return replace(
            plain,
            counted=texts.counted_in(terms),
            then=texts.timeout_text(terms, approval.escalated_to or []),
            so_far=texts.so_far(approval.escalated_to or [], approval.reminded),
            is_endless=terms.get("on_timeout") == "remind",
        )

    def checks(self, journal: ReadJournal) -> TimeChecks:
        return TimeChecks(journal, self)


DEADLINES = BusinessDeadlines()


def _missed(approval: Approval) -> MissedDeadline | None:
    """Return the last missed deadline of an approval that was read with `annotations`; None if there is none."""
    text = getattr(approval, "missed", None)
    if not text:
        return None
    at, queue, cause = json.loads(text)
    return MissedDeadline(datetime.fromisoformat(at), queue, cause == "away")


def _with_rest(fields: dict[str, Any], course: Course, due: list[str], now: datetime) -> dict[str, Any]:
    """Return the terms with the remaining reminders and pauses."""
    fields["remind_at"] = due
    if fields.pop("clock_stops", 0) and (left := course.pause_left // timedelta(minutes=1)) > 0:
        fields["clock_stops"] = left
    return fields | {"look_at": now.isoformat()} if fields["at_once_if_away"] else fields


def _carry_on(following: Approval, wait_id: UUID, slot: str, known: Progress, now: datetime) -> list[e.Event]:
    """Escalate the next revision to the queues that were already asked, with the same deadlines.

    So no queue loses the question when the plan is changed.
    """
    steps = [each["to"] for each in (known.course.terms or {}).get("steps", [])]
    for n, to in enumerate(known.went, 1):
        add_escalation(following, n, to, "amended", following.deadline, now)
    if known.went:
        following.escalated_to = list(known.went)
        following.save(update_fields=["escalated_to"])
        Wait.objects.filter(pk=wait_id).update(also=following.escalated_to)
    due = [] if following.timing is None else following.timing["remind_at"]
    return [
        e.ApprovalEscalated(
            slot=slot,
            approval_id=str(following.pk),
            to=to,
            cause="amended",
            deadline=following.deadline.isoformat(),
            n=known.escalations + i,
            payload={"step": steps.index(to), "remind_at": due, "at": now.isoformat()},
        )
        for i, to in enumerate(known.went)
    ]


def add_escalation(approval: Approval, n: int, to: str, cause: str, deadline: datetime, now: datetime) -> None:
    """Insert the row of an approval's `n`-th escalation."""
    row = Escalation(approval=approval, n=n, run_id=approval.run_id, queue=to, cause=cause, deadline=deadline, at=now)
    row.seal()
    row.save(force_insert=True)


def look_again(approval: Approval, at: datetime | None) -> None:
    """Set when the sweeper next checks the approval."""
    approval.look_at = at
    approval.save(update_fields=["look_at"])
