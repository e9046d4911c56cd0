"""Pauses a question's clock while someone is asked about it. The deadline is extended at once by the longest allowed
pause and shortened when the answer comes, so it is valid even if a process dies or no answer comes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from runs.engine.gate.calendars import Calendar, NoSuchTime
from runs.engine.gate.timing import Course, Stop, are_moments, plus

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Moved:
    """A question's new deadline and reminder times."""

    course: Course
    due: list[str]

    @property
    def deadline(self) -> datetime:
        return self.course.deadline


def stop(
    course: Course, due: Sequence[str], calendar: Calendar | None, at: datetime, *, stood: timedelta
) -> Moved | None:
    """Pause the clock; None if it is not allowed, endless, paused or used up. `stood` is time under a halt so far,
    working time if a calendar counts, which also extends the deadline."""
    left = course.may_stand
    if course.stop is not None or left <= timedelta() or course.is_endless:
        return None
    later = later_by(calendar)
    was, shown = later(course.deadline, stood), [later(datetime.fromisoformat(each), stood).isoformat() for each in due]
    stopped = Stop(at, was, tuple(shown), left)
    moved = [later(datetime.fromisoformat(each), left).isoformat() for each in shown]
    return Moved(replace(course, deadline=later(was, left), since=at, stop=stopped), moved)


def go_on(course: Course, calendar: Calendar | None, at: datetime, *, stood: timedelta) -> tuple[Moved, timedelta]:
    """Resume the clock, and return for how long it was paused. `stood` is time halted since the pause."""
    stopped = course.stop
    assert stopped is not None
    between = (at - stopped.at) if calendar is None else calendar.between(stopped.at, at)
    for_ = max(timedelta(), min(stopped.left, between - stood))
    later = later_by(calendar)
    deadline = later(stopped.deadline, stood + for_)
    due = [later(datetime.fromisoformat(each), stood + for_).isoformat() for each in stopped.due]
    course = replace(course, deadline=deadline, since=at, stop=None, has_stood=course.has_stood + for_)
    return Moved(course, [each for each in due if datetime.fromisoformat(each) > at]), for_


def stopped(deadline: str, payload: Mapping[str, Any], before: Course, due: list[str]) -> tuple[Course, list[str]]:
    """Return the course after a recorded pause; an unreadable record changes nothing."""
    clock = payload.get("clock")
    if not deadline or not isinstance(clock, dict) or not _is_stop(clock):
        return before, due
    at = datetime.fromisoformat(clock["at"])
    was = Stop(at, datetime.fromisoformat(clock["was"]), tuple(clock["due"]), timedelta(microseconds=clock["left"]))
    return replace(before, deadline=datetime.fromisoformat(deadline), since=at, stop=was), list(clock["remind_at"])


def went_on(deadline: str, payload: Mapping[str, Any], before: Course, due: list[str]) -> tuple[Course, list[str]]:
    """Return the course after a recorded resume; an unreadable record changes nothing."""
    clock = payload.get("clock")
    if not deadline or not isinstance(clock, dict) or not _is_end(clock):
        return before, due
    stood = before.has_stood + timedelta(microseconds=clock["stood"])
    at = datetime.fromisoformat(clock["at"])
    return (
        replace(before, deadline=datetime.fromisoformat(deadline), since=at, stop=None, has_stood=stood),
        list(clock["remind_at"]),
    )


def told_stop(found: Moved) -> dict[str, Any]:
    """Return the record of a pause."""
    stop_ = found.course.stop
    assert stop_ is not None
    return {
        "at": stop_.at.isoformat(),
        "was": stop_.deadline.isoformat(),
        "due": list(stop_.due),
        "left": stop_.left // _MICROSECOND,
        "remind_at": found.due,
    }


def told_end(found: Moved, at: datetime, stood: timedelta) -> dict[str, Any]:
    """Return the record of a resume."""
    return {"at": at.isoformat(), "stood": stood // _MICROSECOND, "remind_at": found.due}


def _is_stop(clock: Mapping[str, Any]) -> bool:
    are_right = are_moments([clock.get("was")]) and are_moments(clock.get("due"))
    return are_right and _is_end({**clock, "stood": clock.get("left")})


def _is_end(clock: Mapping[str, Any]) -> bool:
    is_number = isinstance(clock.get("stood"), int) and clock["stood"] >= 0
    return is_number and are_moments([clock.get("at")]) and are_moments(clock.get("remind_at"))


def later_by(calendar: Calendar | None) -> Callable[[datetime, timedelta], datetime]:
    """Return a function that adds time, by a calendar if there is one; after its last day every hour counts."""

    def later(at: datetime, by: timedelta) -> datetime:
        if calendar is None or not by:
            return plus(at, by)
        try:
            return calendar.after(at, by)
        except NoSuchTime:
            return plus(at, by)

    return later
