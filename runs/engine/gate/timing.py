"""Approval deadlines and what happens when they pass. The rules of gate and queue are recorded as *terms* with the
plan when the gate opens; everything later uses the record. The plan's hash excludes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from runs.engine.gate.calendars import Calendar

OnTimeout = Literal["reject", "escalate", "remind"]
STRICTEST_FIRST: tuple[OnTimeout, ...] = get_args(OnTimeout)
LONGEST = timedelta(days=365_000)  # of any wait: added to today it gives a date that everything here can hold
LONGEST_WORK = timedelta(hours=2000)  # one year of work
MOST_STEPS = 3
# Intervals of reminders without a deadline double, up to this multiple of the first.
STRETCH = 8


@dataclass(frozen=True, slots=True)
class WorkingHours:
    """A number of `hours` of the queue's business calendar, such as `WorkingHours(8)`; without one, any hours count. To
    the minute, at most 2,000. Raises ValueError for anything else."""

    hours: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.hours, (int, float)) and not isinstance(self.hours, bool)
        if not is_number or not 0 < self.hours * 60 <= LONGEST_WORK.total_seconds() / 60 or (self.hours * 60) % 1:
            raise ValueError(
                f"WorkingHours({self.hours!r}): give a positive number of hours, to the minute and at most "
                f"{LONGEST_WORK.total_seconds() / 3600:.0f}"
            )

    @property
    def span(self) -> timedelta:
        """The duration in working time."""
        return timedelta(minutes=int(self.hours * 60))

    def __str__(self) -> str:
        return f"{self.hours:g} working hour{'' if self.hours == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Time:
    """A question's time as declared in code; None: the queue's setting. `escalate_to` is the queue to ask next."""

    within: timedelta | WorkingHours
    on_timeout: OnTimeout | None = None
    escalate_to: str = ""

    @property
    def span(self) -> timedelta:
        """The duration, in real or working time."""
        return self.within.span if isinstance(self.within, WorkingHours) else self.within

    @property
    def of_a_further_stage(self) -> Time:
        """The same for later stages: a queue to escalate to in code is only for the first stage's queue."""
        return replace(self, escalate_to="")


def problem_of(time: Time) -> str:
    """Return what is wrong with a gate's time; empty if nothing is."""
    if (problem := wrong_word(time)) or isinstance(time.within, WorkingHours):
        return problem
    is_span = isinstance(time.within, timedelta) and timedelta(0) < time.within <= LONGEST
    return "" if is_span else f"give a positive timedelta of at most {LONGEST.days} days, or WorkingHours"


def wrong_word(time: Time) -> str:
    if time.on_timeout is not None and time.on_timeout not in STRICTEST_FIRST:
        return f"on_timeout={time.on_timeout!r} is none of {', '.join(STRICTEST_FIRST)}: nothing is approved by waiting"
    if not isinstance(time.escalate_to, str) or (time.escalate_to and time.on_timeout != "escalate"):
        return f"escalate_to={time.escalate_to!r} goes with on_timeout='escalate', as a queue's name"
    return ""


@dataclass(frozen=True, slots=True)
class Step:
    """A queue to ask in addition after the deadline, and how many minutes it has."""

    to: str
    minutes: int


@dataclass(frozen=True, slots=True)
class QueueTiming:
    """A queue's time settings, numbered by `version`. `remind` are percentages of the time; `every` is the first
    interval, in minutes, of reminders without a deadline (0: the gate's time)."""

    version: int = 0
    calendar: Calendar | None = None
    on_timeout: OnTimeout | None = None
    steps: tuple[Step, ...] = ()
    remind: tuple[int, ...] = ()
    every: int = 0
    at_once_if_away: bool = False
    clock_stops: int = 0  # maximum pause in minutes, while someone is asked about a question


@runtime_checkable
class Timed(Protocol):
    """Queues with settings for time."""

    def timing_of(self, name: str) -> QueueTiming | None: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """A question's deadline, and its recorded terms; None if there is only the deadline."""

    deadline: datetime
    said: dict[str, Any] | None = None

    @property
    def remind_at(self) -> datetime | None:
        return None if self.said is None else first_look(self.said)


