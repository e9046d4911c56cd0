"""Verifies standing approvals against the journal, for `approvals.verification`.

Each use must be counted once, count as the giver's, be for an identical call, and be within the limits. Each grant must
have been given with a recorded decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q

from approvals.models import Decision
from approvals.verification import BY_STANDING_APPROVAL
from durableagents.contrib.standing_approvals.models import StandingEnd, StandingGrant, StandingUse
from durableagents.contrib.standing_approvals.terms import SameCall, read_same_call
from ledger import events as e
from ledger.models import ActRecord
from ledger.verification.runs import SLACK, EventLine, ReadJournal, compared
from runs.engine.tape import payload_of


class StandingApprovals:
    """Checks a run's approvals that came from standing approvals, and the standing approvals given in the run."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        # with the id of the grant and the number of the use
        self.by_grant: dict[str, tuple[int, e.ApprovalDecided, int, int]] = {}
        self.given: dict[str, tuple[int, e.ApprovalDecided, Mapping[str, Any]]] = {}
        self.sent: dict[str, list[int]] = {}  # by slot: the events by which calls were sent
        self.yes: dict[
            tuple[str, str], list[tuple[int, str]]
        ] = {}  # by slot and queue: each approval with its question
        self._asked: dict[str, str] = {}
        self._uses: dict[str, StandingUse] | None = None

    def see(self, line: EventLine) -> None:
        """Apply one event."""
        match line.event:
            case e.ApprovalRequested() as question:
                self._asked[question.approval_id] = question.queue
            case e.ApprovalDecided() as decided:
                if decided.verdict == "approved":
                    place = decided.slot or "", self._asked.get(decided.approval_id, "")
                    self.yes.setdefault(place, []).append((line.seq, decided.approval_id))
                terms = payload_of(decided).get("standing")
                if not isinstance(terms, Mapping):
                    return
                if "grant" in terms:
                    values = line.seq, decided, _whole(terms["grant"]), _whole(terms.get("use"))
                    self.by_grant[decided.approval_id] = values
                if isinstance(terms.get("again"), Mapping):
                    self.given[decided.approval_id] = line.seq, decided, terms["again"]
            case e.ToolInvoked(slot=slot, grant=grant) if grant is not None:
                for at in {slot or "", grant}:
                    self.sent.setdefault(at, []).append(line.seq)
            case _:
                pass

    @property
    def uses(self) -> dict[str, StandingUse]:
        """Return the rows of uses in this run, by question."""
        if self._uses is None:
            rows = self.journal.rows(StandingUse, "id", related=["grant__end", "approval"])
            self._uses = {str(row.approval_id): row for row in rows}
        return self._uses

    def _decisions(self) -> Iterator[str]:
        """Check that rows and events agree on whether a person or a standing approval decided."""
        if "approvals_approval" not in self.journal.present:
            return
        by_one = Q(auth=BY_STANDING_APPROVAL) | Q(approval_id__in=self.by_grant)
        for row in Decision.objects.filter(by_one, approval__run_id=self.journal.run_id).order_by("id"):
            yield from self._decision(f"decision {row.id}", row)

    def _decision(self, what: str, row: Decision) -> Iterator[str]:
        is_by_one = row.auth == BY_STANDING_APPROVAL
        if is_by_one != (str(row.approval_id) in self.by_grant):
            yield f"{what}: one record says that a standing approval made it, the other that a person did"
        use, terms = self.uses.get(str(row.approval_id)), row.standing if isinstance(row.standing, Mapping) else {}
        if is_by_one and use is not None and row.person != use.grant.person:
            yield f"{what}: it names account {row.person}, but account {use.grant.person} gave the standing approval"
        if is_by_one and ("deputy_of" in terms or "queue" in terms):
            yield f"{what}: a standing approval counts only for its giver"

    def problems(self) -> Iterator[str]:
        """Yield the problems found in the rows."""
        missing = dict(self.by_grant)
        for id, use in self.uses.items():
            recorded = missing.pop(id, None)
            if recorded is None:
                yield f"{use} answered approval {id}, but no event records that"
            else:
                yield from self._use(use, *recorded)
            if not use.is_authentic:
                yield f"{use} was not written with this installation's key, or was changed"
        for id, (_, _, grant, n) in missing.items():
            yield f"approval {id} was answered by standing grant {grant}, but its use {n} has no row"
        yield from self._given()
        yield from self._decisions()

    def _use(self, use: StandingUse, seq: int, decided: e.ApprovalDecided, grant_id: int, n: int) -> Iterator[str]:
        what, grant, end = str(use), use.grant, _end_of(use.grant)
        try:
            same_call = read_same_call(bytes(use.approval.plan))
        except ValueError as error:
            yield f"{what}: the answered request can't be compared: {error}"
            return
        amount = None if same_call.amount is None else same_call.amount.value
        yield from compared(what, use, {"grant_id": grant_id, "n": n, "amount": amount})
        if not self.journal.is_about(seq, use.at):
            yield f"{what}: its time differs from that of its event"
        if not grant.is_authentic:
            yield f"{what}: its standing approval was not written with this installation's key, or was changed"
        if (decided.role, decided.verdict) != (grant.role, "approved") or decided.n:
            yield f"{what}: the approval differs from its standing approval"
        if problem := _not_within(use, grant, same_call):
            yield f"{what}: {problem}"
        if end is not None and end.at + SLACK < use.at:
            yield f"{what}: its standing approval had been revoked"
        for sent in self._sent_under(decided):
            if end is not None and self.journal.at[sent - 1] > end.at + SLACK:
                yield f"{what}: the call was sent (event {sent}) after its standing approval was revoked"

    def _sent_under(self, decided: e.ApprovalDecided) -> Iterator[int]:
        """Yield the events that sent a call under this approval while it was the last one of its queue."""
        slot = decided.slot or ""
        events = self.yes.get((slot, self._asked.get(decided.approval_id, "")), [])
        for sent in self.sent.get(slot, []):
            if [id for seq, id in events if seq < sent][-1:] == [decided.approval_id]:
                yield sent

    def _given(self) -> Iterator[str]:
        missing = dict(self.given)
        for row in self.journal.rows(StandingGrant, "id"):
            what, recorded = str(row), missing.pop(str(row.approval_id), None)
            if recorded is None:
                yield f"{what}: no decision includes it"
                continue
            seq, decided, terms = recorded
            yield from compared(
                what,
                row,
                {
                    "by": decided.by,
                    "role": decided.role,
                    "reason": payload_of(decided).get("justification"),
                    "count": terms.get("times"),
                    "is_of_run": terms.get("scope") == "run",
                    "currency": terms.get("currency", ""),
                    "most": _decimal(terms.get("sum")),
                    "until": _moment(terms.get("until")),
                },
            )
            if not self.journal.is_about(seq, row.at):
                yield f"{what}: its time differs from that of its decision"
        for id in missing:
            yield f"the decision on approval {id} includes a standing approval, but its row is missing"


