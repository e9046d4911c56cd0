"""How a wait is stored, and where other apps plug in: what opening one also writes, what its deadline does, what
withdrawing it takes along.

`approvals` registers here; `runs` never imports it. Statements run in the transaction that opens or withdraws the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from ledger.actors import Actor
from ledger.models import Head
from runs.engine.journal import GateOpening, WaitSpec
from runs.journal.asked.policies import Policies
from runs.journal.asked.queues import Queues
from runs.models import Run, Wait

# What a gate's opening writes beside its wait: a statement and its parameters.
Opener = Callable[[GateOpening, WaitSpec], tuple[str, list[Any]]]
# The role in charge of a queue by its name; None where there is no queue of this name.
Holder = Callable[[str], str | None]
# What passes when a wait's deadline does; called with everything locked.
OnDue = Callable[[Head, Run, Wait, datetime, Actor], None]

_OPENING = "ROW(%s, %s, %s, %s, %s, %s, %s, %b)"

gate_opener: list[Opener] = []
# Which role is in charge of a queue now.
queues = Queues()
# The same as the queue's row has it, which is held until the transaction ends: the last word on a right that a queue
# gives. Raises Forbidden where nobody here wrote the row.
queue_holder: list[Holder] = []
# To which queues questions of these runs were put besides, because nobody answered, as far as our processes wrote that.
went_further: list[Callable[[Collection[UUID]], dict[UUID, set[str]]]] = []
# A statement with one parameter, whom a question is put to, that goes along with what opens it. Refused (DA059) where
# nobody may be asked there.
on_ask: list[str] = []
# Which policies are in force.
policies = Policies()
on_due: dict[str, OnDue] = {}
# What follows where a wait's deadline was put off, in the same transaction: its run stood still under a halt.
on_moved: dict[str, Callable[[Wait], None]] = {}
# What is open of an account's that belongs to runs which it may not see: by run, something that is otherwise once it
# has moved.
open_for: list[Callable[[int], dict[str, Any]]] = []
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


def asking(wait: WaitSpec | None) -> list[tuple[str, list[Any]]]:
    """What goes along with a question to people, in the transaction that opens it; a gate's own statement asks it."""
    asked = [wait.detail["of"]] if wait is not None and wait.kind == "input" else []
    return [(statement, asked) for statement in on_ask if asked]


def opening_of(wait: WaitSpec | None) -> tuple[str, list[Any]]:
    """A wait as an SQL expression of type `runs_opening`, and its parameters."""
    if wait is None:
        return "NULL", []
    return _OPENING, [
        wait.id,
        wait.slot,
        wait.attempt,
        wait.kind,
        wait.n,
        wait.deadline,
        Jsonb(wait.detail),
        wait.token_hash,
    ]
