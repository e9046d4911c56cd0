"""The checker finds whatever is wrong with what a run undid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.checker import Facts
from tests.crash.undone import judge_undone

FIRST, SECOND, BACK_SECOND, BACK_FIRST = "0.1/1", "0.1/2", "0.2/1", "0.2/2"


def event(seq: int, kind: str, slot: str | None = None, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "slot": slot, "attempt": 0, "data": data}


def good() -> Facts:
    """Two effects, undone the last first."""
    told: list[dict[str, Any]] = []
    for slot in (FIRST, SECOND):
        told += [event(0, "ToolInvoked", slot), event(0, "UndoRegistered", slot), event(0, "ToolReturned", slot)]
    told.append(event(0, "UndoBegun"))
    for slot, of in ((BACK_SECOND, SECOND), (BACK_FIRST, FIRST)):
        told += [event(0, "ToolInvoked", slot), event(0, "ToolReturned", slot)]
        told.append(event(0, "EffectUndone", slot, of_slot=of, of_attempt=0))
    ledger = [{"slot": slot, "attempt": 0, "fact": "compensated"} for slot in (SECOND, FIRST)]
    events = [{**each, "seq": n} for n, each in enumerate(told, start=1)]
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


@pytest.mark.parametrize(("kind", "spoil"), [
    ("broken", swap), ("lost", forget),
    ("duplicate", lambda f: f.events.append({**undone(f)[0], "slot": "0.2/9"})),
    ("duplicate", lambda f: f.events.append(event(98, "UndoBegun"))),
    ("broken", lambda f: f.ledger.pop()),
    ("broken", lambda f: undone(f)[0]["data"].update(of_slot="0.1/7")),
    ("broken", lambda f: undone(f)[0].update(slot="0.2/8")),
])  # fmt: skip
def test_what_is_wrong_is_found(kind: str, spoil: Callable[[Facts], Any]) -> None:
    facts = good()
    spoil(facts)
    assert kind in {found for found, _ in judge_undone(facts)}
