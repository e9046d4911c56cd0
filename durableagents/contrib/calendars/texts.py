"""Texts about time for pages: about an approval, and about values in records of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from approvals.account_words import hours_of
from durableagents.contrib.calendars.hours import DAYS


def counted_in(terms: Mapping[str, Any]) -> str:
    """Describe how the time was counted: "8 working hours, calendar DE (version 2, Europe/Berlin)"."""
    calendar = terms.get("calendar")
    hours = hours_of(terms.get("minutes"))
    if not terms.get("is_working"):
        return hours
    if not isinstance(calendar, dict):
        return f"{hours}, around the clock"
    which = f"version {calendar.get('version')}, {calendar.get('zone')}"
    return f"{_working(hours)}, calendar {calendar.get('name')} ({which})"


def _working(text: str) -> str:
    number, _, unit = text.partition(" ")
    return f"{number} working {unit}"


def timeout_text(terms: Mapping[str, Any], escalated_to: Sequence[str]) -> str:
    """Describe what happens if nobody decides."""
    if terms.get("on_timeout") == "remind":
        return "There is no deadline. Approvers are reminded until one of them decides."
    steps = [each for each in terms.get("steps") or [] if isinstance(each, dict)]
    left = [each for each in steps if each.get("to") not in escalated_to]
    if not left:
        return "If nobody decides by then, it is rejected."
    working = _working if terms.get("calendar") else str
    names = ", then to ".join(f"{each.get('to')} for {working(hours_of(each.get('minutes')))}" for each in left)
    return f"If nobody decides by then, it escalates to {names}. After that it is rejected."


def so_far(escalated_to: Sequence[str], reminded: int) -> str:
    """Describe what has happened because nobody has decided yet."""
    parts = [f"Escalated: {' and '.join(escalated_to)} can decide too."] if escalated_to else []
    parts += [f"Reminded {reminded} time{'' if reminded == 1 else 's'}."] if reminded else []
    return " ".join(parts)


def shifts_in_words(shifts: Sequence[Sequence[int]]) -> str:
    """Return shifts in the form's input format: 09:00-12:00, 13:00-18:00."""
    return ", ".join(f"{_clock(opens)}-{_clock(closes)}" for opens, closes in shifts)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _steps(value: Any) -> str:
    return ", then ".join(f"{to} for {hours_of(minutes)}" for to, minutes in value or [])


def _remind(value: Any) -> str:
    return f"after {' and '.join(f'{share} %' for share in value)} of the time" if value else ""


def _week(value: Any) -> str:
    days = zip(DAYS, value or [], strict=False)
    return "; ".join(f"{day.capitalize()} {shifts_in_words(shifts)}" for day, shifts in days if shifts)


def _holidays(value: Any) -> str:
    return "; ".join(f"{day} {name}" for day, name in value or [])


_ON_TIMEOUT = {"reject": "rejected", "escalate": "escalated", "remind": "no deadline, reminders"}
CHANGE_LABELS = {
    "at_once_if_away": "escalate at once if everyone is away",
    "clock_stops": "pause for questions",
    "every": "first reminder after",
    "on_timeout": "if nobody decides",
    "remind": "reminders",
    "steps": "escalates to",
}
CHANGE_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "every": hours_of,
    "clock_stops": hours_of,
    "holidays": _holidays,
    "on_timeout": lambda value: _ON_TIMEOUT.get(value, value or ""),
    "remind": _remind,
    "steps": _steps,
    "week": _week,
}
