"""Where a visit's calls stand: each branch numbers its own, below a path that is fixed when it is made. So no branch
can renumber another's calls, whoever is faster. And whether a replay does what the journal says: each call is held
against the record of its slot, and none that is in doubt may be left out."""

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
    """One line of calls within a visit: the node's own, or one of a `gather`."""

    under: str = ""  # the path that its calls are numbered below
    calls: int = 0
    told: Counter[str] = field(default_factory=Counter)  # how much of each kind its node has said for people
    waits: tuple[WaitSpec, ...] = ()  # what it can't go on without
    result: Any = None
    error: BaseException | None = None


class Places:
    """The slots of one visit, and which branch of it a task is. The task that makes it is the node's own."""

    def __init__(self, generation: int, visit: int) -> None:
        self._prefix = f"{generation}.{visit}"
        self._branches = {asyncio.current_task(): Branch()}

    @property
    def branch(self) -> Branch:
        """The branch whose task runs now. Raises MisusedContext for a task that the visit doesn't know."""
        branch = self._branches.get(asyncio.current_task())
        if branch is None:
            raise MisusedContext(
                "journaled calls must come from the node's own task: use ctx.gather, not asyncio.create_task"
            )
        return branch

    @contextmanager
    def running(self, branch: Branch) -> Iterator[None]:
        """The current task is a branch of this visit."""
        task = asyncio.current_task()
        self._branches[task] = branch
        try:
            yield
        finally:
            del self._branches[task]

    def next_of(self, branch: Branch) -> str:
        """The slot of a branch's next call."""
        branch.calls += 1
        return self.at(f"{branch.under}{branch.calls}")

    @property
    def visit(self) -> str:
        """Which visit it is: generation and number."""
        return self._prefix

    def next_told(self, what: str) -> tuple[str, int]:
        """The place of what a branch says next, and its number there. Raises MisusedContext."""
        branch = self.branch
        branch.told[what] += 1
        return f"{self.at(branch.under)}{'' if what == 'line' else what}", branch.told[what] - 1

    def at(self, path: str) -> str:
        return f"{self._prefix}/{path}"


def path_of(slot: str) -> str:
    return slot.partition("/")[2]


def place_of(slot: str) -> int:
    """Which call of the node's own line a slot belongs to, from 1."""
    return int(path_of(slot).partition("/")[0])


class Recall:
    """A visit's tape, and which of its slots the node has come to."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._recalled: set[str] = set()

    def record(self, slot: str, what: str, requested_hash: str, arguments: Any) -> Slot | Broken:
        """The slot's record, or what an operator sees if this is not the call that it holds."""
        record = self._tape.slot(slot)
        self._recalled.add(slot)
        if record.what is None and slot in self._tape.parents:
            return differs(slot, describe_call("think"), describe_call(what, requested_hash, arguments))
        if record.what is not None and (record.what != what or record.requested_hash not in ("", requested_hash)):
            return differs(slot, _on_record(record), describe_call(what, requested_hash, arguments))
        return record

    def path(self, slot: str, what: str) -> str | Broken:
        """The path of a call that numbers others below it; its slot must hold no call of its own."""
        record = self._tape.slot(slot)
        return path_of(slot) if record.what is None else differs(slot, _on_record(record), describe_call(what))

    def left_out(self) -> Broken | None:
        """A call in doubt that the node didn't come to this time: it must not be passed over."""
        for slot, record in self._tape.in_doubt():
            if slot not in self._recalled:
                return differs(slot, _on_record(record), describe_call("nothing"))
        return None


def _on_record(slot: Slot) -> dict[str, Any]:
    return describe_call(slot.what or "", slot.requested_hash or "", slot.arguments)


class Asked(NamedTuple):
    """The record of a question's slot, and the slots of the calls that went out under its yes in visits before."""

    record: Slot
    users: frozenset[str]


def asked_at(slot: str, events: Iterable[e.Event]) -> Asked:
    """The same of what the journal tells of a question that an earlier visit put."""
    tape = Tape(events)
    return Asked(tape.slot(slot), frozenset(name for name, one in tape.slots.items() if one.was_invoked))
