"""Time limits of approvals: as declared by gates, and as recorded when a gate opens. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, get_args

OnTimeout = Literal["reject", "escalate", "remind"]
STRICTEST_FIRST: tuple[OnTimeout, ...] = get_args(OnTimeout)
MAX_WAIT = timedelta(days=365_000)  # the longest wait: added to today's date it stays within every date type used here
MAX_WORK = timedelta(hours=2000)  # one year of working time


@dataclass(frozen=True, slots=True)
class WorkingHours:
    """A time limit in `hours` of the queue's business calendar, such as `WorkingHours(8)`.

    If the queue has no calendar, all hours count. The value must be whole minutes, at most 2,000 hours. Raises
    ValueError otherwise.
    """

    hours: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.hours, (int, float)) and not isinstance(self.hours, bool)
        if not is_number or not 0 < self.hours * 60 <= MAX_WORK.total_seconds() / 60 or (self.hours * 60) % 1:
            raise ValueError(
                f"WorkingHours({self.hours!r}): give a positive number of hours, to the minute and at most "
                f"{MAX_WORK.total_seconds() / 3600:.0f}"
            )

    @property
    def span(self) -> timedelta:
        """The duration in working time."""
        return timedelta(minutes=int(self.hours * 60))

    def __str__(self) -> str:
        return f"{self.hours:g} working hour{'' if self.hours == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Time:
    """A question's time limit as declared in code. `escalate_to` is the queue to ask next.

    If `on_timeout` is None, the queue's setting applies.
    """

    within: timedelta | WorkingHours
    on_timeout: OnTimeout | None = None
    escalate_to: str = ""

    @property
    def span(self) -> timedelta:
        """The duration, in real time or in working time."""
        return self.within.span if isinstance(self.within, WorkingHours) else self.within

    @property
    def of_a_further_stage(self) -> Time:
        """The time limit for later stages: an `escalate_to` declared in code is only for the first stage's queue."""
        return replace(self, escalate_to="")


def problem_of(time: Time) -> str:
    """Return the problem with a gate's time limit; empty if it is valid."""
    if (problem := wrong_word(time)) or isinstance(time.within, WorkingHours):
        return problem
    is_span = isinstance(time.within, timedelta) and timedelta(0) < time.within <= MAX_WAIT
    return "" if is_span else f"give a positive timedelta of at most {MAX_WAIT.days} days, or WorkingHours"


def wrong_word(time: Time) -> str:
    if time.on_timeout is not None and time.on_timeout not in STRICTEST_FIRST:
        return f"on_timeout={time.on_timeout!r} is none of {', '.join(STRICTEST_FIRST)}: a time-out can't approve"
    if not isinstance(time.escalate_to, str) or (time.escalate_to and time.on_timeout != "escalate"):
        return f"escalate_to={time.escalate_to!r} must be a queue's name, together with on_timeout='escalate'"
    return ""


@dataclass(frozen=True, slots=True)
class Terms:
    """A question's deadline, and in `said` the terms to record (None if there is only the deadline)."""

    deadline: datetime
    said: dict[str, Any] | None = None
    look_at: datetime | None = None  # the first time before the deadline at which the terms require an action


class QueueTiming(Protocol):
    """A queue's rules about time. An app provides them."""

    def settle(self, now: datetime, time: Time) -> Terms:
        """Return the terms of an approval requested at `now`. Raises ValueError if out of range."""


@dataclass(frozen=True, slots=True)
class Course:
    """The progress of an approval.

    Its time started at `since`; None means when its wait was opened. `over` lists the periods between an end of the
    run and its retry by people.
    """

    deadline: datetime
    since: datetime | None = None
    over: tuple[tuple[datetime, datetime], ...] = ()

    @property
    def ends_at(self) -> datetime | None:
        """The time after which nobody may answer; None if it never expires."""
        return self.deadline
