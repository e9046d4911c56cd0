"""Setting a halt, looking at it, lifting it in stages."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import OPERATOR
from ledger.web.seeing.viewers import viewer
from runs.api.halts.shapes import HaltPage, HaltRow, HearingRow, InFlightRow, UnknownName
from runs.models import Halt
from runs.queries.halts.standing import Holding, halts, standing
from runs.services.halts import acts
from runs.services.halts.bodies import HaltBody, LiftBody, StageBody

_SETTERS = (OPERATOR,)


class Halts(ApiView):
    """Halts, newest first; a POST sets one."""

    roles = {**READ, "POST": _SETTERS}

    @described("List halts", HaltPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = halts(limit=query.limit + 1, beyond=after or None)
        return query.page(found, lambda one: {"after": str(one.began.pk)}, halt_row)

    @described("Halt a scope", HaltRow, status=201, body=HaltBody)
    def post(self, request: Request) -> Response:
        halt = acts.begin(read_body(request, HaltBody), by=self.by)
        return Response(_one(halt.halt), status=201)


class OneHalt(ApiView):
    roles = READ

    @described("A halt", HaltRow)
    def get(self, request: Request, halt: UUID) -> Response:
        Query(request)
        return Response(_one(halt))


class HaltStage(ApiView):
    """Lift it for some, or take that back."""

    roles = {"POST": _SETTERS}

    @described("Lift a halt in stages", HaltRow, body=StageBody)
    def post(self, request: Request, halt: UUID) -> Response:
        acts.find(halt)
        acts.stage(halt, read_body(request, StageBody), by=self.by)
        return Response(_one(halt))


class HaltLift(ApiView):
    roles = {"POST": _SETTERS}

    @described("Lift a halt", HaltRow, body=LiftBody)
    def post(self, request: Request, halt: UUID) -> Response:
        acts.find(halt)
        acts.lift(halt, read_body(request, LiftBody), by=self.by)
        return Response(_one(halt))


def _one(halt: UUID) -> HaltRow:
    found = standing([halt])
    if not found:
        raise NotFound("halt", halt)
    return halt_row(found[0])


def halt_row(one: Holding) -> HaltRow:
    """A halt of a list."""
    sees_all = viewer().sees_all
    return HaltRow.of(
        one.row,
        id=one.row.halt,
        tags=one.tags,
        refuse=one.row.refuses,
        state=one.state,
        is_staged=one.is_staged,
        share=one.share,
        revision=one.row.n,
        by=one.began.by,
        why=one.began.why,
        since=one.began.at,
        changed_by=one.row.by,
        changed_at=one.row.at,
        unconfirmed=[HearingRow.of(each) for each in one.unconfirmed],
        in_flight=[InFlightRow.of(each) for each in one.in_flight] if sees_all else None,
        unknown=[
            UnknownName.of(each, like=list(each.like))
            for each in one.unknown
            if sees_all or each.scope != Halt.Scope.TAG
        ],
        held=one.held if sees_all else None,
        genuine=one.is_genuine,
    )
