"""Verification of waits.
An event must have opened each wait, and its row must agree with the journal on its outcome, if it has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ledger import events as e
from ledger.actors import OUTSIDE
from ledger.verification.runs import SLACK, EventLine, ReadJournal, compared
from runs.engine.canonical import callback_token, token_digest
from runs.engine.gating.fields import BROUGHT
from runs.engine.journal import WaitSpec, detail_of
from runs.engine.tape import payload_of
from runs.engine.undo import WITH_PARENT
from runs.journal.digests import call_secret
from runs.models import Wait
from runs.services.halted_time import could_be_put_off, stood_still

# Prefixes of the actors whose repairs count, and of the slots of stops that a damaged journal couldn't record
# (runs/workers/failover.py).
_PEOPLE = ("user:", "key:", "os:")  # accounts, their keys, and the shell of the server
_OFF_RECORD = "operator/damaged."
_SETTLES = (e.ToolFailed, e.ToolReconciled)


class Key(NamedTuple):
    """A wait's key, from which its id is derived."""

    slot: str | None
    attempt: int
    kind: str
    n: int


@dataclass
class _WaitRecord:
    """A wait that should exist according to the journal."""

    seq: int
    deadline: datetime
    detail: dict[str, Any] = field(default_factory=dict)
    also: list[str] = field(default_factory=list)  # queues it was escalated to
    ends: list[tuple[str, str, int]] = field(default_factory=list)  # resolution, actor, number of the event
    consumed: int = 0
    # ends of the run while it was open, and the retries after them
    pauses: list[tuple[int, int]] = field(default_factory=list)
    used_by: tuple[str | None, int | None] = (None, None)  # call and attempt that last used the grant


