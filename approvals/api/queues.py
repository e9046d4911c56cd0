"""Queues over HTTP: reading them, setting them up, and naming deputies."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from pydantic import Field
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.grants import bounds_in
from approvals.queue_models import Deputy, Queue
from approvals.queues import acts, deputies, listed
from approvals.queues.acts import DeputyBody, LiftBody, LimitBody, ProofBody, QueueBody, QueueChangeBody, ReasonsBody
from approvals.queues.who import ADMIN, is_admin
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import EVERY, HasRole, roles
from ledger.web.shapes import Page, Shape
from ledger.web.tally import Tally
from runs.services.bodies import SteerBody


class MemberRow(Shape):
    """Somebody who decides."""

    name: str
    person: int
    limit: str = Field(description="In words; empty: none.")
    limit_of: str = Field(description="person, role, or empty.")


class LimitRow(Shape):
    """The most that somebody may approve alone."""

    person: int | None = Field(description="Null: the role's own.")
    name: str
    most: str | None = Field(description="Null: as much as they like.")
    currency: str
    set_by: str
    set_at: datetime
    is_genuine: bool


class DeputyRow(Shape):
    """Who stands in for whom."""

    id: int
    deputy: str
    principal: str
    queue: str = Field(description="Empty: all that the principal decides.")
    starts_at: datetime
    ends_at: datetime
    reason: str
    set_by: str
    revoked_at: datetime | None
    is_genuine: bool = Field(description="false: not put on record by this installation; decides nothing.")


class ProofRow(Shape):
    """What a yes has to show at a queue, above an amount or from a risk on; with neither, for each call."""

    minutes: int = Field(description="Within how many its person has shown who they are; 0: that isn't asked.")
    second_factor: bool = Field(description="By a second factor; else by a password too.")
    type_amount: bool
    type_target: bool
    above: str | None
    currency: str
    risk: str


class BoundsRow(Shape):
    """How far standing grants may go at a queue."""

    times: int
    days: int
    sum: str | None = Field(description="In the queue's currency; null: what whoever gives it may approve at once.")


class QueueRow(Shape):
    """A queue: who decides there, up to how much, and what waits."""

    name: str
    title: str
    role: str
    state: Queue.State
    currency: str
    needs_amount: bool
    open: int = Field(description="Questions that are open; not counted beyond 1,000.")
    members: list[MemberRow]
    limits: list[LimitRow]
    deputies: list[DeputyRow] = Field(description="Now and to come.")
    proof: ProofRow | None = Field(description="What a yes has to show here; null: no more than being said.")
    reasons: list[str] = Field(description="Short ones that are offered to whoever decides; any other does, too.")
    grants: BoundsRow | None = Field(description="How far standing grants may go; null: none may be given.")
    set_by: str
    made_at: datetime
    changed_at: datetime
    is_genuine: bool


class QueueName(Shape):
    """A queue in the list."""

    name: str
    title: str
    role: str
    state: Queue.State
    currency: str
    needs_amount: bool
    is_genuine: bool


class QueuePage(Page):
    results: list[QueueName]


class SetsUp(BasePermission):
    """GET: whoever has a role, or sets queues up. POST: administrators."""

    message = "Only an administrator may set up queues."

    def has_permission(self, request: Request, view: Any) -> bool:
        if is_admin(request.user):
            view.acting_role = ADMIN
            return True
        return HasRole().has_permission(request, view)


class Queues(ApiView):
    """The queues that there are, by name; and the place to add one."""

    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("List queues", QueuePage)
    def get(self, request: Request) -> Response:
        Query(request)
        rows = [QueueName.of(queue, is_genuine=queue.is_genuine) for queue in listed.all_of_them()]
        return Response({"results": rows, "next": None})

    @described("Add a queue", QueueRow, status=201, body=QueueBody)
    def post(self, request: Request) -> Response:
        queue = acts.create(read_body(request, QueueBody), by=self.by)
        return Response(row_of(queue), status=201)


class OneQueue(ApiView):
    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("A queue", QueueRow)
    def get(self, request: Request, queue: str) -> Response:
        Query(request)
        return Response(row_of(acts.find(queue)))

    @described("Change a queue", QueueRow, body=QueueChangeBody, name="queues_update")
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        return Response(row_of(acts.change(queue, read_body(request, QueueChangeBody), by=self.by)))


class QueueClose(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Close a queue", QueueRow, body=SteerBody)
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        why = read_body(request, SteerBody).justification
        return Response(row_of(acts.close(queue, by=self.by, justification=why)))


class QueueOpen(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Open a queue again", QueueRow, body=SteerBody)
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        why = read_body(request, SteerBody).justification
        return Response(row_of(acts.open_again(queue, by=self.by, justification=why)))


class QueueRemove(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Remove a queue", QueueRow, body=SteerBody)
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        why = read_body(request, SteerBody).justification
        return Response(row_of(acts.remove(queue, by=self.by, justification=why)))


class QueueLimit(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Set a limit", QueueRow, body=LimitBody)
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        return Response(row_of(acts.limit(queue, read_body(request, LimitBody), by=self.by)))


class QueueLift(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Lift a limit", QueueRow, body=LiftBody)
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        return Response(row_of(acts.lift(queue, read_body(request, LiftBody), by=self.by)))


class QueueProof(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Set what a yes has to show", QueueRow, body=ProofBody)
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        return Response(row_of(acts.prove(queue, read_body(request, ProofBody), by=self.by)))


class QueueReasons(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Set the reasons that are offered", QueueRow, body=ReasonsBody)
    def post(self, request: Request, queue: str) -> Response:
        acts.find(queue)
        return Response(row_of(acts.offer(queue, read_body(request, ReasonsBody), by=self.by)))


class Deputies(ApiView):
    """Naming a deputy: one's own, or as an administrator anybody's."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("Name a deputy", DeputyRow, status=201, body=DeputyBody)
    def post(self, request: Request) -> Response:
        return Response(deputy_row(deputies.appoint(read_body(request, DeputyBody), by=self.by)), status=201)


