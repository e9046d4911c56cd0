"""The terms of an approval's time, combined from the rules of the gate and the queue.

They are recorded with the plan when the gate opens, and everything later uses the record. The hash of the plan does not
cover the terms. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from durableagents.contrib.calendars.hours import Calendar, NoSuchTime
from runs.engine.gating import timing
from runs.engine.gating.timing import STRICTEST_FIRST, OnTimeout, Terms, Time, WorkingHours

# Without a deadline, the intervals between reminders double, up to this multiple of the first.
STRETCH = 8


@dataclass(frozen=True, slots=True)
class Step:
    """A queue that is added after the deadline, and the minutes it has."""

    to: str
    minutes: int


@dataclass(frozen=True, slots=True)
class QueueTiming:
    """A queue's time settings; `version` is the version of the settings.

    `remind` has percentages of the time. `every` is the first interval, in minutes, of reminders of questions without
    a deadline (0: the time set by the gate).
    """

    version: int = 0
    calendar: Calendar | None = None
    on_timeout: OnTimeout | None = None
    steps: tuple[Step, ...] = ()
    remind: tuple[int, ...] = ()
    every: int = 0
    at_once_if_away: bool = False
    clock_stops: int = 0  # longest pause, in minutes, while somebody is asked about a question

    def settle(self, now: datetime, time: Time) -> Terms:
        """Return the terms of an approval requested now. Raises ValueError if out of range."""
        return settle(now, time, queue=self)


def settle(now: datetime, time: Time, *, queue: QueueTiming | None = None) -> Terms:
    """Return the terms of a question asked now; the stricter setting wins. Raises ValueError if out of range."""
    set_, span, on_timeout, escalate_to = queue or QueueTiming(), time.span, time.on_timeout, time.escalate_to
    is_working = isinstance(time.within, WorkingHours)
    if set_ == QueueTiming() and on_timeout is None and not is_working:
        return Terms(now + span)
    calendar = set_.calendar
    deadline = (calendar.after if calendar and is_working else plus)(now, span)
    least = max(1, _minutes(span))  # people can't act in less time, and reminders would never end
    steps = list(set_.steps) or ([Step(escalate_to, least)] if escalate_to else [])
    word = next((w for w in STRICTEST_FIRST if w in (on_timeout, set_.on_timeout)), "reject")
    if word == "escalate" and not steps:
        word = "reject"  # no queue is left to escalate to
    fields = {
        "on_timeout": word,
        "version": set_.version,
        "minutes": _minutes(span),
        "is_working": is_working,
        "calendar": None
        if calendar is None
        else {
            "name": calendar.name,
            "version": calendar.version,
            "zone": calendar.zone,
        },
        "steps": [{"to": s.to, "minutes": s.minutes} for s in steps] if word == "escalate" else [],
        "every": (set_.every or least) if word == "remind" else 0,
        "remind": [] if word == "remind" else sorted(set_.remind),
        "at_once_if_away": set_.at_once_if_away and word == "escalate",
    }
    if set_.clock_stops and word != "remind":
        fields["clock_stops"] = set_.clock_stops
    fields["remind_at"] = reminders(fields, calendar if is_working else None, now, span)
    if fields["at_once_if_away"]:
        fields["look_at"] = now.isoformat()
    return Terms(deadline, fields, first_look(fields))


def plus(at: datetime, span: timedelta) -> datetime:
    """Return the time after this much wall-clock time."""
    return at + span


def _minutes(span: timedelta) -> int:
    return int(span.total_seconds() // 60)


def reminders(terms: Mapping[str, Any], calendar: Calendar | None, since: datetime, span: timedelta) -> list[str]:
    """Return the times of reminders of a question that may be answered for `span` from `since`."""
    step = plus if calendar is None else calendar.after
    return [step(since, span * share / 100).isoformat() for share in terms["remind"]]


def first_look(terms: Mapping[str, Any]) -> datetime | None:
    """Return the first time at which the terms require an action."""
    times = [*([terms["look_at"]] if terms.get("look_at") else []), *terms["remind_at"]]
    return min(map(datetime.fromisoformat, times), default=None)


def terms_in(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the recorded terms; None if invalid.

    Without valid terms only the deadline counts, which is the strictest rule.
    """
    steps, times = payload.get("steps"), payload.get("remind_at")
    is_right = (
        payload.get("on_timeout") in STRICTEST_FIRST
        and isinstance(payload.get("every"), int)
        and isinstance(payload.get("at_once_if_away"), bool)
        and isinstance(payload.get("remind"), list)
        and isinstance(payload.get("clock_stops", 0), int)
        and isinstance(steps, list)
        and all(isinstance(each, dict) and set(each) == {"to", "minutes"} for each in steps)
        and are_moments(times)
    )
    return payload if is_right else None


