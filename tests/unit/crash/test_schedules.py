"""The judges of halts, pools, keys, schedules and migrations find faults, and none in good records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Facts
from tests.system.crash.halted import Stretch, judge_halted
from tests.system.crash.moved import judge_moved
from tests.system.crash.shared import Shared, judge_shared
from tests.system.crash.turns import judge_key, judge_schedule
from tests.unit.crash.journals import Event, at, facts_of, numbered, told

# --- halts ---


def halted(scope: str, since: float = 10, until: float = 20, *, key: str = "t") -> Stretch:
    return Stretch(scope, key, at(since), at(until), at(12))


def timer(due: float, ended: float, by: str = "system:sweeper", wait: str = "timer") -> list[Event]:
    opened = told("WaitOpened", 5, deadline=at(due).isoformat(), wait=wait, n=0)
    return numbered([opened, told("WaitResolved", ended, by=by, wait=wait, n=0)])


TAG, TOOL, PROVIDER = halted("tag"), halted("tool", key="keyed"), halted("provider", key="scripted")


@each_case(
    ("event", "stretch", "is_found"),
    [
        (told("ToolInvoked", 10, tool="keyed"), TAG, True),
        (told("ToolRedispatched", 19, tool="keyed"), halted("version"), True),
        (told("ModelRouted", 11, model="scripted:thinker"), TAG, True),
        (told("ToolInvoked", 10, tool="keyed"), TOOL, True),
        (told("ModelRouted", 11, model="scripted:thinker"), PROVIDER, True),
        (told("RunClaimed", 12), TAG, True),
        # Not under the halt, or under way before.
        (told("ToolInvoked", 9.99, tool="keyed"), TAG, False),
        (told("ToolInvoked", 20, tool="keyed"), TAG, False),
        (told("ToolReturned", 15, tool="keyed"), TAG, False),
        (told("RunReleased", 15, reason="halt"), TAG, False),
        (told("RunClaimed", 11), TAG, False),
        (told("RunClaimed", 15), TOOL, False),
        (told("ToolInvoked", 15, tool="hooked"), TOOL, False),
        (told("ModelRouted", 15, model="other:thinker"), PROVIDER, False),
    ],
)
def test_what_begins_under_a_halt_is_found(event: Event, stretch: Stretch, is_found: bool) -> None:
    assert len(list(judge_halted(numbered([event]), [stretch]))) == is_found


@each_case(
    ("events", "stretches", "is_found"),
    [
        (timer(12, 15), [TAG], True),
        (timer(22, 31.9), [TAG], True),  # ten seconds later it is due
        (timer(22, 32), [TAG], False),
        (timer(22, 22), [halted("tool")], False),  # a tool's halt stops no clock
        (timer(22, 37), [TAG, halted("version", 15, 25)], False),  # overlaps count once
        (timer(22, 36.9), [TAG, halted("version", 15, 25)], True),
        (timer(12, 15, by="user:olga"), [TAG], False),
        (timer(12, 15, wait="pool"), [TAG], False),  # the calendar ends it
    ],
)
def test_timeout_under_a_halt_is_found(events: list[Event], stretches: list[Stretch], is_found: bool) -> None:
    assert len(list(judge_halted(events, stretches))) == is_found


# --- shared budgets ---

ROUTED = told("ModelRouted", n=0, tokens_in=10, tokens_out=100, usd_micro=7)
DEBITED = told("BudgetDebited", n=0, tokens_in=9, tokens_out=20, usd_micro=3, model_calls=1)
INVOKED = told("ToolInvoked", slot="0.1/2")
CHARGE = {"run": "r", "slot": "0.1/1", "attempt": 0, "n": 0, "pool": 1, "starts_at": "may", "reserved": 100, "used": 20}
CALL = CHARGE | {"slot": "0.1/2", "pool": 2, "reserved": 1, "used": 1}
MAY = {"pool": 1, "starts_at": "may", "most": 100, "used": 20, "reserved": 0}
CALLS = MAY | {"pool": 2, "most": 1, "used": 1}
JOURNAL = [ROUTED, DEBITED, INVOKED]
WELL = Shared([{"id": 1, "resource": "tokens_out"}, {"id": 2, "resource": "tool_calls"}], [MAY, CALLS], [CHARGE, CALL])


@each_case(
    ("changed", "journal", "kinds"),
    [
        ({}, JOURNAL, []),
        ({"charges": [], "periods": [], "is_off": True}, JOURNAL, []),
        ({"charges": [CHARGE]}, JOURNAL, ["duplicate", "lost"]),
        (
            {"charges": [CHARGE, CALL, CALL | {"slot": "0.9/9"}], "periods": [MAY, CALLS | {"used": 2}]},
            JOURNAL,
            ["duplicate"],
        ),
        ({"charges": [CHARGE | {"used": 21}, CALL], "periods": [MAY | {"used": 21}, CALLS]}, JOURNAL, ["broken"]),
        ({"charges": [CHARGE | {"reserved": 99}, CALL]}, JOURNAL, ["broken"]),
        ({"periods": [MAY | {"reserved": 80}, CALLS]}, JOURNAL, ["duplicate"]),
        ({"periods": [MAY | {"used": 0}, CALLS]}, JOURNAL, ["lost"]),
        ({"periods": [CALLS]}, JOURNAL, ["broken"]),
        ({"periods": [MAY | {"most": 19}, CALLS]}, JOURNAL, ["duplicate"]),
        # Reservations left by an ended run.
        (
            {"charges": [CHARGE | {"used": None}, CALL], "periods": [MAY | {"used": 0, "reserved": 100}, CALLS]},
            [ROUTED, INVOKED],
            ["lost"],
        ),
    ],
)
def test_wrongly_drawn_share_is_found(changed: dict[str, Any], journal: list[Event], kinds: list[str]) -> None:
    found = judge_shared(replace(WELL, **changed), {"r": journal}, frozenset({"r"}))
    assert sorted({finding.kind for finding in found}) == kinds


# --- keys and schedules ---


def run(n: int, **changed: Any) -> dict[str, Any]:
    """Return the nth run of a key, which began a second after the one before had ended."""
    times = {"created_at": f"2026-11-22T09:00:{n:02d}Z", "started_at": f"2026-11-22T10:{n:02d}:01Z"}
    times["ended_at"] = f"2026-11-22T10:{n:02d}:59Z"
    return {"id": f"run {n}", "state": "completed", "epoch": 1, "queued_behind": None, **times} | changed


FIRED = {"outcome": "started", "run_id": "run 1", "planned_at": "2026-11-22T10:00:00Z"}
NEVER = {"state": "cancelled", "started_at": None, "epoch": 0}


@each_case(
    ("runs", "kinds"),
    [
        ([run(3), run(1), run(2, **NEVER)], []),
        ([run(1, ended_at="2026-11-22T10:02:30Z"), run(2)], ["duplicate"]),
        ([run(1, ended_at=None), run(2)], ["duplicate"]),
        ([run(1), run(2, state="pending", started_at=None, epoch=0, ended_at=None)], ["stuck"]),
        ([run(1, started_at="2026-11-22T10:03:00Z", ended_at="2026-11-22T10:04:00Z"), run(2)], ["duplicate"]),
    ],
)
def test_a_run_that_begins_out_of_turn_or_never_is_found(runs: list[dict[str, Any]], kinds: list[str]) -> None:
    assert [found.kind for found in judge_key(runs)] == kinds


@each_case(
    ("last", "runs", "kinds"),
    [
        ([FIRED], [run(1)], []),
        ([], [], ["lost"]),
        ([FIRED], [run(1), run(2)], ["duplicate"]),
        ([FIRED, FIRED], [run(1), run(2)], ["duplicate"]),
        ([FIRED], [run(2)], ["broken"]),
        ([], [run(1)], ["lost", "duplicate"]),
    ],
)
def test_wrong_schedule_count_is_found(last: list[Any], runs: list[dict[str, Any]], kinds: list[str]) -> None:
    assert [found.kind for found in judge_schedule({"id": "s", "last": last}, runs)] == kinds


# --- migrated runs ---


def moved(of: int, to: int, generation: int, how: str) -> Event:
    names = {"of": f"crash-test@{of}.0.0", "to": f"crash-test@{to}.0.0"}
    return told("RunMigrated", **names, generation=generation, how=how)


def moved_twice(*begun: Event, how: str = "unbegun") -> Facts:
    """Return a run migrated before its first node, and back after that."""
    created = told("RunCreated", agent="crash-test", version="1.0.0")
    return facts_of([created, *begun, moved(1, 3, 1, how), told("VisitEntered"), moved(3, 1, 2, "replayed")])


@each_case(
    ("facts", "spoil", "is_found"),
    [
        (moved_twice(), None, False),
        (moved_twice(told("RunForked", node="work"), how="reentered"), None, False),
        (moved_twice(told("RunForked", node=""), how="unbegun"), None, False),
        (moved_twice(), lambda f: f.events[1]["data"].update(how="reentered"), True),
        (moved_twice(), lambda f: f.events[3]["data"].update(how="unbegun"), True),
        (moved_twice(), lambda f: f.events[3]["data"].update(of="crash-test@1.0.0"), True),
        (moved_twice(), lambda f: f.events[3]["data"].update(generation=1), True),
        (moved_twice(), lambda f: f.events.pop(), True),
    ],
)
def test_denied_move_is_found(facts: Facts, spoil: Callable[[Facts], Any] | None, is_found: bool) -> None:
    if spoil is not None:
        spoil(facts)
    kinds = {finding.kind for finding in judge_moved(facts, ("crash-test@1.0.0", 2))}
    assert kinds == ({"broken"} if is_found else set())
