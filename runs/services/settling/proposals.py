"""What was said of a call whose outcome is unknown: by somebody whose word waits for a second person, and by the other
side, where somebody had it asked. As the journal tells it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
_KINDS = [e.OutcomeProposed.KIND, e.OutcomeWithdrawn.KIND, e.UpstreamAsked.KIND, e.UpstreamTold.KIND]


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
        return self.news is None


@dataclass(slots=True)
class Heard:
    """All that was said of one unknown outcome: one person's word, if it waits for a second; who wanted the other side
    asked, when and at which event; and what it answered last (`happened`, `did_not`, `nothing`), with the result."""

    said: Proposal | None = None
    asked_by: str = ""
    asked_at: datetime | None = None
    asked_seq: int = 0
    answer: str = ""
    result: Any = None
    told_at: datetime | None = None
    told_seq: int = 0

    def learn(self, seq: int) -> None:
        """More is told of the call by an event: what was said before it counts no more."""
        if self.said is not None and self.said.is_open:
            self.said = replace(self.said, news=seq)

    @property
    def is_asked(self) -> bool:
        return self.asked_seq > self.told_seq


def newest(waits: Iterable[Wait]) -> dict[UUID, Proposal]:
    """By the wait for it, the last word that nobody took back, of those unknown outcomes among `waits` that have one;
    see `heard`."""
    return {wait: found.said for wait, found in heard(waits).items() if found.said is not None}


def heard(waits: Iterable[Wait]) -> dict[UUID, Heard]:
    """By its wait, what was said of each unknown outcome among `waits`; in one query, and none where there is none.
    What was not written by our processes counts for nothing."""
    doubts = {(w.run_id, w.slot, w.attempt, w.n): w.pk for w in waits if w.kind == Wait.Kind.RECONCILE}
    if not doubts:
        return {}
    runs, slots = zip(*{place[:2] for place in doubts}, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(PROPOSED, [_KINDS, _KINDS, list(runs), list(slots)])
        rows = cursor.fetchall()
    found = {wait: Heard() for wait in doubts.values()}
    for *row, run_id, news in rows:
        event = _read(run_id, tuple(row))
        place = (run_id, "", 0) if event is None else (run_id, event.slot or "", event.attempt)
        for at, wait in doubts.items():
            if event is not None and at[:3] == place:
                _hear(found[wait], event, at[3], seq=row[0], at=row[2], news=news)
            if at[:2] == place[:2] and isinstance(event, e.UpstreamTold) and event.answer != "nothing":
                found[wait].learn(row[0])
    return found


def _hear(heard: Heard, event: e.Event, question: int, *, seq: int, at: datetime, news: int | None) -> None:
    match event:
        case e.OutcomeProposed() if event.question == question:
            heard.said = _proposal(event, seq, at, news if news is not None and news > seq else None)
        case e.OutcomeWithdrawn(n=n) if heard.said is not None and heard.said.n == n:
            heard.said = None
        case e.UpstreamAsked():
            heard.asked_by, heard.asked_at, heard.asked_seq = event.by, at, seq
        case e.UpstreamTold():
            heard.answer, heard.told_at, heard.told_seq = event.answer, at, seq
            heard.result = payload_of(event).get("result")
        case _:
            pass


def _read(run_id: UUID, row: tuple[Any, ...]) -> e.Event | None:
    try:
        return checked(run_id, row)[1]
    except JournalBroken as broken:
        log.error("run %s: %s", run_id, broken)
        return None


def _proposal(event: e.OutcomeProposed, seq: int, at: datetime, news: int | None) -> Proposal:
    told = payload_of(event)
    return Proposal(
        event.n,
        seq,
        at,
        event.verdict,
        event.says,
        event.by,
        event.role,
        event.person,
        told.get("receipt"),
        str(told.get("justification", "")),
        news,
    )
