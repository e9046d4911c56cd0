"""Verify the setting, proposed changes, and settlements by two people.

Rows must be authentic and have matching acts. In a settlement, the second person must have confirmed what the first one
proposed, with no new event about the call in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any

from durableagents.contrib.change_control.models import FourEyes, RuleChange
from ledger import events as e
from ledger.change_control import OUTCOMES
from ledger.models import ActRecord
from ledger.verification.registers import Listed
from ledger.verification.runs import EventLine, ReadJournal

_ENDED = {"rule_change_apply": "applied", "rule_change_refuse": "refused", "rule_change_withdraw": "withdrawn"}


def check_changes() -> Listed | None:
    """Check all rows of the setting and of proposed changes; None if there are none."""
    rows = [row for row in FourEyes.objects.order_by("n") if row.is_authentic]
    changes = RuleChange.objects.order_by("made_at", "id")
    found = [*_guards(rows), *_changes(list(changes))]
    count = len(rows) + len(changes)
    return Listed("changes of rules", count, "", found) if count or found else None


def _guards(rows: list[FourEyes]) -> Iterator[str]:
    """Compare the authentic rows with their acts. `ledger/protected.py` finds rows that aren't authentic."""
    setting_acts = ActRecord.objects.filter(action="four_eyes", n__gt=0)
    acts = Counter(
        (str(_outcome_of(act).get("families")), act.by) for act in setting_acts if isinstance(act.after, dict)
    )
    for row in rows:
        values = (str(list(row.families)), row.set_by)
        if not acts[values]:
            yield f"row {row.n} of the four-eyes rules has no recorded act"
        acts[values] -= 1
    for (families, by), missing in acts.items():
        if missing > 0:
            yield f"{by} set that {families} need two people, but the row is missing"


def _outcome_of(act: ActRecord) -> dict[str, Any]:
    """Return the outcome of an act; empty if none of our processes can have written the act."""
    return act.after if isinstance(act.after, dict) else {}


def _by_two(what: str, row: RuleChange, agreement: ActRecord | None) -> Iterator[str]:
    """Check that two people agreed, and that the records just before the approval are the proposed ones."""
    if agreement is None or agreement.n is None or not isinstance(row.told, list):
        return  # The checks of the row's acts and of its code report this.
    if agreement.person in (None, row.person):
        yield f"{what} was applied by its proposer"
    done = list(ActRecord.objects.filter(n__gte=agreement.n - len(row.told), n__lt=agreement.n).order_by("n"))
    if len(done) != len(row.told) or not all(map(_is_told, done, row.told, repeat(row.person))):
        yield f"{what} is applied, but its recorded effects differ from the proposal"


def _is_told(act: ActRecord, fields: dict[str, Any], person: int) -> bool:
    """Return whether an act is the proposed one, apart from generated parts."""
    is_same = (act.action, act.queue, act.before, act.person) == (
        fields["action"],
        fields["queue"],
        fields["before"],
        person,
    )
    return is_same and fields["after"].items() <= _outcome_of(act).items()


def _changes(rows: list[RuleChange]) -> Iterator[str]:
    acts = ActRecord.objects.filter(action__in=["rule_change", *_ENDED], n__gt=0)
    fields = {(act.subject, act.action): act for act in acts}
    for row in rows:
        what = f"change {row.pk}"
        if not row.is_authentic:
            yield f"{what} was not written by this installation"
        proposed = fields.pop((what, "rule_change"), None)
        if proposed is None or (proposed.by, _outcome_of(proposed).get("told")) != (row.by, row.told):
            yield f"{what} has no recorded proposal"
        if row.state == RuleChange.State.APPLIED and row.is_authentic:
            yield from _by_two(what, row, fields.get((what, "rule_change_apply")))
        for action, state in _ENDED.items():
            ended = fields.pop((what, action), None)
            if (ended is None) != (row.state != state) or (ended is not None and ended.by != row.ended_by):
                yield f"{what} is {row.state}, but its recorded acts say otherwise"
                break
    for subject, _ in fields:
        yield f"{subject} was proposed, but its row is missing"


# A lock serializes changes of the setting and the acts that depend on it, so one clock orders them. Because the clock
# may have been set back, settlements close to a change aren't checked.
_NEAR = timedelta(seconds=1)
_BY_PEOPLE = ("user:", "key:")


@dataclass(frozen=True, slots=True)
class _Settled:
    seq: int
    at: datetime
    is_alone: bool
    wrong: str


class TwoPeople:
    """Checks the settlements of a run."""

    def __init__(self, journal: ReadJournal) -> None:
        self.said: dict[tuple[str | None, int, int], tuple[int, e.OutcomeProposed]] = {}
        self.taken_back: set[tuple[str | None, int, int]] = set()
        self.news: dict[str | None, int] = {}  # by slot: the last event about the call
        self.settled: list[_Settled] = []

    def see(self, line: EventLine) -> None:
        """Record proposals, and compare each settlement with its proposal."""
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
                payload = event.payload if isinstance(event.payload, dict) else {}
                is_alone = "proposal" not in payload
                self.settled.append(
                    _Settled(line.seq, line.at, is_alone, "" if is_alone else self._wrong(event, payload))
                )
            case _:
                pass
        self.news[event.slot] = line.seq

    def _wrong(self, event: e.ToolReconciled, fields: dict[str, Any]) -> str:
        place = event.slot, event.attempt, fields["proposal"]
        seq, first = self.said.get(place, (0, None))
        if first is None:
            return "nobody had proposed it"
        before = first.payload if isinstance(first.payload, dict) else {}
        if place in self.taken_back:
            return f"event {seq}, which it confirms, was withdrawn"
        if first.person == fields.get("person"):
            return f"event {seq}, which it confirms, is by the same person"
        if (first.verdict, first.question) != (event.verdict, event.n):
            return f"event {seq}, which it confirms, has a different verdict"
        if event.verdict == "happened" and before.get("receipt") != fields.get("receipt"):
            return f"event {seq}, which it confirms, has a different receipt"
        if self.news.get(event.slot, 0) > seq:
            return f"new information about the call came after event {seq}, which it confirms"
        return ""

    def problems(self) -> Iterator[str]:
        """Yield settlements that one person made alone, or that differ from the proposal."""
        for one in self.settled:
            what = f"event {one.seq}, ToolReconciled, is settled"
            if one.wrong:
                yield f"{what} as if confirmed by two people, but {one.wrong}"
            elif one.is_alone and _is_for_two(one.at):
                yield f"{what} by one person, although two people must settle it"


def _is_for_two(at: datetime) -> bool:
    """Return whether settlements needed two people at that time, according to the authentic rows."""
    rows = [row for row in FourEyes.objects.order_by("-n") if row.is_authentic]
    before = next((row for row in rows if row.at <= at - _NEAR), None)
    near = [row for row in rows if at - _NEAR < row.at <= at + _NEAR]
    return before is not None and all(OUTCOMES in row.families for row in (before, *near))
