"""Texts about a question's time for pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, TextField
from django.db.models.expressions import RawSQL

from approvals.models import Approval, ApprovalState


@dataclass(frozen=True, slots=True)
class TimeWords:
    """Plain sentences, possibly empty. `is_endless`: no deadline. `is_halted`: run and clock are halted."""

    counted: str = ""
    then: str = ""
    so_far: str = ""
    ended: str = ""
    is_endless: bool = False
    is_halted: bool = False


@dataclass(frozen=True, slots=True)
class Missed:
    """A missed deadline, and the queue asked next. `is_away`: nobody was there, so the deadline was not awaited."""

    at: datetime
    queue: str
    is_away: bool = False


_MISSED = """CASE WHEN approvals_approval.escalated_to IS NOT NULL THEN (
    SELECT json_build_array(e.at, e.queue, e.cause)::text FROM approvals_escalation e
    WHERE e.approval_id = approvals_approval.id ORDER BY e.n DESC LIMIT 1) END"""


def along() -> dict[str, RawSQL]:
    """Return annotations for shown cases: whether their clock is paused by a halt, and the missed deadline."""
    halted = "approvals_approval.state = 'open' AND runs_halted_by(approvals_approval.run_id, NULL) IS NOT NULL"
    return {
        "is_halted": RawSQL(halted, [], output_field=BooleanField()),
        "missed": RawSQL(_MISSED, [], output_field=TextField()),
    }


def missed(approval: Approval) -> Missed | None:
    """Return the last missed deadline of a case read with `along`, or None."""
    text = getattr(approval, "missed", None)
    if not text:
        return None
    at, queue, cause = json.loads(text)
    return Missed(datetime.fromisoformat(at), queue, cause == "away")


def is_halted(approval: Approval) -> bool:
    return bool(getattr(approval, "is_halted", False))


def is_endless(approval: Approval) -> bool:
    terms = approval.timing
    return isinstance(terms, dict) and terms.get("on_timeout") == "remind"


def time_of(approval: Approval) -> TimeWords:
    """Return the texts for one question."""
    terms = approval.timing if isinstance(approval.timing, dict) else None
    ended = (
        "Nothing was sent. The agent was told that nobody answered." if approval.state == ApprovalState.EXPIRED else ""
    )
    if terms is None:
        return TimeWords(then="If nobody decides by then, it is rejected.", ended=ended, is_halted=is_halted(approval))
    return TimeWords(
        counted_in(terms),
        _then(terms, approval),
        _so_far(approval, terms),
        ended,
        is_endless(approval),
        is_halted(approval),
    )


def counted_in(terms: Mapping[str, Any]) -> str:
    """Return how its time was counted: "8 working hours, calendar DE (version 2, Europe/Berlin)"."""
    calendar = terms.get("calendar")
    hours = hours_of(terms.get("minutes"))
    if not terms.get("is_working"):
        return hours
    if not isinstance(calendar, dict):
        return f"{hours}, around the clock"
    which = f"version {calendar.get('version')}, {calendar.get('zone')}"
    return f"{_working(hours)}, calendar {calendar.get('name')} ({which})"


def hours_of(minutes: Any) -> str:
    """Return hours as text, with minutes if a tenth isn't exact; empty below a minute."""
    if not isinstance(minutes, int) or not minutes:
        return ""
    if minutes >= 60 and minutes % 6 == 0:
        return f"{hours_typed(minutes)} hour{'' if minutes == 60 else 's'}"
    counts = [(minutes // 60, "hour"), (minutes % 60, "minute")]
    return " ".join(f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in counts if n)


def hours_typed(minutes: int) -> str:
    """Return minutes as a form's hours, exact enough to convert back."""
    return f"{minutes / 60:.8f}".rstrip("0").rstrip(".")


def _working(text: str) -> str:
    number, _, unit = text.partition(" ")
    return f"{number} working {unit}"


def _then(terms: Mapping[str, Any], approval: Approval) -> str:
    if terms.get("on_timeout") == "remind":
        return "There is no deadline. Approvers are reminded until one of them decides."
    steps = [each for each in terms.get("steps") or [] if isinstance(each, dict)]
    left = [each for each in steps if each.get("to") not in (approval.escalated_to or [])]
    if not left:
        return "If nobody decides by then, it is rejected."
    working = _working if terms.get("calendar") else str
    names = ", then to ".join(f"{each.get('to')} for {working(hours_of(each.get('minutes')))}" for each in left)
    return f"If nobody decides by then, it escalates to {names}. After that it is rejected."


def _so_far(approval: Approval, terms: Mapping[str, Any]) -> str:
    parts = []
    if approval.escalated_to:
        parts.append(f"Escalated: {' and '.join(approval.escalated_to)} can decide too.")
    if approval.reminded:
        parts.append(f"Reminded {approval.reminded} time{'' if approval.reminded == 1 else 's'}.")
    return " ".join(parts)