class Waits:
    """Compares rows with events, in both directions."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.known: dict[Key, _WaitRecord] = {}
        self.tokens: dict[tuple[str | None, int], bytes] = {}
        self.settled: set[tuple[str | None, int]] = set()
        self.grants: dict[str | None, Key] = {}  # a gate's newest approval
        self.questions: dict[str, Key] = {}  # by id of the open approval
        self.repairs: dict[Key, tuple[str, str, int]] = {}  # ends of stops that the journal could not record
        self.has_ended, self.last_end = False, 0
        self.actors = {"system:engine"}  # everyone who acted on the run

    def see(self, line: EventLine) -> None:
        event = line.event
        self.actors |= {f"worker:{event.worker}"} if isinstance(event, e.RunClaimed) else {getattr(event, "by", "")}
        match event:
            case e.WaitOpened():
                key = Key(event.slot, event.attempt, event.wait, event.n)
                self._open(line, key, event.deadline, detail_of(event))
            case e.InquiryMade() | e.InquiryEnded():
                if event.deadline:
                    self._move(event.approval_id, event.deadline)
            case e.ApprovalReminded():
                self._move(event.approval_id, event.deadline)
            case e.ApprovalEscalated():
                self._move(event.approval_id, event.deadline, event.to)
            case e.ApprovalRequested():
                self.questions[event.approval_id] = Key(event.slot, 0, "approval", event.n)
                self._open(
                    line,
                    Key(event.slot, 0, "approval", event.n),
                    event.deadline,
                    {"approval_id": event.approval_id, "queue": event.queue, BROUGHT: payload_of(event).get(BROUGHT)},
                )
            case e.ToolInvoked():
                self._intent(line, event)
            case e.ToolAccepted():
                known, deadline = (
                    self.known.get(self._callback(event.slot, event.attempt)),
                    payload_of(event).get("deadline"),
                )
                if known is not None and isinstance(deadline, str) and not known.ends:
                    known.deadline = datetime.fromisoformat(deadline)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                self.has_ended, self.last_end = True, line.seq
            case _:
                self._resolve(line.seq, event)
        if isinstance(event, _SETTLES):
            self.settled.add((event.slot, event.attempt))

    def _open(self, line: EventLine, key: Key, deadline: str, detail: dict[str, Any]) -> None:
        self.known[key] = _WaitRecord(line.seq, datetime.fromisoformat(deadline), detail)

    def _move(self, approval_id: str, deadline: str, *to: str) -> None:
        """Change the deadline of an unanswered question to that of the event."""
        known = self.known.get(self.questions.get(approval_id, Key(None, 0, "", 0)))
        if known is not None and not known.ends:
            known.deadline = datetime.fromisoformat(deadline)
            known.also += to

    def _intent(self, line: EventLine, event: e.ToolInvoked) -> None:
        payload = payload_of(event)
        token = payload.get("callback_token")
        if token is None and "callback_base" in payload and event.slot is not None:
            token = callback_token(str(self.journal.run_id), event.slot, event.attempt, call_secret())
        if isinstance(token, str):
            self.tokens[event.slot, event.attempt] = token_digest(token)
        granted = self.known.get(self.grants[event.grant]) if event.grant in self.grants else None
        if granted is not None:
            granted.consumed, granted.used_by = line.seq, (event.slot, event.attempt)

    def _resolve(self, seq: int, event: e.Event) -> None:
        match event:
            case e.WaitResolved():
                key = Key(event.slot, event.attempt, event.wait, event.n)
                if key not in self.known and key.kind == Wait.Kind.OPERATOR and _is_off_record(key):
                    self.repairs[key] = (event.resolution, event.by, seq)
                self._end(seq, key, event.resolution, event.by)
            case e.ApprovalDecided():
                key = Key(event.slot, 0, "approval", event.n)
                self._end(seq, key, event.verdict, event.by)
                self.grants[event.slot] = key
            case e.PlanAmended():
                self._end(seq, Key(event.slot, 0, "approval", event.n), "amended", event.by)
            case e.InputAnswered():
                self._end(seq, Key(event.slot, event.attempt, "input", event.n), "answered", event.by)
            case e.ChildEnded() if not self.has_ended:
                key = Key(event.slot, event.attempt, "child", 0)
                self._end(seq, key, event.state, f"run:{event.child}")
            case e.SignalTaken():
                self._end(seq, Key(event.slot, event.attempt, "signal", 0), "received", "system:engine")
            case e.CallbackReceived() | e.CallbackArrivedLate():
                key = self._callback(event.slot, event.attempt)
                if isinstance(event, e.CallbackReceived) and not self.has_ended:
                    self._end(seq, key, "received", OUTSIDE.ref)
                elif key in self.known:
                    self.known[key].consumed = seq
            case e.ToolReconciled():
                # A retry that settles a call by a late result names the next wait, because the run's end withdrew the
                # last one.
                for key, known in self.known.items():
                    if key[:3] == (event.slot, event.attempt, "reconcile") and key.n >= event.n and not known.ends:
                        known.ends.append((event.verdict, event.by, seq))
            case e.UndoAsked(code=code) if code == WITH_PARENT:
                self.has_ended = False
            case e.RunRetried():
                self.has_ended = False
                for key, known in self.known.items():
                    if key.kind != Wait.Kind.TIMER and not known.ends:
                        known.pauses.append((self.last_end, seq))
            case _:
                pass

    def _callback(self, slot: str | None, attempt: int) -> Key:
        """Return the wait for a call's callback. If it was opened several times, return the newest."""
        rounds = [key.n for key in self.known if key[:3] == (slot, attempt, "webhook")]
        return Key(slot, attempt, "webhook", max(rounds, default=0))

    def _end(self, seq: int, key: Key, resolution: str, by: str) -> None:
        if key in self.known:
            self.known[key].ends.append((resolution, by, seq))

    def problems(self) -> Iterator[str]:
        missing, given = dict(self.known), Counter[tuple[str | None, int]]()
        for row in self.journal.rows(Wait, "opened_at", "id"):
            key = Key(row.slot, row.attempt, row.kind, row.n)
            what, known = f"the wait for {row.kind} at slot {row.slot}", missing.pop(key, None)
            if known is None:
                if self._is_repaired(row, self.repairs.pop(key, None)):
                    continue
                yield f"{what} has no event that opened it, or is listed twice"
                continue
            yield from self._about(what, row, key, known)
            if row.kind == Wait.Kind.WEBHOOK:
                given[key[:2]] += row.token_hash is not None
        for key in missing:
            yield f"the wait for {key.kind} at slot {key.slot} has no row"
        for call, count in given.items():
            if call in self.tokens and count != 1:
                yield f"the token of the call at slot {call[0]} belongs to {count} waits"

    def _is_repaired(self, row: Wait, repair: tuple[str, str, int] | None) -> bool:
        """Return whether a person's action in the journal ended this stop, which has no event; if so, add a note.
        Nothing else is accepted: the row must not grant or use anything, and each action accounts for only one stop."""
        if repair is None:
            return False
        resolution, by, seq = repair
        is_plain = (
            row.token_hash is row.grant_hash is row.grant_expires_at is row.consumed_at is row.consumed_by is None
        )
        is_covered = (
            is_plain
            and by.startswith(_PEOPLE)
            and (row.resolution, row.resolved_by) == (resolution, by)
            and self.journal.is_about(seq, row.resolved_at)
            and row.resolved_at is not None
            and row.opened_at <= row.resolved_at
        )
        if is_covered:
            self.journal.notes.append(
                f"stopped on {row.opened_at:%Y-%m-%d %H:%M} UTC, when the journal was damaged and could take no event; "
                f"repaired, with the record: {resolution} by {by}, event {seq}"
            )
        return is_covered

    def _about(self, what: str, row: Wait, key: Key, known: _WaitRecord) -> Iterator[str]:
        right: dict[str, Any] = {
            "id": _id(self.journal.run_id, key),
            "deadline": known.deadline,
            "token_hash": self._token(key),
            "also": known.also or None,
        }
        if self._is_put_off(row, known):
            del right["deadline"]
        yield from compared(what, row, right)
        if not self.journal.is_about(known.seq, row.opened_at):
            yield f"{what}: it was not opened at the time of its event"
        detail = row.detail if isinstance(row.detail, dict) else {}
        for name, value in known.detail.items():
            if detail.get(name) != value:
                yield f"{what}: its {name} differs from the one that its event names"
        yield from self._how_it_ended(what, row, known)
        is_used = self.journal.is_about(known.consumed, row.consumed_at) if known.consumed else row.consumed_at is None
        if not is_used:
            mark = "used" if row.consumed_at else "not used"
            yield f"{what}: the row is marked as {mark}; the journal says otherwise"
        if row.kind != Wait.Kind.APPROVAL and (row.grant_hash is not None or row.grant_expires_at is not None):
            yield f"{what}: it permits a call, which only approvals may do"
        if (row.consumed_by, row.consumed_attempt) != known.used_by:
            user = f"attempt {row.consumed_attempt} of the call at slot {row.consumed_by}"
            yield f"{what}: according to the row, {user} used it last; the journal says otherwise"

    def _is_put_off(self, row: Wait, known: _WaitRecord) -> bool:
        """Return whether retries and halts explain why the row's deadline is later than the journal's.
        Time during which the run had ended or was halted extends a wait's deadline. For approvals, a calendar may
        apply: see approvals/deadlines.py."""
        later, none = row.deadline - known.deadline, timedelta()
        over = [(self.journal.at[end - 1], self.journal.at[retry - 1]) for end, retry in known.pauses if end]
        most = sum((max(to - from_, none) + SLACK for from_, to in over), none)
        if later > most:  # time in both is counted only once
            most += could_be_put_off(row) - sum((stood_still(row.run_id, *each) for each in over), none)
        if row.kind == Wait.Kind.APPROVAL and most:
            return later > none
        return none < later <= most

    def _token(self, key: Key) -> Any:
        """Return the value, or the set of values, that the row's token hash may have.
        The token belongs to a call's first wait, but older versions moved it to the newest one."""
        if key.kind != Wait.Kind.WEBHOOK:
            return None
        token = self.tokens.get((key.slot, key.attempt))
        rounds = [other.n for other in self.known if other[:3] == key[:3]]
        return token if len(rounds) == 1 else frozenset({token, None})

    def _how_it_ended(self, what: str, row: Wait, known: _WaitRecord) -> Iterator[str]:
        if row.resolution is None:
            if known.ends or row.resolved_by is not None or row.resolved_at is not None:
                end = known.ends[-1][0] if known.ends else "nothing of who ended it"
                yield f"{what} is open, but the journal says {end}"
            return
        for resolution, by, seq in known.ends:
            if (row.resolution, row.resolved_by) == (resolution, by) and self.journal.is_about(seq, row.resolved_at):
                return
        # Waits that a run's end withdrew, and callbacks that are no longer awaited, have no event. A retry reopens only
        # waits that the journal still has open. The actor must have acted on the run.
        is_withdrawn = row.resolution == "withdrawn" and known.seq < self.last_end
        is_settled = row.resolution == "settled" and row.kind == "webhook" and (row.slot, row.attempt) in self.settled
        is_told = (is_withdrawn or is_settled) and row.resolved_at is not None and row.resolved_by in self.actors
        if known.ends or not is_told:
            ending = known.ends[-1][:2] if known.ends else "nothing"
            yield f"{what} ended as {row.resolution} by {row.resolved_by}, but the journal says {ending}"


def _is_off_record(key: Key) -> bool:
    return (key.slot or "").startswith(_OFF_RECORD)


# A wait's id doesn't depend on when the wait ends.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def _id(run_id: UUID, key: Key) -> UUID:
    return WaitSpec(str(run_id), key.slot or "", key.attempt, key.kind, key.n, _ANY_TIME).id
