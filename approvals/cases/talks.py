"""Verify inquiries and delegations against the journal, for `approvals.verification`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from approvals.models import Decision, Delegation, Inquiry
from ledger import events as e
from ledger.verification.runs import EventLine, ReadJournal, at_most_once, compared
from runs.engine.tape import payload_of

Key = tuple[str, int]  # the approval's id, and the number of the inquiry or delegation


class Talks:
    """Check one run's inquiries and delegations: compare rows with events in both directions."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.asked: dict[Key, tuple[int, e.InquiryMade]] = {}
        self.ended: dict[Key, tuple[int, e.InquiryEnded]] = {}
        self.handed: dict[Key, tuple[int, e.ApprovalDelegated]] = {}
        self.back: dict[Key, tuple[int, e.DelegationEnded]] = {}
        self.requested: set[str] = set()
        self.over: set[str] = set()
        self.wrong: list[str] = []

    def see(self, line: EventLine) -> None:
        """Apply one event."""
        match line.event:
            case e.ApprovalRequested(approval_id=id):
                self.requested.add(id)
            case e.ApprovalDecided(approval_id=id) | e.PlanAmended(approval_id=id):
                self.over.add(id)
            case e.InquiryMade() as made:
                self._put(self.asked, line.seq, made, "someone was asked about")
            case e.InquiryEnded() as ended:
                self._put(self.ended, line.seq, ended, "an answer was given about")
                if (ended.approval_id, ended.n) not in self.asked:
                    self.wrong.append(f"event {line.seq} is an answer without an inquiry")
            case e.ApprovalDelegated() as handed:
                self._put(self.handed, line.seq, handed, "someone was handed")
            case e.DelegationEnded() as back:
                self._put(self.back, line.seq, back, "someone gave back")
                if (back.approval_id, back.n) not in self.handed:
                    self.wrong.append(f"event {line.seq} ends a delegation that nobody has")
            case _:
                pass

    def _put(self, where: dict[Key, Any], seq: int, event: Any, what: str) -> None:
        id = event.approval_id
        if id not in self.requested or id in self.over:
            self.wrong.append(f"event {seq}: {what} approval {id}, which was not open then")
        if where.setdefault((id, event.n), (seq, event))[0] != seq:
            self.wrong.append(f"event {seq}: {what} approval {id} under a number that was already used")

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        yield from self._inquiries()
        yield from self._delegations()

    def _inquiries(self) -> Iterator[str]:
        def columns(made: e.InquiryMade, ended: e.InquiryEnded | None) -> dict[str, Any]:
            return {
                "by": made.by,
                "role": made.role,
                "to": made.to,
                "person": made.person,
                "question": payload_of(made).get("question"),
                "stops_clock": bool(made.deadline),
                "outcome": "" if ended is None else ended.outcome,
                "ended_by": "" if ended is None else ended.by,
                "answer": "" if ended is None else payload_of(ended).get("answer"),
            }

        rows = self.journal.rows(Inquiry, "id")
        yield from self._against("inquiry", "about", [(row, row.at) for row in rows], self.asked, self.ended, columns)

    def _delegations(self) -> Iterator[str]:
        def columns(handed: e.ApprovalDelegated, back: e.DelegationEnded | None) -> dict[str, Any]:
            return {
                "by": handed.by,
                "role": handed.role,
                "principal": handed.principal,
                "to": handed.to,
                "deputy": handed.person,
                "reason": payload_of(handed).get("justification"),
                "ended_by": "" if back is None else back.by,
            }

        rows = self.journal.rows(Delegation, "id")
        timed = [(row, row.made_at) for row in rows]
        yield from self._against("delegation", "of", timed, self.handed, self.back, columns)

    def _against(
        self,
        word: str,
        of: str,
        rows: Sequence[tuple[Inquiry | Delegation, datetime]],
        begun: Mapping[Key, Any],
        ended: Mapping[Key, Any],
        columns: Callable[[Any, Any], dict[str, Any]],
    ) -> Iterator[str]:
        """Compare rows, each with its start time, with the events that begin and end them."""
        missing = dict(begun)
        yield from at_most_once(f"the {word} {of} approval", [(str(row.approval_id), row.n) for row, _ in rows])
        for row, at in rows:
            what, key = f"{word} {row.n} {of} approval {row.approval_id}", (str(row.approval_id), row.n)
            recorded = missing.pop(key, None)
            if recorded is None:
                yield f"{what} has no event"
                continue
            seq, event = recorded
            end_seq, end = ended.get(key, (0, None))
            yield from compared(what, row, columns(event, end))
            yield from self._times(what, seq, at, end_seq, row.ended_at)
            if not row.is_authentic:
                yield f"{what} was not written with this installation's key, or was changed"
        for id, n in missing:
            yield f"{word} {n} {of} approval {id} has no row"

    def _times(self, what: str, seq: int, at: Any, end_seq: int, ended_at: Any) -> Iterator[str]:
        if not self.journal.is_about(seq, at):
            yield f"{what}: its time differs from that of its event"
        if not (self.journal.is_about(end_seq, ended_at) if end_seq else ended_at is None):
            yield f"{what}: the time of its end differs from the journal's"

    def place_of(self, what: str, row: Decision, seq: int) -> Iterator[str]:
        """Check that a deputy's decision was covered by a delegation from this principal that had not ended."""
        deputy_of = row.standing.get("deputy_of") if isinstance(row.standing, dict) else None
        if not isinstance(deputy_of, Mapping) or "delegation" not in deputy_of:
            return
        id, person, principal = str(row.approval_id), row.person, deputy_of.get("person")
        held = [
            key
            for key, (at, event) in self.handed.items()
            if key[0] == id
            and at < seq
            and (event.person, event.principal) == (person, principal)
            and not (key in self.back and self.back[key][0] < seq)
        ]
        if not held:
            yield f"{what}: it was made on behalf of account {principal}, who had not delegated approval {id} over"
