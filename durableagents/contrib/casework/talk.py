"""Read a case's inquiries and delegations for display."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import TextField
from django.db.models.expressions import RawSQL

from approvals.api.schemas import DelegationRow, InquiryRow
from approvals.brief import ApprovalDetail
from approvals.guards import ApprovalPanel
from approvals.models import Approval, Delegation, Inquiry
from ledger.rows import row_of
from ledger.web.roles import AUDITOR, INTEGRATOR, OPERATOR
from ledger.web.seeing.viewers import viewer

MAX_NAMES = 200  # limit of suggested names; others can be typed
# SQL value: names of people who can be asked or delegated to (as `casework.common.named` checks).
NAMES = f"""(SELECT json_agg(json_build_array(named.id, named.username) ORDER BY named.username) FROM (
    SELECT u.id, u.username FROM auth_user u WHERE u.is_active AND EXISTS (
        SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
        WHERE m.user_id = u.id AND (g.name IN ('{INTEGRATOR}', '{OPERATOR}') OR g.name ~ '^approver_[a-z0-9_]+$'
            OR g.name <> '{AUDITOR}' AND EXISTS (
                SELECT FROM approvals_queue q WHERE q.role = g.name AND q.state <> 'removed')))
    ORDER BY u.username LIMIT {MAX_NAMES}) named)"""
# SQL value: inquiries and delegations of the question {approval}, as text. `names` is NAMES, or null if no names are
# offered.
TALK = """(SELECT json_build_object('names', {names},
    'inquiries', (SELECT coalesce(json_agg(to_json(i)::text ORDER BY i.at, i.id), '[]') FROM approvals_inquiry i
                  WHERE i.approval_id = {approval}),
    'delegations', (SELECT coalesce(json_agg(to_json(d)::text ORDER BY d.made_at, d.id), '[]')
                    FROM approvals_delegation d WHERE d.approval_id = {approval}))::text)"""
_ALONE = f"SELECT {TALK.format(approval='asked.id', names='null')} FROM unnest(%s::uuid[]) AS asked(id)"


@dataclass(frozen=True, slots=True)
class ShownInquiry:
    """One inquiry. `is_mine`: the reader was asked. `is_own`: the reader is the one who asked."""

    row: Inquiry
    is_authentic: bool
    is_mine: bool = False
    is_own: bool = False

    @property
    def is_open(self) -> bool:
        return self.row.ended_at is None


@dataclass(frozen=True, slots=True)
class ShownDelegation:
    """One delegation. `is_mine`: the reader is its principal or deputy."""

    row: Delegation
    is_authentic: bool
    is_mine: bool = False

    @property
    def is_open(self) -> bool:
        return self.row.ended_at is None


@dataclass(frozen=True, slots=True)
class Talk:
    """All inquiries and delegations in order, and if requested the names that the reader may choose from."""

    inquiries: Sequence[ShownInquiry] = field(default_factory=tuple)
    delegations: Sequence[ShownDelegation] = field(default_factory=tuple)
    names: Sequence[str] = ()
    deputies: Sequence[str] = ()
    """People among `names` to whom the case may be delegated: they neither started the run nor voted."""

    def of(self, approval_id: UUID) -> Talk:
        return Talk(
            [each for each in self.inquiries if each.row.approval_id == approval_id],
            [each for each in self.delegations if each.row.approval_id == approval_id],
            self.names,
            self.deputies,
        )

    def told(self, *, is_read: bool) -> Talk:
        """Return what the reader may see.

        Readers without the right to read payloads get only the inquiries that they made or were asked.
        """
        inquiries = [each for each in self.inquiries if is_read or each.is_mine or each.is_own]
        return Talk(inquiries, self.delegations, self.names, self.deputies)

    @property
    def waits(self) -> bool:
        return any(each.is_open and each.is_authentic for each in self.inquiries)

    @property
    def stands(self) -> bool:
        return any(each.is_open and each.is_authentic and each.row.stops_clock for each in self.inquiries)


_OPEN_FOR = """
    SELECT x.run_id::text, array_agg(x.what ORDER BY x.what) FROM (
        (SELECT a.run_id, 'inquiry ' || i.id AS what FROM approvals_inquiry i
         JOIN approvals_approval a ON a.id = i.approval_id AND a.state = 'open'
         WHERE i.person = %(person)s AND i.ended_at IS NULL AND i.n >= 0
         ORDER BY row_number() OVER (PARTITION BY i.approval_id ORDER BY i.n), i.at DESC LIMIT 100)
        UNION ALL
        (SELECT a.run_id, 'delegation ' || d.id FROM approvals_delegation d
         JOIN approvals_approval a ON a.id = d.approval_id AND a.state = 'open'
         WHERE d.deputy = %(person)s AND d.ended_at IS NULL AND d.n >= 0
         ORDER BY row_number() OVER (PARTITION BY d.approval_id ORDER BY d.n), d.made_at DESC LIMIT 100)) x
    GROUP BY x.run_id"""


def open_for(person: int) -> dict[str, Any]:
    """Return an account's open inquiries and delegations by run.

    The account's sockets use them only to signal changes.
    """
    with connection.cursor() as cursor:
        cursor.execute(_OPEN_FOR, {"person": person})
        return dict(cursor.fetchall())


@dataclass(frozen=True, slots=True)
class TalkPanel:
    """Inquiries and delegations of all revisions (`talk`), and of the displayed one (`own`)."""

    talk: Talk
    own: Talk


def talk_annotations(is_whole: bool) -> dict[str, RawSQL]:
    """Return the SQL annotations of an approval on a page: its inquiries and delegations, and the offered names."""
    sql = TALK.format(approval='"approvals_approval"."id"', names=NAMES)
    return {"casework_talk": RawSQL(sql, [], output_field=TextField())} if is_whole else {}


def talk_panels(opened: ApprovalDetail) -> list[ApprovalPanel]:
    """Return the panel with the inquiries and delegations of an approval and its earlier revisions."""
    revisions: list[Any] = [opened.approval, *(each.approval for each in opened.earlier)]
    read, barred = [each.casework_talk for each in revisions], {opened.approval.run.creator, *opened.voters}
    talk = talk_in(read, opened.facts.who.person, barred).told(is_read=opened.is_read)
    return [ApprovalPanel("casework/talk.html", TalkPanel(talk, talk.of(opened.approval.id)), place="talk")]


def talk_fields(approvals: Sequence[Approval], readable: Collection[UUID]) -> Mapping[UUID, Mapping[str, Any]]:
    """Return the inquiries and delegations of approvals for the API."""
    with connection.cursor() as cursor:
        cursor.execute(_ALONE, [[each.id for each in approvals]])
        all_talk, found = talk_in([talk for (talk,) in cursor.fetchall()], viewer().person), {}
    for approval in approvals:
        talk = all_talk.of(approval.id).told(is_read=approval.id in readable)
        found[approval.id] = {
            "inquiries": [InquiryRow.of(each.row, is_authentic=each.is_authentic) for each in talk.inquiries],
            "delegations": [DelegationRow.of(each.row, is_authentic=each.is_authentic) for each in talk.delegations],
        }
    return found


def talk_in(names: Iterable[str], person: int | None, barred: Container[int | None] = ()) -> Talk:
    """Parse the results of TALK, one per question. `barred` are accounts that questions can't be delegated to."""
    read = [json.loads(each) for each in names]
    inquiries = sorted((row_of(Inquiry, row) for each in read for row in each["inquiries"]), key=lambda row: row.at)
    handed = sorted((row_of(Delegation, row) for each in read for row in each["delegations"]), key=_since)
    people = {(name, key) for each in read for key, name in each["names"] or () if key != person}
    return Talk(
        [ShownInquiry(row, row.is_authentic, row.person == person, row.asker == person) for row in inquiries],
        [ShownDelegation(row, row.is_authentic, person in (row.principal, row.deputy)) for row in handed],
        sorted(name for name, _ in people),
        sorted(name for name, key in people if key not in barred),
    )


def _since(row: Delegation) -> datetime:
    return row.made_at
