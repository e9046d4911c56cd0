"""The checker finds faults in a run's undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Expected, Facts
from tests.system.crash.told import reopenings
from tests.system.crash.undone import GIVER, OWN_END, expected_of_undoer, is_reopened, judge_undone

FIRST, SECOND, BACK_SECOND, BACK_FIRST = "0.1/1", "0.1/2", "0.2/1", "0.2/2"


def event(seq: int, kind: str, slot: str | None = None, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "slot": slot, "attempt": 0, "data": data}


def good() -> Facts:
    items: list[dict[str, Any]] = []
    for slot in (FIRST, SECOND):
        items += [event(0, "ToolInvoked", slot), event(0, "UndoRegistered", slot), event(0, "ToolReturned", slot)]
    items.append(event(0, "UndoBegun"))
    for slot, of in ((BACK_SECOND, SECOND), (BACK_FIRST, FIRST)):
        items += [event(0, "ToolInvoked", slot), event(0, "ToolReturned", slot)]
        items.append(event(0, "EffectUndone", slot, of_slot=of, of_attempt=0))
    ledger = [{"slot": slot, "attempt": 0, "fact": "compensated"} for slot in (SECOND, FIRST)]
    events = [{**each, "seq": n} for n, each in enumerate(items, start=1)]
    return Facts("run", {"state": "failed"}, events, ledger, [], [])


def undone(facts: Facts) -> list[dict[str, Any]]:
    return [each for each in facts.events if each["kind"] == "EffectUndone"]


def swap(facts: Facts) -> None:
    one, other = undone(facts)
    one["data"], other["data"] = other["data"], one["data"]


def forget(facts: Facts) -> None:
    facts.events.remove(undone(facts)[1])
    facts.ledger.pop()


def left_by_a_person(facts: Facts) -> None:
    forget(facts)
    facts.events.append(event(99, "EffectLeft", "0.2/3", of_slot=FIRST, of_attempt=0))


def test_what_is_sound_is_found_sound() -> None:
    assert list(judge_undone(good())) == []
    facts = good()
    left_by_a_person(facts)
    assert list(judge_undone(facts)) == []


def test_a_cancel_that_was_to_undo_and_did_not_begin_is_found() -> None:
    facts = good()
    facts.run["state"] = "cancelled"  # type: ignore[index]
    facts.events[:] = [each for each in facts.events if each["kind"] not in ("UndoBegun", "EffectUndone")]
    facts.ledger.clear()
    assert list(judge_undone(facts)) == []
    assert {kind for kind, _ in judge_undone(facts, is_wanted=True)} == {"lost"}


@each_case(
    ("kind", "spoil"),
    [
        ("broken", swap),
        ("lost", forget),
        ("duplicate", lambda f: f.events.append({**undone(f)[0], "slot": "0.2/9"})),
        ("duplicate", lambda f: f.events.append(event(98, "UndoBegun"))),
        ("broken", lambda f: f.ledger.pop()),
        ("broken", lambda f: undone(f)[0]["data"].update(of_slot="0.1/7")),
        ("broken", lambda f: undone(f)[0].update(slot="0.2/8")),
    ],
)
def test_what_is_wrong_is_found(kind: str, spoil: Callable[[Facts], Any]) -> None:
    facts = good()
    spoil(facts)
    assert kind in {found for found, _ in judge_undone(facts)}


def reopened(*, is_undone: bool = True) -> Facts:
    facts = good()
    begun = next(n for n, each in enumerate(facts.events) if each["kind"] == "UndoBegun")
    facts.events[begun:begun] = [event(0, "RunCompleted"), event(0, "UndoAsked", by="run:parent")]
    facts.events.insert(0, event(0, "RunCreated", agent=GIVER))
    if not is_undone:
        facts.events[:] = facts.events[: begun + 2]
        facts.ledger.clear()
    facts.run["state"] = "cancelled" if is_undone else "completed"  # type: ignore[index]
    for n, each in enumerate(facts.events, start=1):
        each["seq"] = n
    return facts


@each_case("state", ["failed", "completed"])
def test_a_child_that_is_to_end_well_may_break_before_it_has(state: str) -> None:
    """A raised failpoint strikes any run of a family. A completed one can only end by its undo."""
    begun = [event(1, "RunCreated", agent=GIVER)]
    broken = Facts("run", {"state": state, "error": "node_error"}, begun, [], [], [])
    assert ("failed" in expected_of_undoer(broken, Expected({})).ends) is (state == "failed")
    facts = reopened()
    facts.run.update(state="failed", error="node_error")  # type: ignore[attr-defined]
    assert expected_of_undoer(facts, Expected({})).ends == {"cancelled"}


def test_of_a_child_that_broke_not_all_effects_are_wanted() -> None:
    begun = event(1, "RunCreated", agent="crash-undoer")
    own, broken = (
        Facts("run", {"state": "failed", "error": code}, [begun], [], [], []) for code in (OWN_END, "node_error")
    )
    assert (expected_of_undoer(own, Expected({})).state, expected_of_undoer(own, Expected({})).ends) == (
        "failed",
        {"failed", "cancelled"},
    )
    expected = expected_of_undoer(broken, Expected({}))
    assert expected.state == "completed" and "failed" in expected.ends


def test_a_child_that_ended_well_is_undone_and_has_ended_twice() -> None:
    facts = reopened()
    assert is_reopened(facts) and list(judge_undone(facts, is_wanted=True)) == []
    expected = expected_of_undoer(facts, Expected({}))
    assert (expected.state, expected.may_be_cancelled, dict(expected.effects)) == (
        "cancelled",
        False,
        {"erp.create_vendor": 4},
    )


def test_a_child_that_ended_well_and_was_left_so_is_found() -> None:
    facts = reopened(is_undone=False)
    assert not is_reopened(facts) and expected_of_undoer(facts, Expected({})).state == "completed"
    assert {kind for kind, _ in judge_undone(facts, is_wanted=True)} == {"lost"}


@each_case(
    ("kind", "spoil"),
    [("lost", forget), ("broken", swap), ("duplicate", lambda f: f.events.append({**undone(f)[0], "slot": "0.2/9"}))],
)
def test_what_is_wrong_with_a_reopened_child_is_found(kind: str, spoil: Callable[[Facts], Any]) -> None:
    facts = reopened()
    spoil(facts)
    assert kind in {found for found, _ in judge_undone(facts, is_wanted=True)}


@each_case(
    ("told", "found"),
    [
        (["RunCompleted", "UndoAsked", "RunCancelled"], 1),
        (["RunCompleted", "RunCancelled"], 0),
        (["UndoAsked", "RunCompleted", "RunCancelled"], 0),
        (["RunCompleted", "RunCompleted", "UndoAsked"], 1),
    ],
)
def test_only_a_wish_after_the_end_lets_a_run_end_twice(told: list[str], found: int) -> None:
    facts = Facts("run", {}, [event(n, kind, by="run:parent") for n, kind in enumerate(told)], [], [], [])
    assert reopenings(facts) == found


def test_nobody_but_a_parent_reopens_a_child() -> None:
    items = [event(1, "RunCompleted"), event(2, "UndoAsked", by="user:olga"), event(3, "RunCancelled")]
    assert reopenings(Facts("run", {}, items, [], [], [])) == 0


def with_a_child() -> Facts:
    """Add a child between its two effects, which was reopened and undid its own."""
    facts = good()
    child = event(0, "ChildStarted", "0.1/1b", child="child"), event(0, "ChildEnded", "0.1/1b", state="completed")
    facts.events[3:3] = child
    first = next(n for n, each in enumerate(facts.events) if each["slot"] == BACK_FIRST)
    facts.events[first:first] = [
        event(0, "ChildEnded", "0.2/1b", state="cancelled"),
        event(0, "EffectUndone", "0.2/1b", of_slot="0.1/1b", of_attempt=0),
    ]
    for n, each in enumerate(facts.events, start=1):
        each["seq"] = n
    return facts


def told_of_the_child(facts: Facts) -> dict[str, Any]:
    return next(each for each in undone(facts) if each["slot"] == "0.2/1b")


def test_a_child_is_undone_in_its_place() -> None:
    assert list(judge_undone(with_a_child())) == []


@each_case(
    ("kind", "spoil"),
    [
        ("broken", lambda f: f.events.append(f.events.pop(f.events.index(told_of_the_child(f))))),
        ("broken", lambda f: next(x for x in f.events if x["slot"] == "0.2/1b")["data"].update(state="completed")),
        ("duplicate", lambda f: f.events.append({**told_of_the_child(f)})),
        ("broken", lambda f: told_of_the_child(f)["data"].update(of_slot="0.1/9")),
    ],
)
def test_what_is_wrong_with_the_undo_of_a_child_is_found(kind: str, spoil: Callable[[Facts], Any]) -> None:
    facts = with_a_child()
    spoil(facts)
    assert kind in {found for found, _ in judge_undone(facts)}
