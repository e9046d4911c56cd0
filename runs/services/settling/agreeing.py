"""Proposed verdicts on unknown outcomes.
The first proposal changes nothing; the same verdict by a second person settles the call. "Fail the run" and actions
from a shell need no second person. For locks and transactions see `runs/services/command.py`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted
from ledger.change_control import OUTCOMES, account_of, hold, holds, is_guarded
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput
from ledger.models import Event
from ledger.web.roles import OPERATOR
from ledger.web.seeing.payloads import must_read
from runs import features
from runs.engine.canonical import canonical, digest_of
from runs.engine.errors import JournalBroken
from runs.engine.tape import payload_of
from runs.journal.reader import PROPOSED, checked
from runs.models import Run, Wait
from runs.services.command import Act, journal

log = logging.getLogger("runs.services.settling")
_KINDS = [e.OutcomeProposed.KIND, e.OutcomeWithdrawn.KIND, e.UpstreamAsked.KIND, e.UpstreamTold.KIND]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A person's proposed outcome for one attempt of a call; `n` numbers the proposals for that attempt.

    `news` is a later event about the call, which makes the proposal void."""

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
    """Facts about an unknown outcome: pending proposal, requested query, and the upstream system's latest answer."""

    said: Proposal | None = None
    asked_by: str = ""
    asked_at: datetime | None = None
    asked_seq: int = 0
    answer: str = ""
    result: Any = None
    told_at: datetime | None = None
    told_seq: int = 0

    def learn(self, seq: int) -> None:
        """Make the proposal void because of a later event about the call."""
        if self.said is not None and self.said.is_open:
            self.said = replace(self.said, news=seq)

    @property
    def is_asked(self) -> bool:
        return self.asked_seq > self.told_seq


def newest(waits: Iterable[Wait]) -> dict[UUID, Proposal]:
    """Return the newest proposal on each unknown outcome that has one, by wait."""
    return {wait: found.said for wait, found in heard(waits).items() if found.said is not None}


