"""A run's state as it is on record: its newest checkpoint, and what messages have changed since. Nothing is driven."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Q
from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.api.present import payload_of
from ledger.errors import RecordDamaged
from ledger.models import Event
from runs.engine.agents import Agent, registry
from runs.engine.canonical import plain
from runs.engine.checkpoints.position import position_of
from runs.engine.errors import JournalBroken
from runs.engine.journal import Snapshot
from runs.engine.messages import changes_in, with_changes
from runs.journal.reader import CHANGES, STANDING, Cut, check_version, checked, cut_of, newest_sound
from runs.models import Message, Run


@dataclass(frozen=True, slots=True)
class Told:
    """A message with the payloads of its events; `code` and `why` where it was refused, or failed."""

    row: Message
    body: Any = None
    answer: Any = None
    code: str = ""
    why: str = ""
    sent_at: datetime | None = None
    answered_at: datetime | None = None

    @property
    def hidden(self) -> Told:
        """The same for somebody who reads no payloads of the run: that it came, and what came of it."""
        return replace(self, body=None, answer=None, why="")

    @property
    def is_no(self) -> bool:
        return self.row.outcome in (Message.Outcome.REFUSED, Message.Outcome.FAILED)


def told_of(messages: Iterable[Message], *, is_head: bool = False) -> list[Told]:
    """Return messages with what was said, in one query; of large payloads only the head where `is_head`."""
    rows = list(messages)
    near = Q()
    for row in rows:
        near |= Q(run_id=row.run_id, seq__in=[row.seq, row.answered_seq or 0])
    events = {(x.run_id, x.seq): x for x in Event.objects.filter(near)} if rows else {}

    def at(row: Message, seq: int | None) -> Event | None:
        return events.get((row.run_id, seq or 0))

    return [_told(row, at(row, row.seq), at(row, row.answered_seq), is_head) for row in rows]


def _told(row: Message, came: Event | None, answered: Event | None, is_head: bool) -> Told:
    said, given = _payload(came, is_head), _payload(answered, is_head)
    known = given if isinstance(given, dict) else {}
    return Told(
        row,
        said,
        known.get("answer"),
        str(known.get("code", "")),
        str(known.get("message", "")),
        came.at if came is not None else None,
        answered.at if answered is not None else None,
    )


def _payload(event: Event | None, is_head: bool) -> Any:
    """What it holds; nothing where the row was changed, for a page must still show the others."""
    try:
        return payload_of(event, is_head=is_head) if event is not None else None
    except (ValueError, RecursionError):
        return None


LONGEST_SECONDS = 30
MOST_WAITERS = 2  # of the eight that are worked on at once, durableagents/server/admission.py
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.3)
_waiters = threading.BoundedSemaphore(MOST_WAITERS)


def wait_for(message: Message, seconds: float) -> Message:
    """The message once it has been answered, or as it is after so many seconds. Looks again and again, each time by a
    statement of its own, and gives its connection back in between. Where as many wait in this process as it has threads
    to spare, it is given as it is at once: whoever sent it asks for it later."""
    if message.outcome or seconds <= 0 or not _waiters.acquire(blocking=False):
        return message
    try:
        until, turn = time.monotonic() + min(seconds, LONGEST_SECONDS), 0
        while not message.outcome and (left := until - time.monotonic()) > 0:
            if not connection.in_atomic_block:
                connection.close()
            time.sleep(min(_PAUSES[min(turn, len(_PAUSES) - 1)], left))
            turn += 1
            message = Message.objects.get(pk=message.pk)
    finally:
        _waiters.release()
    return message


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
