"""Standing grants over HTTP: reading them, taking one back, and how far they may go at a queue. One is given with a
decision."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.queues import QueueRow, SetsUp, row_of
from approvals.granting import acts, listed
from approvals.granting.acts import BoundsBody
from approvals.queues import acts as queues
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.cursors import placed
from ledger.web.fields import ActorName, RoleName, Rows
from ledger.web.roles import EVERY, roles
from ledger.web.shapes import Page, Shape
from runs.journal.asked.queues import QUEUES
from runs.services.bodies import SteerBody


class UseRow(Shape):
    """An approval that the standing approval answered."""

    n: int = Field(description="Number of the use, from 1.")
    approval_id: UUID = Field(description="Approval that it answered.")
    run_id: UUID = Field(description="Run whose call it let through.")
    amount: str | None = Field(description="Amount of the call; null: it names none.")
    at: datetime = Field(description="Time of the use.")


class EndRow(Shape):
    """The end of a standing approval."""

    by: ActorName
    role: RoleName
    reason: str = Field(description="Justification for ending it.")
    at: datetime = Field(description="Time when it ended.")


class GrantRow(Shape):
    """A standing approval: further identical calls pass without another decision."""

    id: int = Field(description="Id of the standing approval.")
    approval_id: UUID = Field(description="The approval with whose decision it was given.")
    run_id: UUID = Field(description="Run of the approval with which it was given.")
    queue: str = Field(description="Queue that gave it.")
    tool: str = Field(description="Tool whose calls it covers.")
    agent: str = Field(description="Agent whose calls it covers.")
    scope: str = Field(description="agent: all its runs; run: that run only.")
    fields: list[str] = Field(description="Arguments that must be identical.")
    times: int = Field(description="Number of calls that it covers.")
    used: int = Field(description="Number of calls that it has let through.")
    sum: str | None = Field(description="Total amount of the calls; null: the calls name no amount.")
    spent: str | None = Field(description="Total amount of the calls that it has let through; null as with `sum`.")
    currency: str = Field(description="Currency of `sum` and `spent`, an ISO 4217 code; empty: no amount.")
    until: datetime = Field(description="Time when it expires.")
    by: ActorName
    role: RoleName
    reason: str = Field(description="Justification of the decision with which it was given.")
    at: datetime = Field(description="Time when it was given.")
    state: str = Field(description="active, used_up, over, taken_back, or not_authentic (it lets nothing through).")
    end: EndRow | None = Field(description="Who ended it early; null: nobody.")
    uses: list[UseRow] = Field(description="Newest first; at most 50.")


class GrantPage(Page):
    results: Rows[GrantRow]


class Grants(ApiView):
    """Standing approvals, newest first: those of the queues where the caller decides, or all for operators, auditors
    and administrators."""

    permission_classes = [SetsUp]
    roles = READ

    @described("List standing approvals", GrantPage, query=("queue", "cursor", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "queue", "cursor")
        queue = query.choice("queue", sorted(QUEUES)) or ""
        rows = listed.page(request.user, queue=queue, beyond=query.placed(), limit=query.limit + 1)
        return query.page(rows, lambda one: {"cursor": placed(one.row.at, one.row.pk)}, grant_row)


class OneGrant(ApiView):
    """One standing approval."""

    permission_classes = [SetsUp]
    roles = READ

    @described("Get a standing approval", GrantRow)
    def get(self, request: Request, grant_id: int) -> Response:
        Query(request)
        return Response(grant_row(listed.one(grant_id, request.user)))


class GrantEnd(ApiView):
    """End a standing approval. Its giver, approvers of its queue, operators and administrators may do so."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("End a standing approval", GrantRow, body=SteerBody)
    def post(self, request: Request, grant_id: int) -> Response:
        listed.one(grant_id, request.user)
        why = read_body(request, SteerBody).justification
        acts.take_back(grant_id, justification=why, by=self.by, roles=roles(request.user))
        return Response(grant_row(listed.one(grant_id, request.user)))


class QueueGrants(ApiView):
    """Set the limits of standing approvals at a queue."""

    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Set limits of standing approvals", QueueRow, body=BoundsBody)
    def post(self, request: Request, queue: str) -> Response:
        queues.find(queue)
        return Response(row_of(acts.allow(queue, read_body(request, BoundsBody), by=self.by)))


def grant_row(shown: listed.Shown) -> GrantRow:
    """Return the row of a standing approval."""
    row, held = shown.row, shown.held
    return GrantRow.of(
        None,
        id=row.pk,
        approval_id=row.approval_id,
        run_id=row.run_id,
        queue=row.queue,
        tool=row.tool,
        agent=row.agent,
        scope="run" if row.is_of_run else "agent",
        fields=shown.fields,
        times=row.count,
        used=held.used,
        sum=None if row.most is None else format(row.most, "f"),
        spent=None if row.most is None else format(held.spent, "f"),
        currency=row.currency,
        until=row.until,
        by=row.by,
        role=row.role,
        reason=row.reason,
        at=row.at,
        state=shown.state,
        end=None if held.end is None else EndRow.of(held.end),
        uses=[UseRow.of(use, amount=None if use.amount is None else format(use.amount, "f")) for use in shown.uses],
    )
