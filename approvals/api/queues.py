"""Read and set up queues over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from pydantic import Field
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.queue_models import Deputy, Queue
from approvals.queues import acts, listed
from approvals.queues.acts import LiftBody, LimitBody, ProofBody, QueueBody, QueueChangeBody, ReasonsBody
from approvals.queues.who import ADMIN, is_admin
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import ActorName, IsAuthentic, Rows
from ledger.web.roles import HasRole, roles
from ledger.web.shapes import Page, Shape
from ledger.web.tally import Tally
from runs.services.bodies import SteerBody


class LimitRow(Shape):
    """The highest amount that a person or a holder of a role may approve alone."""

    person: int | None = Field(description="Null: the role's limit.")
    name: str = Field(description="User name or role that has the limit.")
    most: str | None = Field(description="Null: unlimited.")
    currency: str = Field(description="Currency of the limit, an ISO 4217 code.")
    set_by: ActorName
    set_at: datetime = Field(description="Time when the limit was set.")
    is_authentic: IsAuthentic


class DeputyRow(Shape):
    """A person who may decide on behalf of someone else."""

    id: int = Field(description="Id of the deputyship.")
    deputy: str = Field(description="User name of the deputy.")
    principal: str = Field(description="User name of the person they stand in for.")
    queue: str = Field(description="Empty: all queues of the principal.")
    starts_at: datetime = Field(description="Start time.")
    ends_at: datetime = Field(description="End time.")
    reason: str = Field(description="Justification.")
    set_by: ActorName
    revoked_at: datetime | None = Field(description="Time of an early end; null if there was none.")
    is_authentic: bool = Field(
        description="False: not recorded by this installation, so the deputy may decide nothing."
    )


class ProofRow(Shape):
    """Proof required to approve at a queue, above an amount or from a risk level; with neither, for every call."""

    minutes: int = Field(description="Maximum age of the person's authentication; 0: no requirement.")
    second_factor: bool = Field(description="Whether a second factor is required; otherwise a password suffices.")
    type_amount: bool = Field(description="Whether the person must type the amount.")
    type_target: bool = Field(description="Whether the person must type the target.")
    above: str | None = Field(description="Amount above which proof is required; null if no amount requires it.")
    currency: str = Field(description="Currency of `above`, an ISO 4217 code.")
    risk: str = Field(
        description="Risk level from which proof is required: low, medium or high; empty if no level requires it."
    )


class BoundsRow(Shape):
    """Limits of standing approvals at a queue."""

    times: int = Field(description="Number of calls that one standing approval may cover.")
    days: int = Field(description="Number of days that one standing approval may last.")
    sum: str | None = Field(
        description="In the queue's currency; null: what the person who gives one may approve in one call."
    )


class QueueName(Shape):
    """A queue in the list."""

    name: str = Field(description="Name of the queue.")
    title: str = Field(description="Title for people.")
    role: str = Field(description="Role whose holders decide there.")
    state: Queue.State = Field(description="open or closed.")
    currency: str = Field(description="Currency of its limits, an ISO 4217 code.")
    needs_amount: bool = Field(description="Whether people with a limit can't approve calls without an amount.")
    is_authentic: IsAuthentic


class QueueRow(QueueName):
    """A queue: who decides there, their limits, and open approvals."""

    open: int = Field(description="Number of open approvals, counted up to 1,000.")
    members: list[listed.MemberRow] = Field(description="People who decide there.")
    limits: list[LimitRow] = Field(description="Limits of people and of the role.")
    deputies: list[DeputyRow] = Field(description="Current and future deputies.")
    proof: ProofRow | None = Field(description="Proof required to approve here; null: none.")
    reasons: list[str] = Field(description="Short reasons to choose from; any other text is accepted too.")
    grants: BoundsRow | None = Field(description="Limits of standing approvals; null: none may be given.")
    set_by: ActorName
    made_at: datetime = Field(description="Time of creation.")
    changed_at: datetime = Field(description="Time of the queue's last change.")


class QueuePage(Page):
    results: Rows[QueueName]


class SetsUp(BasePermission):
    """Allow GET for holders of a role and administrators, POST for administrators."""

    message = "Only an administrator may configure queues."

    def has_permission(self, request: Request, view: Any) -> bool:
        if is_admin(request.user):
            view.acting_role = ADMIN
            return True
        return HasRole().has_permission(request, view)


class Queues(ApiView):
    """Queues by name."""

    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("List queues", QueuePage)
    def get(self, request: Request) -> Response:
        Query(request)
        rows = [QueueName.of(queue, is_authentic=queue.is_authentic) for queue in listed.all_of_them()]
        return Response({"results": rows, "next": None})

    @described("Create a queue", QueueRow, status=201, body=QueueBody)
    def post(self, request: Request) -> Response:
        """Create a queue. Administrators only."""
        queue = acts.create(read_body(request, QueueBody), by=self.by)
        return Response(row_of(queue), status=201)


class OneQueue(ApiView):
    """One queue with its members, limits and deputies."""

    permission_classes = [SetsUp]
    versioned = True
    roles = {**READ, "POST": ()}

    @described("Get a queue", QueueRow)
    def get(self, request: Request, queue: str) -> Response:
        Query(request)
        return Response(row_of(acts.find(queue)))

    @described("Update a queue", QueueRow, body=QueueChangeBody, name="queues_update", headers=("If-Match",))
    def post(self, request: Request, queue: str) -> Response:
        """Change the named settings of a queue."""
        acts.find(queue)
        return Response(row_of(acts.change(queue, read_body(request, QueueChangeBody), by=self.by)))


def _act(summary: str, about: str, body: type[SteerBody], act: Callable[..., Queue]) -> Any:
    """Return a view for one kind of administrator's act on a queue."""

    class QueueAct(ApiView):
        __doc__ = about
        permission_classes = [SetsUp]
        roles = {"POST": ()}

        @described(summary, QueueRow, body=body)
        def post(self, request: Request, queue: str) -> Response:
            acts.find(queue)
            return Response(row_of(act(queue, read_body(request, body), by=self.by)))

    return QueueAct.as_view()


