"""Check settlements by two people: the second confirmed what the first proposed, with no news about the call in
between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ledger import events as e
from ledger.four_eyes.known import OUTCOMES
from ledger.models import FourEyes
from ledger.verification.runs import Line, ReadJournal

# The lock orders changes of the setting and acts under it by one clock; in case the clock was set back, settlements
# near a change aren't judged.
_NEAR = timedelta(seconds=1)
_BY_PEOPLE = ("user:", "key:")


@dataclass(frozen=True, slots=True)
class _Settled:
    seq: int
    at: datetime
    is_alone: bool
    wrong: str


class TwoPeople:
    def __init__(self, journal: ReadJournal) -> None:
        self.said: dict[tuple[str | None, int, int], tuple[int, e.OutcomeProposed]] = {}
        self.taken_back: set[tuple[str | None, int, int]] = set()
        self.news: dict[str | None, int] = {}  # by slot: the last event about the call
        self.settled: list[_Settled] = []

    def see(self, line: Line) -> None:
        """Keep proposals, and compare a settlement with its proposal."""
        event = line.event
        match event:
            case e.OutcomeProposed():
                self.said[event.slot, event.attempt, event.n] = line.seq, event
                return
            case e.OutcomeWithdrawn():
                self.taken_back.add((event.slot, event.attempt, event.n))
                return
            case e.UpstreamAsked() | e.UpstreamTold(answer="nothing"):
                return
            case e.ToolReconciled(verdict="happened" | "did_not", by=by) if by.startswith(_BY_PEOPLE):
                told = event.payload if isinstance(event.payload, dict) else {}
                is_alone = "proposal" not in told
                self.settled.append(_Settled(line.seq, line.at, is_alone, "" if is_alone else self._wrong(event, told)))
            case _:
                pass
        self.news[event.slot] = line.seq

    def _wrong(self, event: e.ToolReconciled, told: dict[str, Any]) -> str:
        place = event.slot, event.attempt, told["proposal"]
        seq, first = self.said.get(place, (0, None))
        if first is None:
            return "nobody had said it before"
        before = first.payload if isinstance(first.payload, dict) else {}
        if place in self.taken_back:
            return f"event {seq}, which it agrees with, was taken back"
        if first.person == told.get("person"):
            return f"event {seq}, which it agrees with, is the same person's"
        if (first.verdict, first.question) != (event.verdict, event.n):
            return f"event {seq}, which it agrees with, says otherwise"
        if event.verdict == "happened" and before.get("receipt") != told.get("receipt"):
            return f"event {seq}, which it agrees with, gives another receipt"
        if self.news.get(event.slot, 0) > seq:
            return f"more was told of the call after event {seq}, which it agrees with"
        return ""

    def problems(self) -> Iterator[str]:
        """Yield settlements that one person made alone, or that differ from the proposal."""
        for one in self.settled:
            what = f"event {one.seq}, ToolReconciled, is settled"
            if one.wrong:
                yield f"{what} as if by two people, and {one.wrong}"
            elif one.is_alone and _is_for_two(one.at):
                yield f"{what} by one person, where two people settle that"


def _is_for_two(at: datetime) -> bool:
    """Return whether settlements needed two people then, by the authentic rows."""
    rows = [row for row in FourEyes.objects.order_by("-n") if row.is_authentic]
    before = next((row for row in rows if row.at <= at - _NEAR), None)
    near = [row for row in rows if at - _NEAR < row.at <= at + _NEAR]
    return before is not None and all(OUTCOMES in row.families for row in (before, *near))
