"""Storage of waits, and hooks, run in a wait's transaction, for `approvals`, which `runs` never imports."""

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

# Returns the statement, with parameters, that stores a gate with its wait.
Opener = Callable[[GateOpening, WaitSpec], tuple[str, list[Any]]]
# Returns the role in charge of a queue; None if there is no such queue.
Holder = Callable[[str], str | None]
# Handles a wait's deadline; called with everything locked.
OnDue = Callable[[Head, Run, Wait, datetime, Actor], None]

_OPENING = "ROW(%s, %s, %s, %s, %s, %s, %s, %b)"

gate_opener: list[Opener] = []
# The role in charge of each queue.
queues = Queues()
# The same from the queue's row, locked until the transaction ends: the authority for a right that a queue grants.
# Raises Forbidden if the row was not written by our processes.
queue_holder: list[Holder] = []
# Returns the queues to which questions of these runs were escalated, as far as our processes wrote it.
went_further: list[Callable[[Collection[UUID]], dict[UUID, set[str]]]] = []
# Statements, with the role or queue asked as parameter, that accompany the opening of a question. Refused (DA059) if
# nobody may be asked there.
on_ask: list[str] = []
# The policies in force.
policies = Policies()
on_due: dict[str, OnDue] = {}
# Called after a wait's deadline was extended because of a halt, in the same transaction.
on_moved: dict[str, Callable[[Wait], None]] = {}
# Returns an account's open items of runs that it may not see: by run, a value that changes with the item.
open_for: list[Callable[[int], dict[str, Any]]] = []
# Called at each sweep with the ids to skip and the end of the available time (monotonic). Returns failures: id, run and
# error.
Sweep = Callable[[list[UUID], float], list[tuple[UUID, UUID, Exception]]]
on_sweep: list[Sweep] = []
# Statements, with the run id as parameter, that follow the withdrawal of its open waits. They check themselves whether
# the run has ended: a worker sends them with its end, which may be refused.
on_withdraw: list[str] = ["SELECT runs_end_messages(%s)", "SELECT runs_settle_rest(%s)"]
# Statements, with the run id as parameter, for a retried run that waits again for what its end had withdrawn.
on_reopen: list[str] = []


def gate_statement(gate: GateOpening, wait: WaitSpec) -> tuple[str, list[Any]]:
    """Return the statement that stores a gate. Raises LookupError if no app keeps gates."""
    if not gate_opener:
        raise LookupError("no app keeps approvals: is `approvals` in INSTALLED_APPS?")
    return gate_opener[0](gate, wait)


def asking(wait: WaitSpec | None) -> list[tuple[str, list[Any]]]:
    """Return the statements that accompany a question to people; a gate's own statement does this itself."""
    asked = [wait.detail["of"]] if wait is not None and wait.kind == "input" else []
    return [(statement, asked) for statement in on_ask if asked]


def opening_of(wait: WaitSpec | None) -> tuple[str, list[Any]]:
    """Return a wait as an SQL expression of type `runs_opening`, and its parameters."""
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