def are_moments(times: Any) -> bool:
    try:
        return isinstance(times, list) and all(datetime.fromisoformat(each).tzinfo is not None for each in times)
    except (TypeError, ValueError):
        return False


# --- the course of time -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """A paused clock: when it was paused, the deadline and reminders before that, and the longest allowed pause."""

    at: datetime
    deadline: datetime
    due: tuple[str, ...]
    left: timedelta


@dataclass(frozen=True, slots=True)
class Course(timing.Course):
    """An approval's progress: its terms, and the numbers of escalations and reminders.

    The terms are None if there is only a deadline.
    """

    terms: Mapping[str, Any] | None = None
    escalated: int = 0
    reminded: int = 0
    reminded_late: int = 0
    stop: Stop | None = None
    paused: timedelta = timedelta()  # total length of earlier pauses

    @property
    def pause_left(self) -> timedelta:
        """The remaining time for which the clock may be paused."""
        most = 0 if self.terms is None else self.terms.get("clock_stops", 0)
        return timedelta(minutes=most) - self.paused

    @property
    def is_endless(self) -> bool:
        return self.terms is not None and self.terms["on_timeout"] == "remind"

    @property
    def next_step(self) -> Step | None:
        """The next escalation; None if there is none."""
        steps = [] if self.terms is None else self.terms["steps"]
        return Step(**steps[self.escalated]) if self.escalated < len(steps) else None

    @property
    def ends_at(self) -> datetime | None:
        """The time after which nobody may answer; None if it never expires."""
        return None if self.is_endless or self.next_step is not None else self.deadline

    def next_reminder(self, now: datetime, calendar: Calendar | None) -> datetime:
        assert self.terms is not None
        stretch = min(2 ** min(self.reminded_late, 10), STRETCH)
        return (plus if calendar is None else calendar.after)(now, timedelta(minutes=self.terms["every"] * stretch))


def after_escalation(deadline: datetime, payload: Mapping[str, Any], before: Course) -> tuple[Course, list[str]]:
    """Return the progress after a recorded escalation, and its reminder times."""
    place, due, at = payload.get("step"), payload.get("remind_at"), payload.get("at")
    step = place if isinstance(place, int) else before.escalated
    since = datetime.fromisoformat(at) if isinstance(at, str) and are_moments([at]) else before.since
    course = replace(before, deadline=deadline, since=since, escalated=step + 1, stop=None)
    return course, due if isinstance(due, list) and are_moments(due) else []


# --- pauses -----------------------------------------------------------------------------------------------------------
# While somebody is asked about a question, its clock is paused. The deadline is extended at once by the longest allowed
# pause, and shortened when the answer comes. So the deadline is valid even if a process dies or no answer comes.

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Moved:
    """A question's new deadline and reminder times."""

    course: Course
    due: list[str]

    @property
    def deadline(self) -> datetime:
        return self.course.deadline


def stop_clock(
    course: Course, due: Sequence[str], calendar: Calendar | None, at: datetime, *, stood: timedelta
) -> Moved | None:
    """Pause the clock; return None if that is impossible.

    It is impossible if the terms don't allow it, the question has no deadline, the clock is already paused, or no pause
    is left. `stood` is how long the question was halted so far (in working time if a calendar counts). The halted time
    also extends the deadline.
    """
    left = course.pause_left
    if course.stop is not None or left <= timedelta() or course.is_endless:
        return None
    later = later_by(calendar)
    was, reminders = (
        later(course.deadline, stood),
        [later(datetime.fromisoformat(each), stood).isoformat() for each in due],
    )
    stopped = Stop(at, was, tuple(reminders), left)
    moved = [later(datetime.fromisoformat(each), left).isoformat() for each in reminders]
    return Moved(replace(course, deadline=later(was, left), since=at, stop=stopped), moved)


