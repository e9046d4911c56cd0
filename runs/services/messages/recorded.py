"""A run's state as it is on record: its newest checkpoint, and what messages have changed since. Nothing is driven."""

from __future__ import annotations

from typing import Any

from django.db import connection
from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.errors import RecordDamaged
from runs.engine.agents import Agent, registry
from runs.engine.canonical import plain
from runs.engine.checkpoints.position import position_of
from runs.engine.errors import JournalBroken
from runs.engine.journal import Snapshot
from runs.engine.messages import changes_in, with_changes
from runs.journal.reader import CHANGES, STANDING, Cut, check_version, checked, cut_of, newest_sound
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
    since = [event for seq, event in sorted(events.items()) if seq > cut.seq]
    _check(run, cut, events, since)
    stands = position_of(cut.snapshot or Snapshot("", 0, run.generation, "", None), since)
    if stands.entry is not None:
        state = stands.entry[1]
    else:
        state = stands.at.state if stands.at.node else _first(agent, events.get(1))
    return with_changes(state, changes_in(stands.tail))


def _check(run: Run, cut: Cut, events: dict[int, e.Event], since: list[e.Event]) -> None:
    """The checkpoint must be the one that its event tells of, and the version that of the journal."""
    created, entered = events.get(1), events.get(cut.seq)
    if not isinstance(created, e.RunCreated):
        raise JournalBroken("the journal does not begin with the run's creation")
    check_version((run.graph_id, run.generation), created, entered if cut.seq > 1 else None, since, cut)
    told = entered.payload.get("checkpoint") if entered is not None and isinstance(entered.payload, dict) else None
    if cut.snapshot is not None and told not in (None, cut.digest):
        raise JournalBroken(f"the checkpoint at event {cut.seq} is not the one that its event tells of")


def _first(agent: Agent, created: e.Event | None) -> Any:
    return plain(agent.begin(agent.input.model_validate(created.payload if created else None)))