def settle(now: datetime, time: Time, *, queue: QueueTiming | None = None) -> Terms:
    """Return the terms of a question asked now; the stricter setting wins. Raises ValueError if out of range."""
    set_, span, on_timeout, escalate_to = queue or QueueTiming(), time.span, time.on_timeout, time.escalate_to
    is_working = isinstance(time.within, WorkingHours)
    if queue is None and on_timeout is None and not is_working:
        return Terms(now + span)
    calendar = set_.calendar
    deadline = (calendar.after if calendar and is_working else plus)(now, span)
    least = max(1, _minutes(span))  # less is too short to act in, and reminders would never end
    steps = list(set_.steps) or ([Step(escalate_to, least)] if escalate_to else [])
    word = next((w for w in STRICTEST_FIRST if w in (on_timeout, set_.on_timeout)), "reject")
    if word == "escalate" and not steps:
        word = "reject"  # there is no queue to escalate to
    said = {
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
        said["clock_stops"] = set_.clock_stops
    said["remind_at"] = reminders(said, calendar if is_working else None, now, span)
    if said["at_once_if_away"]:
        said["look_at"] = now.isoformat()
    return Terms(deadline, said)


def plus(at: datetime, span: timedelta) -> datetime:
    """Add real time."""
    return at + span


def _minutes(span: timedelta) -> int:
    return int(span.total_seconds() // 60)


def reminders(terms: Mapping[str, Any], calendar: Calendar | None, since: datetime, span: timedelta) -> list[str]:
    """Return when people are reminded of a question with this much time."""
    step = plus if calendar is None else calendar.after
    return [step(since, span * share / 100).isoformat() for share in terms["remind"]]


def first_look(terms: Mapping[str, Any]) -> datetime | None:
    """Return the first time at which the terms require an action."""
    times = [*([terms["look_at"]] if terms.get("look_at") else []), *terms["remind_at"]]
    return min(map(datetime.fromisoformat, times), default=None)


def terms_in(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return recorded terms; None if invalid: then only the deadline counts, the strictest rule."""
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
    """A paused clock: since when, the original deadline and reminders, and how long it may stay paused."""

    at: datetime
    deadline: datetime
    due: tuple[str, ...]
    left: timedelta


@dataclass(frozen=True, slots=True)
class Course:
    """A question's progress: terms (None: only a deadline), deadline, and numbers of escalations and reminders."""

    deadline: datetime
    terms: Mapping[str, Any] | None = None
    since: datetime | None = None  # from when the deadline runs, after an escalation
    escalated: int = 0
    reminded: int = 0
    reminded_late: int = 0
    stop: Stop | None = None
    has_stood: timedelta = timedelta()  # total of earlier pauses
    over: tuple[tuple[datetime, datetime], ...] = ()  # periods in which its run had ended, before people resumed it

    @property
    def may_stand(self) -> timedelta:
        """The time for which its clock may still be paused."""
        most = 0 if self.terms is None else self.terms.get("clock_stops", 0)
        return timedelta(minutes=most) - self.has_stood

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
        """The time after which nobody may answer; None while time doesn't end it."""
        return None if self.is_endless or self.next_step is not None else self.deadline

    def next_reminder(self, now: datetime, calendar: Calendar | None) -> datetime:
        assert self.terms is not None
        stretch = min(2 ** min(self.reminded_late, 10), STRETCH)
        return (plus if calendar is None else calendar.after)(now, timedelta(minutes=self.terms["every"] * stretch))


def went(deadline: datetime, payload: Mapping[str, Any], before: Course) -> tuple[Course, list[str]]:
    """Return the course after a recorded escalation, and its reminder times."""
    place, due, at = payload.get("step"), payload.get("remind_at"), payload.get("at")
    step = place if isinstance(place, int) else before.escalated
    since = datetime.fromisoformat(at) if isinstance(at, str) and are_moments([at]) else before.since
    course = replace(before, deadline=deadline, since=since, escalated=step + 1, stop=None)
    return course, due if isinstance(due, list) and are_moments(due) else []