def _with_justification(act: Callable[..., Queue]) -> Callable[..., Queue]:
    return lambda queue, body, *, by: act(queue, by=by, justification=body.justification)


_CLOSED = "Close a queue: until it is opened, nothing is requested or decided there."
_LIMITED = "Set the highest amount that a person, or a holder of the role, may approve alone."
ACTS = {
    "close": _act("Close a queue", _CLOSED, SteerBody, _with_justification(acts.close)),
    "open": _act("Open a queue", "Open a closed queue.", SteerBody, _with_justification(acts.open_again)),
    "remove": _act("Remove a queue", "Remove a queue that nothing uses.", SteerBody, _with_justification(acts.remove)),
    "limit": _act("Set an approval limit", _LIMITED, LimitBody, acts.limit),
    "lift": _act("Remove an approval limit", "Remove an approval limit.", LiftBody, acts.lift),
    "proof": _act("Set required proof", "Set the proof of identity that approving requires.", ProofBody, acts.prove),
    "reasons": _act("Set offered reasons", "Set the reasons offered to approvers.", ReasonsBody, acts.offer),
}


def row_of(queue: Queue) -> QueueRow:
    """Return the row of a queue."""
    queue_page = listed.load_queue(queue, Tally(roles(None)))
    limits = [queue_page.role_limit] if queue_page.role_limit is not None else []
    limits += [row for _, _, row in queue_page.own_limits]
    return QueueRow.of(
        queue,
        open=queue_page.open,
        is_authentic=queue_page.is_authentic,
        proof=_proof_row(queue_page),
        reasons=queue_page.reasons,
        grants=_bounds_row(queue),
        members=list(queue_page.members),
        limits=[
            LimitRow.of(
                row,
                name=queue_page.names.get(row.person or 0, ""),
                is_authentic=row.is_authentic,
                most=None if row.most is None else format(row.most, "f"),
            )
            for row in limits
        ],
        deputies=[
            DeputyRow.of(d.row, deputy=d.name, principal=d.principal, queue=d.queue, is_authentic=d.is_authentic)
            for d in queue_page.deputies
        ],
    )


def _proof_row(queue_page: listed.QueueRow) -> ProofRow | None:
    threshold = queue_page.threshold
    if threshold is None:
        return None
    return ProofRow.of(
        None,
        minutes=threshold.proof.within // 60,
        second_factor=threshold.proof.factor,
        type_amount=threshold.proof.amount,
        type_target=threshold.proof.target,
        above=None if threshold.above is None else format(threshold.above, "f"),
        currency=threshold.currency,
        risk=threshold.risk,
    )


def _bounds_row(queue: Queue) -> BoundsRow | None:
    if not queue.is_authentic or queue.again is None:
        return None
    return BoundsRow.of(None, times=queue.again["times"], days=queue.again["days"], sum=queue.again.get("most"))


def deputy_row(row: Deputy) -> DeputyRow:
    """Return the row of a deputyship, with the current account names."""
    names = dict(User.objects.filter(pk__in=[row.principal, row.deputy]).values_list("pk", "username"))
    return DeputyRow.of(
        row,
        deputy=names.get(row.deputy, ""),
        principal=names.get(row.principal, ""),
        queue=row.queue.name if row.queue else "",
        is_authentic=row.is_authentic,
    )