class DeputyRevoke(ApiView):
    """Ending a deputy's time: its principal, the deputy, or an administrator may."""

    permission_classes = [SetsUp]
    roles = {"POST": EVERY}

    @described("End a deputy's time", DeputyRow, body=SteerBody)
    def post(self, request: Request, deputy_id: int) -> Response:
        deputies.find(deputy_id)
        why = read_body(request, SteerBody).justification
        return Response(deputy_row(deputies.revoke(deputy_id, by=self.by, justification=why)))


def row_of(queue: Queue) -> QueueRow:
    """A queue as it is now."""
    shown = listed.one(queue, Tally(roles(None)))
    limits = [shown.role_limit] if shown.role_limit is not None else []
    limits += [row for _, _, row in shown.own_limits]
    return QueueRow.of(
        queue,
        open=shown.open,
        is_genuine=shown.is_genuine,
        proof=_proof_row(shown),
        reasons=shown.reasons,
        grants=_bounds_row(queue),
        members=[
            MemberRow.of(None, name=m.name, person=m.person, limit=m.most, limit_of=m.whose) for m in shown.members
        ],
        limits=[
            LimitRow.of(
                row,
                name=shown.names.get(row.person or 0, ""),
                is_genuine=row.is_genuine,
                most=None if row.most is None else format(row.most, "f"),
            )
            for row in limits
        ],
        deputies=[
            DeputyRow.of(d.row, deputy=d.name, principal=d.principal, queue=d.queue, is_genuine=d.is_genuine)
            for d in shown.deputies
        ],
    )


def _proof_row(shown: listed.Shown) -> ProofRow | None:
    asked = shown.threshold
    if asked is None:
        return None
    return ProofRow.of(
        None,
        minutes=asked.proof.within // 60,
        second_factor=asked.proof.factor,
        type_amount=asked.proof.amount,
        type_target=asked.proof.target,
        above=None if asked.above is None else format(asked.above, "f"),
        currency=asked.currency,
        risk=asked.risk,
    )


def _bounds_row(queue: Queue) -> BoundsRow | None:
    bounds = bounds_in(queue.again) if queue.is_genuine else None
    if bounds is None:
        return None
    most = None if bounds.most is None else format(bounds.most, "f")
    return BoundsRow.of(None, times=bounds.times, days=bounds.days, sum=most)


def deputy_row(row: Deputy) -> DeputyRow:
    """One of them, with the names that the accounts have now."""
    names = dict(User.objects.filter(pk__in=[row.principal, row.deputy]).values_list("pk", "username"))
    return DeputyRow.of(
        row,
        deputy=names.get(row.deputy, ""),
        principal=names.get(row.principal, ""),
        queue=row.queue.name if row.queue else "",
        is_genuine=row.is_genuine,
    )
