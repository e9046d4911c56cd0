"""The SQL for opening waits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from ledger.contents import stored_json
from runs import features
from runs.engine.journal import GateOpening, WaitSpec
from runs.models.run import READABLE_DETAIL

_OPENING = "ROW(%s, %s, %s, %s, %s, %s, %s, %b)"


def gate_statement(gate: GateOpening, wait: WaitSpec) -> tuple[str, list[Any]]:
    """Return the statement that stores a gate. Raises LookupError if no app provides gates."""
    if (open_gate := features.only(lambda each: each.open_gate)) is None:
        raise LookupError("no app provides approvals: add `approvals` to INSTALLED_APPS")
    return open_gate(gate, wait)


def question_statements(wait: WaitSpec | None) -> list[tuple[str, list[Any]]]:
    """Return the additional statements to execute when a question to people is opened.
    They aren't needed for a gate, because the statement that stores a gate includes them."""
    if wait is None or wait.kind != "input":
        return []
    return [(statement, [wait.detail["of"]]) for statement in features.parts_of_all(lambda each: each.on_question)]


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
        Jsonb(stored_json(wait.detail, UUID(wait.run_id), READABLE_DETAIL)),
        wait.token_hash,
    ]
