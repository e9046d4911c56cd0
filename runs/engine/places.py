"""Slots of a visit's calls: each branch numbers its own below a fixed path, whichever is faster. A replay's calls
are checked against their records, and none with an unknown outcome may be left out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledger import events as e
from runs.engine.errors import MisusedContext
from runs.engine.journal import WaitSpec
from runs.engine.outcomes import Broken, describe_call, differs
from runs.engine.tape import Slot, Tape


@dataclass(eq=False)
class Branch:
    """A sequence of calls within a visit: the node's own, or one of a `gather`."""

    under: str = ""  # the path below which its calls are numbered
    calls: int = 0
    told: Counter[str] = field(default_factory=Counter)  # number of progress messages of each kind
    waits: tuple[WaitSpec, ...] = ()  # waits that must be resolved before it continues
    result: Any = None
    error: BaseException | None = None


class Places:
    """The slots of one visit, and the branch of each task. The creating task is the node's own."""

    def __init__(self, generation: int, visit: int) -> None:
        self._prefix = f"{generation}.{visit}"
        self._branches = {asyncio.current_task(): Branch()}

    @property
    def branch(self) -> Branch:
        """The current task's branch. Raises MisusedContext for a task that the visit doesn't know."""
        branch = self._branches.get(asyncio.current_task())
        if branch is None:
            raise MisusedContext(
                "journaled calls must come from the node's own task: use ctx.gather, not asyncio.create_task"
            )
        return branch

    @contextmanager
    def running(self, branch: Branch) -> Iterator[None]:
        """Register the current task as a branch of this visit."""
        task = asyncio.current_task()
        self._branches[task] = branch
        try:
            yield
        finally:
            del self._branches[task]

    def next_of(self, branch: Branch) -> str:
        """Return the slot of a branch's next call."""
        branch.calls += 1
        return self.at(f"{branch.under}{branch.calls}")

    @property
    def visit(self) -> str:
        """The visit: generation and number."""
        return self._prefix

    def next_told(self, what: str) -> tuple[str, int]:
        """Return the place and number of the branch's next progress message. Raises MisusedContext."""
        branch = self.branch
        branch.told[what] += 1
        return f"{self.at(branch.under)}{'' if what == 'line' else what}", branch.told[what] - 1

    def at(self, path: str) -> str:
        return f"{self._prefix}/{path}"


def path_of(slot: str) -> str:
    return slot.partition("/")[2]


def place_of(slot: str) -> int:
    """Return the number, from 1, of the call on the node's own branch that a slot belongs to."""
    return int(path_of(slot).partition("/")[0])


class Recall:
    """A visit's tape, and which of its slots the node has reached."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._recalled: set[str] = set()

    def record(self, slot: str, what: str, requested_hash: str, arguments: Any) -> Slot | Broken:
        """Return the slot's record, or a stop for an operator if it holds another call."""
        record = self._tape.slot(slot)
        self._recalled.add(slot)
        if record.what is None and slot in self._tape.parents:
            return differs(slot, describe_call("think"), describe_call(what, requested_hash, arguments))
        if record.what is not None and (record.what != what or record.requested_hash not in ("", requested_hash)):
            return differs(slot, _on_record(record), describe_call(what, requested_hash, arguments))
        return record

    def path(self, slot: str, what: str) -> str | Broken:
        """Return the path of a call that numbers others below it; its slot must hold no call."""
        record = self._tape.slot(slot)
        return path_of(slot) if record.what is None else differs(slot, _on_record(record), describe_call(what))

    def left_out(self) -> Broken | None:
        """Return a stop if the node skipped a call with an unknown outcome."""
        for slot, record in self._tape.in_doubt():
            if slot not in self._recalled:
                return differs(slot, _on_record(record), describe_call("nothing"))
        return None


def _on_record(slot: Slot) -> dict[str, Any]:
    return describe_call(slot.what or "", slot.requested_hash or "", slot.arguments)


class Asked(NamedTuple):
    """The record of a question's slot, and the slots of earlier calls sent under its approval."""

    record: Slot
    users: frozenset[str]


def asked_at(slot: str, events: Iterable[e.Event]) -> Asked:
    """Return the record of a question from an earlier visit."""
    tape = Tape(events)
    return Asked(tape.slot(slot), frozenset(name for name, one in tape.slots.items() if one.was_invoked))
