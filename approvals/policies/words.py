"""What a rule is and would be, as whoever agrees to it reads it: hours, not minutes, and what a yes has to show in
words. What no words are known for stays as the record keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from approvals.deadlines.listed import shifts_in_words
from approvals.grants import bounds_in
from approvals.queues.listed import asked_in_words
from approvals.timing.words import hours_of
from runs.engine.errors import DefinitionError
from runs.engine.gate.calendars import DAYS
from runs.engine.gate.proof import threshold_in

_LABELS = {
    "again": "the same again",
    "at_once_if_away": "at once, where everybody is away",
    "clock_stops": "while somebody is asked, the clock stands for at most",
    "every": "of what waits for ever, first after",
    "on_timeout": "when nobody answers",
    "proof": "what a yes has to show",
    "remind": "reminders",
    "steps": "to whom it goes",
    "within_seconds": "within",
}
_ON_TIMEOUT = {
    "reject": "it is denied",
    "escalate": "it goes to a further queue",
    "remind": "it waits, and people are reminded",
}


def label_of(name: str) -> str:
    return _LABELS.get(name, name.replace("_", " "))


def was_and_is(name: str, before: Any, after: Any) -> tuple[str, str]:
    """What it was and would be. What differs never reads the same, but nothing for nothing: else it is shown as the
    record keeps it."""
    was, now = said(name, before), said(name, after)
    return (was, now) if was != now or not (before or after) else (_plainly(before), _plainly(after))


def said(name: str, value: Any) -> str:
    """What it is; empty for nothing."""
    if name in _WORDS:
        # Acts on record may say what was never set: words are for what has the shape that is set now.
        with suppress(DefinitionError, TypeError, ValueError):
            return _WORDS[name](value)
    return _plainly(value)


def _plainly(value: Any) -> str:
    if value is None or value == "" or value == []:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "; ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _steps(value: Any) -> str:
    return ", then ".join(f"{to} for {hours_of(minutes)}" for to, minutes in value or [])


def _remind(value: Any) -> str:
    return f"after {' and '.join(f'{share} %' for share in value)} of the time" if value else ""


def _proof(value: Any) -> str:
    return asked_in_words(threshold_in(value))


def _again(value: Any) -> str:
    if value is None:
        return ""
    bounds = bounds_in(value)
    if bounds is None:
        raise ValueError("no bounds of the same again")
    in_all = "" if bounds.most is None else f", {bounds.most:,f} in all at most"
    calls, days = (f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in ((bounds.times, "call"), (bounds.days, "day")))
    return f"{calls} at most, {days} at most{in_all}"


def _week(value: Any) -> str:
    days = zip(DAYS, value or [], strict=False)
    return "; ".join(f"{day.capitalize()} {shifts_in_words(shifts)}" for day, shifts in days if shifts)


def _holidays(value: Any) -> str:
    return "; ".join(f"{day} {name}" for day, name in value or [])


_WORDS: dict[str, Callable[[Any], str]] = {
    "again": _again,
    "every": hours_of,
    "clock_stops": hours_of,
    "holidays": _holidays,
    "on_timeout": lambda value: _ON_TIMEOUT.get(value, value or ""),
    "proof": _proof,
    "remind": _remind,
    "steps": _steps,
    "week": _week,
    "within_seconds": lambda seconds: hours_of((seconds or 0) // 60),
}
