"""The console's forms about time, and the API's bodies that they stand for."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from approvals.deadlines.bodies import CalendarBody, Text, TimingBody
from approvals.queues.bodies import Name
from ledger.web.bodies import fit
from runs.engine.gate.calendars import DAYS
from runs.services.bodies import SteerBody

Lines = Annotated[str, Field(max_length=60_000)]


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
        lines = [line.strip().partition(" ") for line in self.holidays.splitlines() if line.strip()]
        return fit(CalendarBody, {
            "name": self.name, "zone": self.zone, "justification": self.justification,
            "week": {day: text for day in DAYS if (text := getattr(self, day))},
            "holidays": [{"day": day, "name": name.strip() or "holiday"} for day, _, name in lines],
        }, "form")  # fmt: skip


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

    def as_body(self) -> TimingBody:
        """Raises InvalidInput."""
        steps = [(self.to1, self.hours1), (self.to2, self.hours2), (self.to3, self.hours3)]
        shares = [part.strip().removesuffix("%").strip() for part in self.remind.split(",") if part.strip()]
        return fit(TimingBody, {
            "calendar": self.calendar, "on_timeout": self.on_timeout, "justification": self.justification,
            "steps": [{"to": to, "hours": hours} for to, hours in steps if to or hours],
            "remind": [int(share) if re.fullmatch("[0-9]{1,3}", share) else share for share in shares],
            "every_hours": self.every_hours or None, "at_once_if_away": self.at_once_if_away,
        }, "form")  # fmt: skip
