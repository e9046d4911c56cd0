"""A run's call: its tool, if this process has it, and the waits that it opened.
For locks and transactions see `command`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ledger import events as e
from ledger.actors import Actor
from runs.engine.agents import registry
from runs.engine.errors import JournalBroken, UnknownAgent, UnknownVersion
from runs.engine.journal import detail_of
from runs.engine.tape import Tape
from runs.engine.tools import Tool
from runs.journal.reader import at_slot
from runs.models import Run, Wait
from runs.services.command import Act, resolve

UNASKED = "The run's journal has no such question: the row was written outside the application."
DISTRUSTED = "The run's journal is damaged: {}."


def tool_here(run: Run, name: str) -> Tool | None:
    """Return a tool of the run's agent; None if this process doesn't have that version."""
    try:
        return registry.find(run.graph_id).tool(name)
    except (UnknownAgent, UnknownVersion):
        return None


def close_others(run: Run, slot: str, attempt: int, *, by: Actor, now: datetime, **kept: Any) -> list[e.Event]:
    """Close the waits that a settled call left open, except those that match `kept`.
    Returns the events to be written."""
    closing: list[e.Event] = []
    still_open = run.waits.select_for_update().filter(slot=slot, attempt=attempt, resolved_at__isnull=True)
    for wait in still_open.exclude(**kept) if kept else still_open:
        resolve(wait, "answered", by=by.ref, now=now)
        closing.append(
            e.WaitResolved(
                slot=wait.slot, attempt=wait.attempt, wait=wait.kind, n=wait.n, resolution="answered", by=by.ref
            )
        )
    return closing


def told_at(run_id: UUID, slot: str) -> list[e.Event]:
    """Return the verified events of one call. Raises JournalBroken."""
    return at_slot(run_id, slot)


def asked_by(wait: Wait) -> e.WaitOpened | None:
    """Return the journal's event for this wait; None if it is answered or the wait's row is forged. Raises
    JournalBroken."""
    requested = told_at(wait.run_id, wait.slot)
    if Tape(requested).slot(wait.slot).at(wait.attempt).waits.get((str(wait.kind), wait.n), "") is not None:
        return None
    place = str(wait.kind), wait.attempt, wait.n
    opened = (each for each in requested if isinstance(each, e.WaitOpened))
    event = next(each for each in opened if (each.wait, each.attempt, each.n) == place)
    row = wait.detail if isinstance(wait.detail, dict) else {}
    return event if all(row.get(name) == value for name, value in detail_of(event).items()) else None


def must_be_asked(act: Act, wait: Wait) -> None:
    """Check that the journal contains the same question as the wait's row. Raises IllegalTransition."""
    try:
        if asked_by(wait) is None:
            raise act.refuse(UNASKED)
    except JournalBroken as broken:
        raise act.refuse(DISTRUSTED.format(broken)) from broken
