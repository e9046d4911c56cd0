"""Read claims for an approval's page, the inbox and the API.

Rows that can't be valid are left out, and so are claims of people who can no longer decide (account closed, role lost).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import TextField
from django.db.models.expressions import RawSQL

from approvals.api.schemas import ClaimRow
from approvals.brief import ApprovalDetail
from approvals.guards import ApprovalFilter, ApprovalPanel
from approvals.models import Approval, ApprovalState
from durableagents.contrib.casework.models import Claim
from ledger.web.seeing.viewers import viewer

MAX_MINUTES = 60
MAX_ACTIVE, MAX_HISTORY = 20, 60  # limit of claims shown per approval
_HOLDS = """EXISTS (SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
                    WHERE m.user_id = {who} AND g.name = c.role)"""
# SQL for the current claims. It uses only the index on an approval's open claims.
_ACTIVE = f"""approvals_claim c JOIN auth_user u ON u.id = c.person AND u.is_active
    WHERE c.ended_at IS NULL AND c.until > clock_timestamp()
      AND c.until <= clock_timestamp() + interval '{MAX_MINUTES + 1} minutes' AND c.at BETWEEN '2000-01-01' AND c.until
      AND ({_HOLDS.format(who="c.person")} OR EXISTS (
          SELECT FROM approvals_deputy d WHERE d.deputy = c.person AND d.revoked_at IS NULL
          AND d.starts_at <= clock_timestamp() AND d.ends_at > clock_timestamp()
          AND {_HOLDS.format(who="d.principal")}) OR EXISTS (
          SELECT FROM approvals_delegation h WHERE h.approval_id = c.approval_id AND h.deputy = c.person
          AND h.ended_at IS NULL AND {_HOLDS.format(who="h.principal")}))"""
_ONE = """json_build_object('id', c.id, 'person', c.person, 'by', left(c.by, 200), 'role', left(c.role, 200),
    'at', c.at, 'until', c.until, 'seconds', ceil(extract(epoch FROM c.until - clock_timestamp()))::int) AS claim"""
_LISTED = f"""(SELECT coalesce(json_agg(o.claim), '[]') FROM (
    SELECT {_ONE} FROM {_ACTIVE} AND c.approval_id = {{id}} ORDER BY c.at, c.id LIMIT {MAX_ACTIVE}) o)"""
_HISTORY = f"""(SELECT coalesce(json_agg(t.claim), '[]') FROM (
    SELECT json_build_object('person', c.person, 'by', left(c.by, 200), 'at', c.at,
        'ended_at', coalesce(c.ended_at, c.until), 'ended_by', left(c.ended_by, 200), 'why', left(c.why, 200)) AS claim
    FROM approvals_claim c WHERE c.approval_id = {{id}} AND c.at BETWEEN '2000-01-01' AND c.until
      AND c.until <= clock_timestamp() + interval '{MAX_MINUTES + 1} minutes'
      AND (c.ended_at IS NULL OR c.ended_at BETWEEN c.at AND clock_timestamp())
    ORDER BY c.at DESC, c.id DESC LIMIT {MAX_HISTORY}) t)"""
_ID = '"approvals_approval"."id"'


@dataclass(frozen=True, slots=True)
class ActiveClaim:
    """A current claim, with its remaining seconds."""

    id: int
    person: int
    by: str
    role: str
    at: datetime
    until: datetime
    seconds: int

    @property
    def who(self) -> str:
        return name_in(self.by)


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """A past or current claim, for the approval's history."""

    person: int
    by: str
    at: datetime
    ended_at: datetime
    ended_by: str
    why: str

    @property
    def taken_by(self) -> str:
        return name_in(self.ended_by)

    @property
    def outcome(self) -> str:
        """Return how the claim ended, as text to be put after the time."""
        match self.why:
            case Claim.Why.LET_GO:
                return "(released)"
            case Claim.Why.TAKEN:
                return f"when {self.ended_by} took it over"
            case Claim.Why.SAID:
                return "and voted" if self.ended_by == self.by else f"when {self.ended_by} voted for them"
            case Claim.Why.CLOSED:
                return "when the case was closed"
        return ""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of an approval, for a reader. `room` is the number of people who may claim the approval at once."""

    me: int | None = None
    active: Sequence[ActiveClaim] = ()
    newest_first: Sequence[HistoryLine] = ()
    room: int = 1

    @property
    def mine(self) -> ActiveClaim | None:
        return next((one for one in self.active if one.person == self.me), None)

    @property
    def others(self) -> list[ActiveClaim]:
        return [one for one in self.active if one.person != self.me]

    @property
    def seconds(self) -> int:
        """Return the number of seconds until the first claim lapses."""
        return min((one.seconds for one in self.active), default=0)

    @property
    def is_full(self) -> bool:
        """Return whether the reader would have to take over another person's claim."""
        return len(self.others) >= self.room

    @property
    def taken(self) -> HistoryLine | None:
        """Return the reader's last claim, if somebody took it over and the reader hasn't claimed the approval since."""
        last = next((each for each in self.newest_first if each.person == self.me), None)
        return last if last is not None and last.why == Claim.Why.TAKEN else None

    @property
    def history(self) -> list[HistoryLine]:
        """Return past and current claims, oldest first."""
        return list(reversed(self.newest_first))


