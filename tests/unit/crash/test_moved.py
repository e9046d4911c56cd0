"""The checker finds whatever is wrong with a run that was moved to another version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Facts
from tests.system.crash.moved import judge_moved

ROW = ("crash-test@1.0.0", 2)


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "data": data}


def moved(of: int, to: int, generation: int, how: str) -> dict[str, Any]:
    names = {"of": f"crash-test@{of}.0.0", "to": f"crash-test@{to}.0.0"}
    return event("RunMigrated", **names, generation=generation, how=how)


def good(*begun: dict[str, Any], how: str = "unbegun") -> Facts:
    """Moved before it had entered its first node, and back after that."""
    told = [
        event("RunCreated", agent="crash-test", version="1.0.0"),
        *begun,
        moved(1, 3, 1, how),
        event("VisitEntered"),
        moved(3, 1, 2, "replayed"),
    ]
    return Facts("run", {}, told, [], [], [])


@each_case(
    "facts",
    [good(), good(event("RunForked", node="work"), how="reentered"), good(event("RunForked", node=""), how="unbegun")],
)
def test_what_is_sound_is_found_sound(facts: Facts) -> None:
    assert list(judge_moved(facts, ROW)) == []


@each_case(
    "spoil",
    [
        lambda f: f.events[1]["data"].update(how="reentered"),
        lambda f: f.events[3]["data"].update(how="unbegun"),
        lambda f: f.events[3]["data"].update(of="crash-test@1.0.0"),
        lambda f: f.events[3]["data"].update(generation=1),
        lambda f: f.events.pop(),
    ],
)
def test_what_is_wrong_is_found(spoil: Callable[[Facts], Any]) -> None:
    facts = good()
    spoil(facts)
    assert {finding.kind for finding in judge_moved(facts, ROW)} == {"broken"}
