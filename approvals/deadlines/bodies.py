"""What somebody sends about calendars, deadlines and absences, and how much of it is taken: API bodies and forms."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from approvals.queues.bodies import Name
from ledger.web.bodies import NoFlag, Strict
from runs.services.bodies import Moment, SteerBody

Text = Annotated[str, Field(max_length=200)]
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _written(day: object) -> object:
    """Seconds since 1970 would be read as a day, too. Raises ValueError."""
    if not isinstance(day, date) and not (isinstance(day, str) and _DAY.fullmatch(day)):
        raise ValueError("write the day as 2026-12-24")
    return day


Day = Annotated[date, Field(strict=False), BeforeValidator(_written)]


# To the minute: a quarter of an hour is 0.25.
Hours = Annotated[float, Field(gt=0, le=8784, strict=False, allow_inf_nan=False), NoFlag]


class Holiday(Strict):
    """A day on which nobody works."""

    day: Day
    name: Annotated[str, Field(min_length=1, max_length=100)]


class CalendarBody(SteerBody):
    """A calendar, or a further version of it. `week` has for each day its shifts as text: "09:00-12:00, 13:00-18:00";
    a day that is missing has none."""

    name: Name
    zone: Text
    week: dict[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], Text]
    holidays: Annotated[list[Holiday], Field(max_length=400)] = []


class StepBody(Strict):
    """Whom a question is put to besides, and how many hours they have."""

    to: Name
    hours: Hours


class TimingBody(SteerBody):
    """All that a queue says of time; what is left out is not said. `remind` are shares of the time in percent after
    which people are reminded; `every_hours` the first interval of reminders of what waits for ever;
    `clock_stops_hours` for how long the clock may stand at most while somebody named is asked about a question."""

    calendar: Name = ""
    on_timeout: Literal["", "reject", "escalate", "remind"] = ""
    steps: Annotated[list[StepBody], Field(max_length=3)] = []
    remind: Annotated[list[Annotated[int, Field(ge=1, le=99)]], Field(max_length=5)] = []
    every_hours: Hours | None = None
    at_once_if_away: bool = False
    clock_stops_hours: Hours | None = None


class AbsenceBody(SteerBody):
    """Who is away: oneself if nobody is named, from now on if no beginning is; `deputy` stands in, nobody if none."""

    person: Name = ""
    deputy: Name = ""
    starts_at: Moment | None = None
    ends_at: Moment
