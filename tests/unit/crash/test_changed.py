"""The judge of calls that people change finds what it is there for, and cries wolf at nothing."""

from __future__ import annotations

from typing import Any

from tests.cases import each_case
from tests.system.crash.changed import judge_call

Event = dict[str, Any]


def told(kind: str, **data: Any) -> Event:
    return {"kind": kind, "slot": "0.1/1", "data": data}


def asked(n: int, queue: str = "finance_po", requested: str = "r") -> Event:
    return told("ApprovalRequested", approval_id=str(n), queue=queue, requested_hash=requested)


def changed(n: int, to: int | None = None) -> Event:
    return told("PlanAmended", approval_id=str(n), next=str(n + 1 if to is None else to))


def decided(n: int, verdict: str = "approved") -> Event:
    return told("ApprovalDecided", approval_id=str(n), verdict=verdict, by="user:fiona")


def sent(executed: str = "r", requested: str = "r") -> Event:
    return told("ToolInvoked", executed_hash=executed, requested_hash=requested)


def found(events: list[Event]) -> list[str]:
    return [what for _, what in judge_call([event | {"seq": n} for n, event in enumerate(events, start=1)])]


CHANGED = [asked(0), changed(0), asked(1)]


@each_case(
    "events",
    [
        [asked(0), decided(0), sent()],
        [*CHANGED, decided(1), sent("x")],
        [*CHANGED, changed(1), asked(2), decided(2), sent("y")],
        [*CHANGED, decided(1), asked(2, "legal"), decided(2), sent("x")],  # by a rule
        [*CHANGED, decided(1), asked(2), decided(2), sent()],  # asked again without the change
        [*CHANGED, decided(1, "rejected")],
        [asked(0)],
        CHANGED,
    ],
)
def test_what_may_come_of_it_is_sound(events: list[Event]) -> None:
    assert found(events) == []


@each_case(
    "events",
    [
        [*CHANGED, decided(1), sent()],  # what the node asked for
        [asked(0), decided(0), sent("x")],
        [*CHANGED, decided(0), decided(1), sent("x")],  # decided, and changed
        [*CHANGED, changed(0, 2), asked(2), decided(2), sent("x")],
        [asked(0), changed(0), decided(1), sent("x")],
        [asked(0), changed(0), decided(0), asked(1)],
        [*CHANGED, sent("x")],
        [*CHANGED, decided(1, "rejected"), sent("x")],
        [*CHANGED, decided(1), sent("x", "q")],
        [sent()],
        [asked(0), sent()],
    ],
)
def test_what_may_not_is_found(events: list[Event]) -> None:
    assert found(events)


def inquiry(n: int) -> Event:
    return told("InquiryMade", approval_id="0", n=n, to="ira")


def answered(n: int, of: int = 0) -> Event:
    return told("InquiryEnded", approval_id=str(of), n=n, outcome="answered")


def handed(n: int) -> Event:
    return told("ApprovalDelegated", approval_id="0", n=n, to="handed-0")


def back(n: int) -> Event:
    return told("DelegationEnded", approval_id="0", n=n)


def by_them() -> Event:
    return told("ApprovalDecided", approval_id="0", verdict="approved", by="user:handed-0")


@each_case(
    "events",
    [
        [asked(0), inquiry(0), answered(0), inquiry(1), decided(0), sent()],
        [asked(0), handed(0), by_them(), sent()],
        [asked(0), handed(0), back(0), handed(1), by_them(), sent()],
        [asked(0), handed(0), decided(0), sent()],
    ],
)
def test_what_people_talk_about_is_sound(events: list[Event]) -> None:
    assert found(events) == []


@each_case(
    "events",
    [
        [asked(0), answered(0)],
        [asked(0), inquiry(0), answered(0), answered(0)],
        [asked(0), by_them()],
        [asked(0), handed(0), back(0), by_them()],
        [asked(0), handed(0), back(0), back(0)],
        [asked(0), decided(0), inquiry(0)],
    ],
)
def test_what_people_can_t_have_said_is_found(events: list[Event]) -> None:
    assert found(events) != []
