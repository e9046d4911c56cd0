"""A run's state as it is on record: its newest checkpoint, and what messages have changed since. Nothing is driven."""

from __future__ import annotations

from typing import Any

from django.db import connection
from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.errors import RecordDamaged
from runs.engine.agents import Agent, registry
from runs.engine.canonical import plain
from runs.engine.errors import JournalBroken
from runs.engine.messages.changes import with_changes
from runs.journal.reader import CHANGES, STANDING, Cut, checked, cut_of, newest_sound
from runs.models import Run


def agent_of(run: Run) -> Agent:
    """The run's own version. Raises UnknownAgent, UnknownVersion where this process hasn't got it."""
    return registry.find(run.graph_id)


def state_of(run: Run, agent: Agent) -> BaseModel:
    """An object of its own of what is on record: the state with which the newest node was entered, the first one where
    none was, and what messages changed of it. Raises RecordDamaged."""
    try:
        return agent.state.model_validate(_plain(run, agent))
    except (JournalBroken, ValidationError) as error:
        raise RecordDamaged(run.pk, f"a state that can be read ({str(error)[:200]})") from error


def _plain(run: Run, agent: Agent) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(STANDING, [run.pk])
        cuts = [stored for row in cursor.fetchall() if (stored := cut_of(row)) is not None]
        cut = newest_sound(str(run.pk), cuts)
        cursor.execute(CHANGES, [run.pk, cut.seq, cut.seq])
        rows = cursor.fetchall()
    events = {link.seq: event for link, event in (checked(run.pk, row) for row in rows)}
    handled = [event for event in events.values() if isinstance(event, e.MessageHandled)]
    first = events.get(1)
    state = cut.snapshot.state if cut.snapshot is not None else _first(agent, first)
    _check(run, cut, events)
    return with_changes(state, handled)


def _check(run: Run, cut: Cut, events: dict[int, e.Event]) -> None:
    """The checkpoint must be the one that its event tells of, and the version that of the first event."""
    created, entered = events.get(1), events.get(cut.seq)
    if not isinstance(created, e.RunCreated) or run.graph_id != f"{created.agent}@{created.version}":
        raise JournalBroken(f"the run's row says {run.graph_id}, its first event says something else")
    told = entered.payload.get("checkpoint") if entered is not None and isinstance(entered.payload, dict) else None
    if cut.snapshot is not None and told not in (None, cut.digest):
        raise JournalBroken(f"the checkpoint at event {cut.seq} is not the one that its event tells of")


def _first(agent: Agent, created: e.Event | None) -> Any:
    return plain(agent.begin(agent.input.model_validate(created.payload if created else None)))
