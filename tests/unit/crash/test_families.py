"""The checker finds faults between a run and its children."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Expected, Facts
from tests.system.crash.families import between
from tests.unit.crash.test_checker import used

EXPECTED = Expected({}, children=2)
Family = tuple[Facts, list[Facts]]
PARENT, ONE, OTHER = "parent", "one", "other"


def event(kind: str, n: int, child: str, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "slot": f"0.1/1/{n}/1", "attempt": 0, "data": {"child": child, **data}}


def good() -> Family:
    events = [event("ChildStarted", n, child, caps={}) for n, child in enumerate((ONE, OTHER))]
    events += [
        event("ChildEnded", n, child, state="completed", **used(tool_calls=1)) for n, child in enumerate((ONE, OTHER))
    ]
    children = [
        Facts(child, {"state": "completed", "usage": used(tool_calls=1)}, [], [], [], []) for child in (ONE, OTHER)
    ]
    return Facts(PARENT, {"state": "completed"}, events, [], [], []), children


def more(n: int) -> Callable[[Facts, list[Facts]], None]:
    return lambda parent, children: parent.events.append(copy.deepcopy(parent.events[n]))


def told(**said: Any) -> Callable[[Facts, list[Facts]], None]:
    return lambda parent, children: parent.events[2]["data"].update(said)


def goes_on(parent: Facts, children: list[Facts]) -> None:
    first = children[0]
    first.events.append({"kind": "RunRenewed", "data": {"successor": "heir"}})
    come = {"kind": "RunCarriedOn", "data": {"origin": ONE, "first": ONE, "turn": 1}}
    first.run["usage"].update(tool_calls=0)  # type: ignore[index]
    children.append(Facts("heir", {"state": "completed", "usage": used(tool_calls=1)}, [come], [], [], []))


def going_on(change: Callable[[list[Facts]], Any]) -> Callable[[Facts, list[Facts]], None]:
    def spoil(parent: Facts, children: list[Facts]) -> None:
        goes_on(parent, children)
        change(children)

    return spoil


def twice(children: list[Facts]) -> None:
    children.append(Facts("another", children[-1].run, copy.deepcopy(children[-1].events), [], [], []))


def is_undone(parent: Facts, children: list[Facts]) -> None:
    children[0].events.extend(
        [{"kind": "RunCompleted", "data": {}}, {"kind": "UndoAsked", "data": {"by": "run:parent"}}]
    )
    children[0].run.update(state="cancelled", usage=used(tool_calls=2))  # type: ignore[attr-defined]
    parent.events.append(event("ChildEnded", 5, ONE, state="cancelled", **used(tool_calls=1)))


def undoing(change: Callable[[Facts, list[Facts]], Any]) -> Callable[[Facts, list[Facts]], None]:
    def spoil(parent: Facts, children: list[Facts]) -> None:
        is_undone(parent, children)
        change(parent, children)

    return spoil


WRONG: dict[str, tuple[str, Callable[[Facts, list[Facts]], Any]]] = {
    "a child was started twice": ("duplicate", more(0)),
    "an end was told twice": ("duplicate", more(2)),
    "an end was not told": ("lost", lambda parent, children: parent.events.pop(2)),
    "a child is gone": ("lost", lambda parent, children: children.pop()),
    "nobody started a child": ("broken", lambda parent, children: parent.events.pop(0)),
    "a child is missing": ("broken", lambda parent, children: (parent.events.pop(0), parent.events.pop(1))),
    "one was started again without need": ("broken", lambda parent, children: parent.events[0].update(attempt=1)),
    "another end was told": ("broken", told(state="failed")),
    "the run that one went on as is gone": ("lost", going_on(lambda children: children.pop())),
    "one went on as two": ("duplicate", going_on(twice)),
    "nobody went on as that run": ("broken", going_on(lambda children: children[0].events.clear())),
    "it went on from another": ("duplicate", going_on(lambda c: c[-1].events[0]["data"].update(origin=OTHER))),
    "it went on and failed": ("broken", going_on(lambda children: children[0].run.update(state="failed"))),  # type: ignore[attr-defined]
    "what it used before was not debited": ("lost", going_on(lambda c: c[0].run["usage"].update(tool_calls=1))),
    "it was undone, and nobody asked it to": ("duplicate", undoing(lambda parent, c: c[0].events.clear())),
    "that it was undone was told twice": ("duplicate", undoing(more(-1))),
    "that it was undone was not told": ("broken", undoing(lambda parent, c: parent.events.pop())),
    "what it used before was debited again": (
        "duplicate",
        undoing(lambda parent, c: parent.events[-1]["data"].update(tool_calls=2)),
    ),
    "too little was debited": ("lost", told(tool_calls=0)),
    "too much was debited": ("duplicate", told(usd_micro=5)),
}


def test_a_good_family_is_found_good() -> None:
    assert list(between(*good(), EXPECTED)) == []


def test_a_child_that_went_on_is_found_good() -> None:
    family = good()
    goes_on(*family)
    assert list(between(*family, EXPECTED)) == []


def test_a_child_that_was_reopened_is_found_good() -> None:
    family = good()
    is_undone(*family)
    assert list(between(*family, EXPECTED)) == []


@each_case("what", WRONG)
def test_whatever_is_wrong_between_them_is_found(what: str) -> None:
    kind, spoil = WRONG[what]
    family = good()
    spoil(*family)
    assert kind in [found for found, _ in between(*family, EXPECTED)]
