"""List and decide approvals over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Q
from rest_framework.request import Request
from rest_framework.response import Response

from approvals import services
from approvals.api.present import approval_rows
from approvals.api.schemas import ApprovalPage, ApprovalRow
from approvals.bodies import DecisionBody
from approvals.cases.amending import amend
from approvals.deciding import decide_as_requested
from approvals.models import Approval, ApprovalState
from approvals.queues.sight import is_shown
from ledger.actors import Actor
from ledger.errors import InvalidInput, NotFound
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.cursors import Order, closed
from ledger.web.roles import EVERY, has_case, roles, stand_ins
from ledger.web.seeing.viewers import viewer
from runs import seen
from runs.journal.asked.queues import QUEUES

NEWEST = Order("approvals_approval", "opened_at")


class Approvals(ApiView):
    """Approvals, newest first."""

    roles = READ

    @described("List approvals", ApprovalPage, query=("state", "queue", "run_id", "cursor", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "state", "queue", "run_id", "cursor")
        given = {
            "state": query.choice("state", ApprovalState.values),
            "queue": query.choice("queue", sorted(QUEUES)),
            "run_id": query.uuid("run_id"),
        }
        fit = {name: value for name, value in given.items() if value}
        # One branch of the UNION per state, because the index on a queue's approvals starts with the state.
        arms = [{**fit, "state": state} for state in ApprovalState.values] if set(fit) == {"queue"} else [fit]
        arms = [{**arm, **seen.arm(viewer())} for arm in arms]
        rows = Approval.objects.select_related("run").filter(
            id__in=NEWEST.ids(arms, limit=query.limit + 1, beyond=query.moment())
        )
        approvals = sorted(rows, key=lambda one: (one.opened_at, one.id), reverse=True)
        fields = {row.id: row for row in approval_rows(approvals[: query.limit])}
        return query.page(approvals, lambda a: {"cursor": closed(a.opened_at, a.id)}, lambda a: fields[a.id])


class OneApproval(ApiView):
    """One approval."""

    roles = READ

    @described("Get an approval", ApprovalRow)
    def get(self, request: Request, approval_id: UUID) -> Response:
        Query(request)
        return Response(approval_rows([shown_one(approval_id, request.user)])[0])


class Decide(ApiView):
    """Approve (also with changes), reject, fail the run, or abstain. The permission depends on the approval's queue."""

    roles = {"POST": EVERY}

    @described("Decide an approval", ApprovalRow, body=DecisionBody)
    def post(self, request: Request, approval_id: UUID) -> Response:
        approval = shown_one(approval_id, request.user)
        by = services.actor_for_decision(approval, self.by, roles(request.user))
        body = read_body(request, DecisionBody)
        if body.changes_arguments and body.again is None:
            return Response(approval_rows([_amended(approval_id, body, by)])[0])
        decided = decide_as_requested(approval_id, body, body.again, by)
        return Response(approval_rows([decided])[0])


def _amended(approval_id: UUID, body: DecisionBody, by: Actor) -> Approval:
    """Return the next revision; it is already approved if its author may approve it."""
    if body.verdict != "approve":
        fix = "approve with them, or reject without"
        raise InvalidInput(
            "Only an approval can change the arguments.",
            errors=[{"field": "arguments", "problem": "can only be sent with approve", "fix": fix}],
        )
    return amend(
        approval_id,
        plan_hash=body.plan_hash,
        arguments=body.arguments,
        justification=body.justification,
        by=by,
        stage=body.stage,
        typed=body.typed,
    ).approval


def shown_one(approval_id: UUID, user: Any) -> Approval:
    """Return an approval that the person may see, also as a deputy, delegate or person asked. Raises NotFound."""
    held = roles(user)
    who, places = viewer(), [one.queue for one in stand_ins(held)]
    at = Q(queue__in=places) | Q(escalated_to__overlap=places)
    at |= Q(id=approval_id) if has_case(held, approval_id) else Q()
    fits = Q() if who.sees_all else at | seen.fits(who)  # an empty condition drops out of an OR
    approval = Approval.objects.select_related("run").filter(fits, id=approval_id).first()
    if approval is None or not is_shown(approval, held):
        raise NotFound("approval", approval_id)
    return approval
