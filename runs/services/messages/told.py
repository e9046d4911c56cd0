"""A message as the faces show it: what was asked, what came of it, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Q

from ledger.api.present import payload_of
from ledger.models import Event
from runs.models import Message


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
