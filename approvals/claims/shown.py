"""Claims for display, read within the question's statement. Impossible rows are left out, and people who can no longer
decide (account closed, role lost)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, TextField
from django.db.models.expressions import RawSQL
from pydantic import Field

from approvals.models import Approval, Claim
from ledger.web.bodies import Strict
from ledger.web.cursors import Condition

MINUTES, MOST_MINUTES = 10, 60
_Minutes = Annotated[int, Field(ge=1, le=MOST_MINUTES, description="Duration in minutes, from now.")]
_Claim = Annotated[int | None, Field(ge=1, le=2**53 - 1, description="`id` of another person's claim to end.")]


class ClaimBody(Strict):
    """Duration of the claim, and whose claim it replaces if none is free."""

    minutes: _Minutes = MINUTES
    take_over: _Claim = None


class NoBody(Strict):
    """An empty body."""


MOST_ON, MOST_TOLD = 20, 60  # shown of one question
NOBODY, ME = "nobody", "me"
_HOLDS = """EXISTS (SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
                    WHERE m.user_id = {who} AND g.name = c.role)"""
# SQL: the current claims. It uses only the index of a question's open claims.
_ON = f"""approvals_claim c JOIN auth_user u ON u.id = c.person AND u.is_active
    WHERE c.ended_at IS NULL AND c.until > clock_timestamp()
      AND c.until <= clock_timestamp() + interval '{MOST_MINUTES + 1} minutes' AND c.at BETWEEN '2000-01-01' AND c.until
      AND ({_HOLDS.format(who="c.person")} OR EXISTS (
          SELECT FROM approvals_deputy d WHERE d.deputy = c.person AND d.revoked_at IS NULL
          AND d.starts_at <= clock_timestamp() AND d.ends_at > clock_timestamp()
          AND {_HOLDS.format(who="d.principal")}) OR EXISTS (
          SELECT FROM approvals_delegation h WHERE h.approval_id = c.approval_id AND h.deputy = c.person
          AND h.ended_at IS NULL AND {_HOLDS.format(who="h.principal")}))"""
_ONE = """json_build_object('id', c.id, 'person', c.person, 'by', left(c.by, 200), 'role', left(c.role, 200),
    'at', c.at, 'until', c.until, 'seconds', ceil(extract(epoch FROM c.until - clock_timestamp()))::int) AS told"""
_LISTED = f"""(SELECT coalesce(json_agg(o.told), '[]') FROM (
    SELECT {_ONE} FROM {_ON} AND c.approval_id = {{id}} ORDER BY c.at, c.id LIMIT {MOST_ON}) o)"""
_TOLD = f"""(SELECT coalesce(json_agg(t.told), '[]') FROM (
    SELECT json_build_object('person', c.person, 'by', left(c.by, 200), 'at', c.at, 'until', c.until,
        'ended_at', c.ended_at, 'ended_by', left(c.ended_by, 200), 'why', left(c.why, 200),
        'is_over', c.ended_at IS NOT NULL OR c.until <= clock_timestamp()) AS told
    FROM approvals_claim c WHERE c.approval_id = {{id}} AND c.at BETWEEN '2000-01-01' AND c.until
      AND c.until <= clock_timestamp() + interval '{MOST_MINUTES + 1} minutes'
      AND (c.ended_at IS NULL OR c.ended_at BETWEEN c.at AND clock_timestamp())
    ORDER BY c.at DESC, c.id DESC LIMIT {MOST_TOLD}) t)"""
_ID = '"approvals_approval"."id"'


@dataclass(frozen=True, slots=True)
class OnIt:
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
class Spell:
    """A past or current claim, for the case's history."""

    person: int
    by: str
    at: datetime
    until: datetime
    ended_at: datetime | None
    ended_by: str
    why: str
    is_over: bool

    @property
    def ends_at(self) -> datetime:
        return self.ended_at or self.until

    @property
    def taker(self) -> str:
        return name_in(self.ended_by)

    @property
    def words(self) -> str:
        """Return how it ended, to follow the time."""
        match self.why:
            case Claim.Why.LET_GO:
                return "(released)"
            case Claim.Why.TAKEN:
                return f"when {self.ended_by} took it over"
            case Claim.Why.SAID:
                return "and had their say" if self.ended_by == self.by else f"when {self.ended_by} spoke for them"
            case Claim.Why.CLOSED:
                return "when the case was over"
        return ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A case's claims for a reader. `room` is the number of places."""

    me: int | None = None
    on: Sequence[OnIt] = ()
    spells: Sequence[Spell] = ()
    room: int = 1

    @property
    def mine(self) -> OnIt | None:
        return next((one for one in self.on if one.person == self.me), None)

    @property
    def others(self) -> list[OnIt]:
        return [one for one in self.on if one.person != self.me]

    @property
    def seconds(self) -> int:
        return min((one.seconds for one in self.on), default=0)

    @property
    def is_full(self) -> bool:
        """Return whether the reader would have to take over a claim."""
        return len(self.others) >= self.room

    @property
    def taken(self) -> Spell | None:
        """Return the reader's last claim if someone took it over and they have not returned since."""
        last = next((each for each in self.spells if each.person == self.me), None)
        return last if last is not None and last.why == Claim.Why.TAKEN else None

    @property
    def told(self) -> list[Spell]:
        """Return the history, oldest first."""
        return list(reversed(self.spells))


