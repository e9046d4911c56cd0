"""The judge of what nobody answers in time finds what it is there for, and cries wolf at nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cases import each_case
from tests.system.crash.late import judge_question

Event = dict[str, Any]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    return (AT + timedelta(seconds=seconds)).isoformat()


def told(kind: str, seconds: float, **data: Any) -> Event:
    return {"kind": kind, "slot": "0.1/1", "at": at(seconds), "data": {"approval_id": "a", **data}}


def asked(tool: str = "further", word: str | None = "escalate") -> list[Event]:
    """Put with a second's time."""
    question = told("ApprovalRequested", 0, tool=tool, queue="finance_po", deadline=at(1))
    return [question, *([told("ApprovalTimed", 0, on_timeout=word)] if word else [])]


def went(seconds: float = 1.2, to: str = "legal", until: float = 61) -> Event:
    return told("ApprovalEscalated", seconds, to=to, deadline=at(until))


def reminded(seconds: float = 1.1, until: float = 61) -> Event:
    return told("ApprovalReminded", seconds, cause="no_deadline", deadline=at(until))


def decided(seconds: float, verdict: str = "approved", role: str = "approver_finance", by: str = "user:x") -> Event:
    return told("ApprovalDecided", seconds, verdict=verdict, role=role, by=by)


def expired(seconds: float = 70, by: str = "system:sweeper") -> Event:
    return decided(seconds, "expired", "system", by)


def found(events: list[Event]) -> list[str]:
    numbered = [event | {"seq": n} for n, event in enumerate(events, start=1)]
    return [what for _, what in judge_question(numbered[0], numbered)]


PATIENT = asked("patient", "remind")


@each_case(
    "events",
    [
        asked(),
        [*asked(), decided(0.5)],
        [*asked(), decided(1.1)],  # between its deadline and the sweep
        [*asked(), went(), decided(3)],
        [*asked(), went(), decided(3, role="approver_legal")],
        [*asked(), went(), expired()],
        [*asked(), decided(0.5, "rejected")],
        [*PATIENT, reminded(), reminded(62, 190), decided(500)],
        asked(word=None),  # asked anew, once a yes had lapsed
        [*asked(word=None), expired()],
    ],
)
def test_what_may_come_of_it_is_sound(events: list[Event]) -> None:
    assert found(events) == []


@each_case(
    "events",
    [
        [*asked(), expired()],
        [*PATIENT, expired()],
        [*PATIENT, reminded(), expired()],
        [*asked(), decided(0.5, role="approver_legal")],
        [*asked(), decided(1.1, role="approver_legal"), went()],
        [*asked(), went(0.5), decided(3)],
        [*asked(), went(to="board")],
        [*asked(), went(), went(62, until=122)],
        [*asked(), went(until=1.2)],
        [*asked(), went(), expired(by="user:x")],
        [*asked(), decided(0.5), decided(0.6)],
        [*asked(), decided(0.5), went()],
        [*asked(), reminded()],
        [*PATIENT, went()],
        [*PATIENT, reminded(), reminded(30, 90)],
        [*PATIENT, reminded(0.5)],
        [*asked(), told("ApprovalTimed", 2, on_timeout="escalate")],
        asked(word="remind"),
    ],
)
def test_what_may_not_is_found(events: list[Event]) -> None:
    assert found(events)
