"""What somebody said became of a call, and waits for a second person: as the journal tells it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from ledger import events as e
from runs.engine.errors import JournalBroken
from runs.engine.tape import payload_of
from runs.journal.reader import PROPOSED, checked
from runs.models import Wait

log = logging.getLogger("runs.services.settling")
# What people say about the outcome; everything else that comes to the call is news.
_SAYINGS = [e.OutcomeProposed.KIND, e.OutcomeWithdrawn.KIND]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One person's word on a call, `n`-th about its attempt, at event `seq`. `news` is an event that told more of the
    call since: then it counts for nothing any more."""

    n: int
    seq: int
    at: datetime
    verdict: str
    says: str
    by: str
    role: str
    person: int
    receipt: Any
    justification: str
    news: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether a second person who says the same settles it."""
        return self.news is None


def newest(waits: Iterable[Wait]) -> dict[UUID, Proposal]:
    """By the wait for it, the last word that nobody took back, of those unknown outcomes among `waits` that have one;
    in one query, and none where no outcome is unknown. What was not written by our processes counts for nothing."""
    doubts = {(w.run_id, w.slot, w.attempt, w.n): w.pk for w in waits if w.kind == Wait.Kind.RECONCILE}
    if not doubts:
        return {}
    runs, slots = zip(*{place[:2] for place in doubts}, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(PROPOSED, [_SAYINGS, _SAYINGS, list(runs), list(slots)])
        rows = cursor.fetchall()
    found: dict[UUID, Proposal] = {}
    for *row, run_id, news in rows:
        event = _read(run_id, tuple(row))
        if isinstance(event, e.OutcomeProposed):
            wait = doubts.get((run_id, event.slot or "", event.attempt, event.question))
            if wait is not None:
                seq, at = row[0], row[2]
                found[wait] = _proposal(event, seq, at, news if news is not None and news > seq else None)
        elif isinstance(event, e.OutcomeWithdrawn):
            for wait in [one for place, one in doubts.items() if place[:3] == (run_id, event.slot, event.attempt)]:
                if wait in found and found[wait].n == event.n:
                    del found[wait]
    return found


def _read(run_id: UUID, row: tuple[Any, ...]) -> e.Event | None:
    try:
        return checked(run_id, row)[1]
    except JournalBroken as broken:
        log.error("run %s: %s", run_id, broken)
        return None


def _proposal(event: e.OutcomeProposed, seq: int, at: datetime, news: int | None) -> Proposal:
    told = payload_of(event)
    return Proposal(
        event.n, seq, at, event.verdict, event.says, event.by, event.role, event.person, told.get("receipt"),
        str(told.get("justification", "")), news,
    )  # fmt: skip
