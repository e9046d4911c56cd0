"""How a wait is stored, and where other apps plug in: what opening one also writes, what its deadline does, what
withdrawing it takes along.

`approvals` registers here; `runs` never imports it. Statements run in the transaction that opens or withdraws the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from ledger.actors import Actor
from ledger.models import Head
from runs.engine.journal import GateOpening, WaitSpec
from runs.journal.asked.queues import Queues
from runs.models import Run, Wait

# What a gate's opening writes beside its wait: a statement and its parameters.
Opener = Callable[[GateOpening, WaitSpec], tuple[str, list[Any]]]
# What passes when a wait's deadline does; called with everything locked.
OnDue = Callable[[Head, Run, Wait, datetime, Actor], None]

_OPENING = "ROW(%s, %s, %s, %s, %s, %s, %s, %b)"

gate_opener: list[Opener] = []
# Which role is in charge of a queue now.
queues = Queues()
on_due: dict[str, OnDue] = {}
# What else time brings, beside deadlines: called at each sweep with what is to be passed over and until when there is
# time (monotonic). Gives what could not be done: of what, of which run, and why.
Sweep = Callable[[list[UUID], float], list[tuple[UUID, UUID, Exception]]]
on_sweep: list[Sweep] = []
# Statements with one parameter, the run id, that follow the withdrawal of its open waits. They look for themselves
# whether the run has ended: a worker sends them along with its end, which may not be done.
on_withdraw: list[str] = ["SELECT runs_end_messages(%s)", "SELECT runs_settle_rest(%s)"]
# Statements with one parameter, the run id, that follow when a retried run waits again for what its end had withdrawn.
on_reopen: list[str] = []


def gate_statement(gate: GateOpening, wait: WaitSpec) -> tuple[str, list[Any]]:
    """The statement that stores a gate. Raises LookupError where no app keeps gates: nobody could ever decide it."""
    if not gate_opener:
        raise LookupError("no app keeps approvals: is `approvals` in INSTALLED_APPS?")
    return gate_opener[0](gate, wait)


def opening_of(wait: WaitSpec | None) -> tuple[str, list[Any]]:
    """A wait as an SQL expression of type `runs_opening`, and its parameters."""
    if wait is None:
        return "NULL", []
    return _OPENING, [
        wait.id, wait.slot, wait.attempt, wait.kind, wait.n, wait.deadline, Jsonb(wait.detail), wait.token_hash,
    ]  # fmt: skip