def heard(waits: Iterable[Wait]) -> dict[UUID, Heard]:
    """Return the state of each unknown outcome among `waits` (from authentic events, in one query), by wait."""
    unknown_waits = {(w.run_id, w.slot, w.attempt, w.n): w.pk for w in waits if w.kind == Wait.Kind.RECONCILE}
    if not unknown_waits:
        return {}
    runs, slots = zip(*{place[:2] for place in unknown_waits}, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(PROPOSED, [_KINDS, _KINDS, list(runs), list(slots)])
        rows = cursor.fetchall()
    found = {wait: Heard() for wait in unknown_waits.values()}
    for *row, run_id, news in rows:
        event = _read(run_id, tuple(row))
        place = (run_id, "", 0) if event is None else (run_id, event.slot or "", event.attempt)
        for at, wait in unknown_waits.items():
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
    payload = payload_of(event)
    return Proposal(
        event.n,
        seq,
        at,
        event.verdict,
        event.says,
        event.by,
        event.role,
        event.person,
        payload.get("receipt"),
        str(payload.get("justification", "")),
        news,
    )


PROPOSE, WITHDRAW = "outcome_propose", "outcome_withdraw"


class AlreadySaid(DurableAgentsError):
    """The same person has proposed this before; another person must confirm it."""

    status, code, title = 409, "already-said", "A second person is needed"


class SaidOtherwise(DurableAgentsError):
    """The proposal that the caller confirms is no longer in force."""

    status, code, title = 409, "said-otherwise", "The proposal has changed"


class NothingProposed(DurableAgentsError):
    """The caller has no proposal to withdraw."""

    status, code, title = 409, "nothing-proposed", "Nothing to withdraw"


def says(verdict: str, receipt: Any) -> str:
    """Return the digest that two matching proposals share. The digest includes the receipt only for `happened`."""
    fields = {"verdict": verdict, "receipt": receipt if verdict == "happened" else None}
    try:
        return sha256(canonical(fields)).hexdigest()  # 1 and 1.0 are the same number
    except ValueError:
        return digest_of(fields)


def is_for_two() -> bool:
    """Return whether two people must settle unknown outcomes, for a page (without a lock)."""
    return is_guarded(OUTCOMES)


def must_have_read(run_id: UUID, wait_id: UUID | None) -> None:
    """Check that the caller may read payloads and has named the call. Raises InvalidInput, PayloadsHidden."""
    must_read(run_id)
    if wait_id is None:
        problem = {"field": "wait_id", "problem": "is missing", "fix": "name the wait whose `proposed` you have read"}
        raise InvalidInput("Give `wait_id` with `agrees_with`: proposals are numbered per call.", errors=[problem])


def receipt_of(wait: Wait, number: int) -> Any:
    """Return the receipt of the proposal that the caller confirms. Raises SaidOtherwise."""
    return _proposal_in_force(newest([wait]).get(wait.pk), number).receipt


def weighed(
    act: Act, wait: Wait, invoked: e.ToolInvoked, verdict: str, payload: dict[str, Any], *, agrees_with: int | None
) -> e.OutcomeProposed | Proposal | None:
    """Return None if the verdict alone settles the call, else the Proposal that it confirms or the event to record.
    Needs the run's lock. `agrees_with` is the number of the proposal that the person read. Raises AlreadySaid,
    Forbidden, SaidOtherwise."""
    verdict_text, before = says(verdict, payload["receipt"]), newest([wait]).get(wait.pk)
    if agrees_with is not None and _proposal_in_force(before, agrees_with).says != verdict_text:
        raise SaidOtherwise(
            "`agrees_with` names a proposal that differs from the verdict you give. Leave one of them out."
        )
    if not act.by.is_person:
        return None
    hold()
    if not is_guarded(OUTCOMES):
        return None
    person = must_count(act.by)
    if before is not None and before.is_open and before.says == verdict_text:
        if before.person == person:
            raise AlreadySaid(
                f"You already proposed this (event {before.seq}): another operator must confirm. You may withdraw it "
                "or propose something else."
            )
        if counts(before):
            return before
    about = Event.objects.filter(run_id=act.run.pk, slot=wait.slot, attempt=wait.attempt, kind=e.OutcomeProposed.KIND)
    return e.OutcomeProposed(
        slot=wait.slot,
        attempt=wait.attempt,
        tool=invoked.tool,
        verdict=verdict,
        says=verdict_text,
        by=act.by.ref,
        role=act.by.role,
        person=person,
        question=wait.n,
        n=about.count(),
        payload=payload,
    )


def _proposal_in_force(before: Proposal | None, number: int) -> Proposal:
    """Return the proposal if it has this number and is in force. Raises SaidOtherwise."""
    if before is None or before.n != number:
        text = "none is open" if before is None else f"{before.by} proposes something else"
        raise SaidOtherwise(f"The proposal that you confirmed has changed: {text}. Read it again.")
    if before.news is not None:
        raise SaidOtherwise(
            f"Event {before.news} brought new information about the call after the proposal by {before.by}. "
            "Read it and give your own verdict."
        )
    return before


def counts(before: Proposal) -> bool:
    kind, _, name = before.by.partition(":")
    return holds(account_of(Actor(kind, name, role=before.role, person=before.person)), OPERATOR)


def must_count(by: Actor) -> int:
    """Check that the actor counts as one of the two people, and return their account.
    API keys don't count, because administrators create them for others. Raises Forbidden."""
    if by.kind != "user" or by.person is None:
        raise Forbidden("Two people must settle an unknown outcome, and each must be signed in. An API key can't.")
    if not holds(account_of(by), OPERATOR):
        raise Forbidden("Only an operator with an active account may settle this.")
    return by.person


def put_down(act: Act, wait: Wait, event: e.OutcomeProposed) -> Proposal:
    """Record the first proposal, and notify those who could confirm it."""
    after = {"tool": event.tool, "verdict": event.verdict, "attempt": event.attempt}
    _record(PROPOSE, act, wait, event, after=after)
    features.notify(
        features.Notification(
            kind="outcome_said", fact=f"{wait.pk}:{event.n}", run_id=act.run.pk, wait_id=wait.pk, about=str(event.n)
        )
    )
    return newest([wait])[wait.pk]


@transaction.atomic
def take_back(run_id: UUID, wait_id: UUID, *, justification: str, by: Actor) -> Run:
    """Withdraw the caller's own proposal on the unknown outcome `wait_id`.
    Raises Forbidden, NotFound, NothingProposed, JustificationRequired."""
    act = Act("reconcile", run_id, by=by, justification=justification)
    wait = act.run.waits.select_for_update().filter(pk=wait_id, kind=Wait.Kind.RECONCILE).first()
    found = newest([wait]).get(wait.pk) if wait is not None and wait.resolved_at is None else None
    if wait is None or found is None:
        raise NothingProposed("No proposal is open: the outcome was settled or the proposal withdrawn.")
    if found.person != by.person or by.kind != "user":
        raise Forbidden("Only the person who proposed it may withdraw it. You may propose another verdict.")
    event = e.OutcomeWithdrawn(
        slot=wait.slot, attempt=wait.attempt, by=by.ref, role=by.role, n=found.n, payload=act.payload
    )
    _record(WITHDRAW, act, wait, event, after={"proposal": found.n})
    return act.run


def _record(
    name: str, act: Act, wait: Wait, event: e.OutcomeProposed | e.OutcomeWithdrawn, *, after: dict[str, Any]
) -> None:
    acted(
        name,
        by=act.by,
        head=act.head,
        subject=f"{wait.slot} {wait.attempt}",
        justification=act.justification,
        after=after,
        at=act.now,
    )
    journal(act.run.pk, event, by=act.by)
