"""A call of a run: its tool, where this process has it, and what else is waited for because of it. Same rules as
`command`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ledger import events as e
from ledger.actors import Actor
from runs.engine.agents import registry
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.engine.tools import Tool
from runs.journal.reader import at_slot
from runs.models import Run
from runs.services.command import resolve


def tool_here(run: Run, name: str) -> Tool | None:
    """A tool of the run's agent, where this process has that version."""
    try:
        return registry.find(run.graph_id).tool(name)
    except (UnknownAgent, UnknownVersion):
        return None


def close_others(run: Run, slot: str, attempt: int, *, by: Actor, now: datetime, **kept: Any) -> list[e.Event]:
    """What was waited for because of a call whose outcome is known now: a person's verdict on it, a timer to send it
    again. Those that `kept` describes stay as they are. Returns the events that close them, for the caller to write."""
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
    """What the journal tells of one call, every line checked. Raises JournalBroken."""
    return at_slot(run_id, slot)