def name_in(ref: str) -> str:
    """Return the name in an actor's reference, for example `ann` for `user:ann`."""
    return ref.partition(":")[2] or ref


def active_claims(approvals: Iterable[UUID]) -> dict[UUID, list[ActiveClaim]]:
    """Return the current claims of each approval, in one statement."""
    ids = list(approvals)
    if not ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT a.id, {_LISTED.format(id='a.id')}::text FROM unnest(%s::uuid[]) AS a (id)", [ids])
        return {id: [_active(each) for each in json.loads(claims)] for id, claims in cursor.fetchall()}


def claim_annotations(is_whole: bool) -> dict[str, RawSQL]:
    """Return the SQL annotations of an approval: its claims and, for a page, their history."""
    parts = {"active": _LISTED, "history": _HISTORY} if is_whole else {"active": _LISTED}
    values = ", ".join(f"'{name}', {sql.format(id=_ID)}" for name, sql in parts.items())
    return {"casework_claims": RawSQL(f"json_build_object({values})::text", [], output_field=TextField())}


def _claims_of(approval: Any, room: int = 1) -> Claims:
    read = json.loads(approval.casework_claims)
    active, history = ([make(each) for each in read.get(name, ())] for name, make in _PARTS.items())
    return Claims(viewer().person, active, history, max(1, room))


def approval_panels(opened: ApprovalDetail) -> list[ApprovalPanel]:
    """Return the panels of an approval's page: its claims, their history, and a note next to the form for deciding."""
    claims = _claims_of(opened.approval, opened.now.missing if opened.now is not None else 1)
    return [
        ApprovalPanel(f"casework/{template}.html", claims, place=place)
        for template, place in (("claims", "top"), ("history", "history"), ("decision", "decision"))
    ]


def approval_lines(approvals: Sequence[Approval]) -> Mapping[UUID, ApprovalPanel]:
    """Return a line for each claimed approval of the inbox."""
    found = {one.id: _claims_of(one) for one in approvals}
    return {id: ApprovalPanel("casework/line.html", claims) for id, claims in found.items() if claims.active}


def approval_fields(approvals: Sequence[Approval], readable: Collection[UUID]) -> Mapping[UUID, Mapping[str, Any]]:
    """Return the claims of open approvals for the API."""
    found = active_claims(one.id for one in approvals if one.state == ApprovalState.OPEN)
    return {id: {"claims": [ClaimRow.of(each) for each in claims]} for id, claims in found.items()}


# The reader's few claims are read first, instead of all open approvals. The array forces the planner to do so.
FILTERS = {
    "nobody": ApprovalFilter(
        "unassigned",
        lambda person: (f"NOT EXISTS (SELECT 1 FROM {_ACTIVE} AND c.approval_id = approvals_approval.id)", []),
    ),
    "me": ApprovalFilter(
        "mine",
        lambda person: (
            f"approvals_approval.id = ANY (ARRAY(SELECT c.approval_id FROM {_ACTIVE} AND c.person = %s))",
            [person],
        ),
    ),
}


def _active(claim: dict[str, Any]) -> ActiveClaim:
    return ActiveClaim(**{**claim, **{name: datetime.fromisoformat(claim[name]) for name in ("at", "until")}})


def _history(claim: dict[str, Any]) -> HistoryLine:
    return HistoryLine(**{**claim, **{name: datetime.fromisoformat(claim[name]) for name in ("at", "ended_at")}})


_PARTS: dict[str, Callable[[dict[str, Any]], Any]] = {"active": _active, "history": _history}
