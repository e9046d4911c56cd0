"""The console's forms about time, and the API's bodies that they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from approvals.deadlines.bodies import CalendarBody, Text, TimingBody
from approvals.queues.bodies import Name
from ledger.web.bodies import Body, fit
from ledger.web.page_forms import told_of
from runs.engine.gate.calendars import DAYS
from runs.services.bodies import SteerBody

Lines = Annotated[str, Field(max_length=60_000)]


def _fit(shape: type[Body], seen: Mapping[str, tuple[str, str]], data: dict[str, Any]) -> Body:
    """As `fit` has it, what is wrong told of the field that is `seen`. Raises InvalidInput."""
    with told_of(seen):
        return fit(shape, data, "form")


class CalendarForm(SteerBody):
    """A field for each day, and the holidays as lines of a day and its name."""

    name: Name
    zone: Text
    mon: Text = ""
    tue: Text = ""
    wed: Text = ""
    thu: Text = ""
    fri: Text = ""
    sat: Text = ""
    sun: Text = ""
    holidays: Lines = ""

    def as_body(self) -> CalendarBody:
        """Raises InvalidInput."""
        typed = [(n, line.strip().partition(" ")) for n, line in enumerate(self.holidays.splitlines(), 1)]
        lines = [(n, line) for n, line in typed if line[0]]
        seen = {f"holidays.{place}": ("holidays", f"line {n}") for place, (n, _) in enumerate(lines)}
        return _fit(
            CalendarBody,
            seen,
            {
                "name": self.name,
                "zone": self.zone,
                "justification": self.justification,
                "week": {day: text for day in DAYS if (text := getattr(self, day))},
                "holidays": [{"day": day, "name": name.strip() or "holiday"} for _, (day, _, name) in lines],
            },
        )


class TimingForm(SteerBody):
    """Three places for steps, and the shares as numbers with commas between them."""

    calendar: Name = ""
    on_timeout: Text = ""
    to1: Name = ""
    hours1: Text = ""
    to2: Name = ""
    hours2: Text = ""
    to3: Name = ""
    hours3: Text = ""
    remind: Text = ""
    every_hours: Text = ""
    at_once_if_away: bool = False
    clock_stops_hours: Text = ""

    def as_body(self) -> TimingBody:
        """Raises InvalidInput."""
        places = [(1, self.to1, self.hours1), (2, self.to2, self.hours2), (3, self.to3, self.hours3)]
        steps = [(n, to, hours) for n, to, hours in places if to or hours]
        shares = [part.strip().removesuffix("%").strip() for part in self.remind.split(",") if part.strip()]
        seen = {f"steps.{place}.to": ("steps", f"whom it goes to ({n})") for place, (n, _, _) in enumerate(steps)}
        seen |= {f"steps.{place}.hours": ("steps", f"hours they have ({n})") for place, (n, _, _) in enumerate(steps)}
        seen |= {f"remind.{place}": ("remind", share) for place, share in enumerate(shares)}
        return _fit(
            TimingBody,
            seen,
            {
                "calendar": self.calendar,
                "on_timeout": self.on_timeout,
                "justification": self.justification,
                "steps": [{"to": to, "hours": hours} for _, to, hours in steps],
                "remind": [int(share) if re.fullmatch("[0-9]{1,3}", share) else share for share in shares],
                "every_hours": self.every_hours or None,
                "at_once_if_away": self.at_once_if_away,
                "clock_stops_hours": self.clock_stops_hours or None,
            },
        )
