from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from ledger import events as e
from runs.engine import tape as tape_module
from runs.engine.tape import Tape
from tests.cases import each_case


def sent(slot: str) -> e.ToolInvoked:
    return e.ToolInvoked(
        slot=slot, tool="order", replay_class="idempotent_with_key", requested_hash="h", executed_hash="h"
    )


def refused(slot: str) -> e.ToolFailed:
    return e.ToolFailed(slot=slot, tool="order", code="no", requested_hash="h")


def returned(slot: str) -> e.ToolReturned:
    return e.ToolReturned(slot=slot, tool="order", payload={"result": {}})


def read(slot: str) -> e.ToolRead:
    return e.ToolRead(slot=slot, tool="look", requested_hash="h", payload={"result": {}})


def two_branches(slot: str) -> e.BranchesOpened:
    return e.BranchesOpened(slot=slot, branches=2)


CASES: dict[str, tuple[list[e.Event], list[str]]] = {
    "the only call": ([sent("0.1/1"), refused("0.1/1")], ["0.1/1"]),
    "the last of two": ([sent("0.1/9"), returned("0.1/9"), sent("0.1/10"), refused("0.1/10")], ["0.1/10"]),
    "not one that something was begun after": ([sent("0.1/9"), refused("0.1/9"), sent("0.1/10")], []),
    "one that was followed by a read": ([sent("0.1/1"), refused("0.1/1"), read("0.1/2")], ["0.1/1"]),
    "each branch has its own last": (
        [two_branches("0.1/1"), sent("0.1/1/0/1"), refused("0.1/1/0/1"), sent("0.1/1/1/1"), refused("0.1/1/1/1")],
        ["0.1/1/0/1", "0.1/1/1/1"],
    ),
    "not in a branch that went on": (
        [
            two_branches("0.1/1"),
            sent("0.1/1/0/1"),
            refused("0.1/1/0/1"),
            sent("0.1/1/0/2"),
            sent("0.1/1/1/1"),
            refused("0.1/1/1/1"),
        ],
        ["0.1/1/1/1"],
    ),
    "not in a gather that the node went on from": (
        [two_branches("0.1/1"), sent("0.1/1/0/1"), refused("0.1/1/0/1"), sent("0.1/2")],
        [],
    ),
    "not in a turn that another followed": ([sent("0.1/1/0/1"), refused("0.1/1/0/1"), sent("0.1/1/1/0")], []),
    "in a visit after an earlier one": (
        [sent("0.9/5"), returned("0.9/5"), sent("0.10/1"), refused("0.10/1")],
        ["0.10/1"],
    ),
}


@each_case("case", CASES)
def test_what_is_tried_again_is_what_nothing_was_begun_after(case: str) -> None:
    events, wanted = CASES[case]
    assert Tape(events).to_reopen() == wanted


def work(calls: int) -> int:
    """Count the tape's function calls for a reopening after this many calls, half of them refused."""
    events: list[e.Event] = [two_branches("0.1/1")]
    for i in range(calls):
        slot = f"0.1/1/{i % 2}/{i // 2 + 1}"
        events += [sent(slot), refused(slot) if i % 4 < 2 else returned(slot)]
    tape, count = Tape(events), 0

    def note(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename == tape_module.__file__

    sys.setprofile(note)
    try:
        found = tape.to_reopen()
    finally:
        sys.setprofile(None)
    assert len(found) <= 2
    return count


def test_the_work_grows_with_the_calls_and_not_with_their_square() -> None:
    few, many = work(1_000), work(4_000)
    assert many <= few * 4.5