@dataclass(frozen=True, slots=True)
class Filter:
    """A list's filter: claimed by `nobody` or by `me`; empty for all."""

    on: str = ""
    person: int | None = None
    conditions: dict[Any, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.on == NOBODY:
            nobody = f"NOT EXISTS (SELECT 1 FROM {_ON} AND c.approval_id = approvals_approval.id)"
            self.conditions[Condition(nobody)] = []
        elif self.on == ME:
            # Start from the reader's few claims, not from all open questions: an array leaves the planner no choice.
            mine = f"approvals_approval.id = ANY (ARRAY(SELECT c.approval_id FROM {_ON} AND c.person = %s))"
            self.conditions[Condition(mine)] = [self.person]

    @property
    def in_orm(self) -> list[RawSQL]:
        return [RawSQL(f"({sql})", given, output_field=BooleanField()) for sql, given in self.conditions.items()]


def name_in(ref: str) -> str:
    return ref.partition(":")[2] or ref


def along() -> dict[str, RawSQL]:
    """Return annotations for lists: the current claims."""
    return {"claimed": RawSQL(f"json_build_object('on', {_LISTED.format(id=_ID)})::text", [], output_field=TextField())}


def along_whole() -> dict[str, RawSQL]:
    """Return annotations for one question in full: current and past claims."""
    sql = f"json_build_object('on', {_LISTED.format(id=_ID)}, 'spells', {_TOLD.format(id=_ID)})::text"
    return {"claimed": RawSQL(sql, [], output_field=TextField())}


def shown(approval: Approval, me: int | None, room: int = 1) -> Shown:
    """Return a question's annotated claims for a reader; empty without annotations."""
    told = json.loads(getattr(approval, "claimed", "{}"))
    spells = [_spell(each) for each in told.get("spells", ())]
    return Shown(me, [_on(each) for each in told.get("on", ())], spells, max(1, room))


def on_each(approvals: Iterable[UUID]) -> dict[UUID, list[OnIt]]:
    """Return the current claims of each question, in one statement."""
    ids = list(approvals)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT a.id, {_LISTED.format(id='a.id')}::text FROM unnest(%s::uuid[]) AS a (id)", [ids])
        return {id: [_on(each) for each in json.loads(told)] for id, told in cursor.fetchall()}


def _on(told: dict[str, Any]) -> OnIt:
    return OnIt(**{**told, "at": _moment(told["at"]), "until": _moment(told["until"])})


def _spell(told: dict[str, Any]) -> Spell:
    ended = told["ended_at"]
    times = {"at": _moment(told["at"]), "until": _moment(told["until"]), "ended_at": ended and _moment(ended)}
    return Spell(**{**told, **times})


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
