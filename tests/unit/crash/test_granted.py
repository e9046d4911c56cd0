from __future__ import annotations

from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Facts
from tests.system.crash.granted import judge_again, lapsed

Event = dict[str, Any]


def event(seq: int, kind: str, slot: str, data: dict[str, Any], payload: Any = None) -> Event:
    return {"seq": seq, "kind": kind, "slot": slot, "attempt": 0, "data": data, "payload": payload or {}}


def asked(seq: int, slot: str, n: int = 0) -> Event:
    said = {"approval_id": f"{slot}.{n}", "tool": "again", "queue": "finance_po", "requested_hash": "x"}
    return event(seq, "ApprovalRequested", slot, said)


def yes(seq: int, slot: str, n: int = 0, **standing: Any) -> Event:
    said = {"approval_id": f"{slot}.{n}", "verdict": "approved", "by": "user:a"}
    return event(seq, "ApprovalDecided", slot, said, {"standing": standing or None})


def sent(seq: int, slot: str) -> Event:
    return event(seq, "ToolInvoked", slot, {"executed_hash": "x", "requested_hash": "x", "grant": slot})


GIVEN = [asked(1, "a"), yes(2, "a", again={"times": 2}), sent(3, "a")]
USED = [asked(4, "b"), yes(5, "b", grant=7, use=1), sent(6, "b")]


def found(events: list[Event]) -> list[str]:
    facts = Facts("r", {"state": "completed"}, events, [], [], [])
    return [kind for kind, _ in judge_again(facts)]


def test_what_is_as_it_should_be_is_not_found() -> None:
    assert found([*GIVEN, *USED, asked(7, "c"), yes(8, "c", grant=7, use=2), sent(9, "c")]) == []
    taken_back = [asked(7, "c"), yes(8, "c", grant=7, use=2), asked(9, "c", 1), yes(10, "c", 1), sent(11, "c")]
    assert found([*GIVEN, *USED, *taken_back]) == [] and lapsed([*GIVEN, *USED, *taken_back]) == {"c": 1}
    assert lapsed([asked(1, "a"), yes(2, "a"), asked(3, "a", 1)]) == {}, "a person's yes is asked for once"


@each_case(
    "events",
    [
        [*USED],  # nobody allowed it
        [*GIVEN, *USED, asked(7, "c"), yes(8, "c", grant=7, use=1), sent(9, "c")],  # the same use twice
        [*GIVEN, *USED, asked(7, "c"), yes(8, "c", grant=7, use=3)],  # beyond what it says
        [*GIVEN, asked(4, "b"), sent(6, "b")],  # sent without a yes
        [*GIVEN, asked(4, "b"), yes(5, "b", grant=7, use=1), asked(6, "b", 1), sent(7, "b")],  # by one that lapsed
    ],
)
def test_what_must_not_be_is_found(events: list[Event]) -> None:
    assert found(events)