def resume_clock(
    course: Course, calendar: Calendar | None, at: datetime, *, stood: timedelta
) -> tuple[Moved, timedelta]:
    """Resume the clock, and return how long it was paused.

    `stood` is how long the question was halted during the pause.
    """
    stopped = course.stop
    assert stopped is not None
    between = (at - stopped.at) if calendar is None else calendar.between(stopped.at, at)
    for_ = max(timedelta(), min(stopped.left, between - stood))
    later = later_by(calendar)
    deadline = later(stopped.deadline, stood + for_)
    due = [later(datetime.fromisoformat(each), stood + for_).isoformat() for each in stopped.due]
    course = replace(course, deadline=deadline, since=at, stop=None, paused=course.paused + for_)
    return Moved(course, [each for each in due if datetime.fromisoformat(each) > at]), for_


def after_stop(deadline: str, payload: Mapping[str, Any], before: Course, due: list[str]) -> tuple[Course, list[str]]:
    """Return the progress after a recorded pause. An unreadable record changes nothing."""
    clock = payload.get("clock")
    if not deadline or not isinstance(clock, dict) or not _is_stop(clock):
        return before, due
    at = datetime.fromisoformat(clock["at"])
    was = Stop(at, datetime.fromisoformat(clock["was"]), tuple(clock["due"]), timedelta(microseconds=clock["left"]))
    return replace(before, deadline=datetime.fromisoformat(deadline), since=at, stop=was), list(clock["remind_at"])


def after_resume(deadline: str, payload: Mapping[str, Any], before: Course, due: list[str]) -> tuple[Course, list[str]]:
    """Return the progress after a recorded resume. An unreadable record changes nothing."""
    clock = payload.get("clock")
    if not deadline or not isinstance(clock, dict) or not _is_end(clock):
        return before, due
    stood = before.paused + timedelta(microseconds=clock["stood"])
    at = datetime.fromisoformat(clock["at"])
    return (
        replace(before, deadline=datetime.fromisoformat(deadline), since=at, stop=None, paused=stood),
        list(clock["remind_at"]),
    )


def stop_record(found: Moved) -> dict[str, Any]:
    """Return the record of a pause for the journal."""
    stop_ = found.course.stop
    assert stop_ is not None
    return {
        "at": stop_.at.isoformat(),
        "was": stop_.deadline.isoformat(),
        "due": list(stop_.due),
        "left": stop_.left // _MICROSECOND,
        "remind_at": found.due,
    }


def resume_record(found: Moved, at: datetime, stood: timedelta) -> dict[str, Any]:
    """Return the record of a resume for the journal."""
    return {"at": at.isoformat(), "stood": stood // _MICROSECOND, "remind_at": found.due}


def _is_stop(clock: Mapping[str, Any]) -> bool:
    are_right = are_moments([clock.get("was")]) and are_moments(clock.get("due"))
    return are_right and _is_end({**clock, "stood": clock.get("left")})


def _is_end(clock: Mapping[str, Any]) -> bool:
    is_number = isinstance(clock.get("stood"), int) and clock["stood"] >= 0
    return is_number and are_moments([clock.get("at")]) and are_moments(clock.get("remind_at"))


def later_by(calendar: Calendar | None) -> Callable[[datetime, timedelta], datetime]:
    """Return a function that adds time, by a calendar if there is one.

    After the calendar's last day, all hours count as working time.
    """

    def later(at: datetime, by: timedelta) -> datetime:
        if calendar is None or not by:
            return plus(at, by)
        try:
            return calendar.after(at, by)
        except NoSuchTime:
            return plus(at, by)

    return later