def _not_within(use: StandingUse, grant: StandingGrant, same_call: SameCall) -> str:
    """Return why a use is not covered by its standing approval; empty if it is."""
    question = use.approval
    if not grant.is_about(question.queue, same_call):
        return "the answered request is not identical"
    if grant.is_of_run and grant.run_id != use.run_id:
        return "its standing approval is for another run"
    if not 1 <= use.n <= grant.count:
        return f"its standing approval is for {grant.count} calls"
    if use.at > grant.until or question.opened_at < grant.at:
        return "it is outside the time of its standing approval"
    if (same_call.amount is None) != (grant.most is None) or (
        same_call.amount and same_call.amount.currency != grant.currency
    ):
        return "its amount is not in the currency of its standing approval"
    if grant.most is not None:
        before = StandingUse.objects.filter(grant=grant, n__lte=use.n).values_list("amount", flat=True)
        if sum((abs(each) for each in before if each is not None), Decimal(0)) > grant.most:
            return f"it exceeds the total amount of {grant.most:f} {grant.currency}"
    return ""


def find_revoked(run_id: UUID) -> dict[UUID, datetime]:
    """Return which approvals of a run ended early because their standing approval was revoked, and when."""
    found = {}
    for use in StandingUse.objects.filter(run_id=run_id).select_related("grant__end"):
        end = _end_of(use.grant)
        if (at := _lapsed_at(use.grant) if end is None else end.at) is not None:
            found[use.approval_id] = at
    return found


def _end_of(grant: StandingGrant) -> StandingEnd | None:
    try:
        return grant.end if grant.end.is_authentic else None
    except StandingEnd.DoesNotExist:
        return None


def _lapsed_at(grant: StandingGrant) -> datetime | None:
    """Return when a standing approval was revoked.

    This is needed if a forged row prevented the revocation from being written.
    """
    if not StandingEnd.objects.filter(grant=grant).exists():
        return None
    rows = ActRecord.objects.filter(action="standing_revoke", subject=str(grant)).order_by("at", "id")
    return rows.values_list("at", flat=True).first()


def _whole(given: Any) -> int:
    return given if type(given) is int else 0


def _decimal(given: Any) -> Decimal | None:
    try:
        return None if given is None else Decimal(str(given))
    except ArithmeticError:
        return None


def _moment(given: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(given))
    except ValueError:
        return None
