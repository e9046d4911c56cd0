"""Set, list, stage and lift halts."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.halts import services
from durableagents.contrib.halts.queries import HaltRow, get_halt, list_halts
from durableagents.contrib.halts.services import HaltBody, LiftBody, StageBody
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import Rows
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Page


class HaltPage(Page):
    results: Rows[HaltRow]


class Halts(ApiView):
    """Halts, newest first."""

    roles = {**READ, "POST": (OPERATOR,)}

    @described("List halts", HaltPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = list_halts(limit=query.limit + 1, before=after or None)
        return query.page(found, lambda one: {"after": str(one[0])}, lambda one: one[1])

    @described("Halt a scope", HaltRow, status=201, body=HaltBody)
    def post(self, request: Request) -> Response:
        """Halt a scope: nothing starts in it until the halt is lifted."""
        halt = services.begin(read_body(request, HaltBody), by=self.by)
        return Response(get_halt(halt.halt), status=201)


class OneHalt(ApiView):
    """One halt."""

    roles = READ

    @described("Get a halt", HaltRow)
    def get(self, request: Request, halt: UUID) -> Response:
        Query(request)
        return Response(get_halt(halt))


class HaltStage(ApiView):
    """Lift a halt for some runs, or apply it to them again."""

    roles = {"POST": (OPERATOR,)}

    @described("Lift a halt in stages", HaltRow, body=StageBody)
    def post(self, request: Request, halt: UUID) -> Response:
        services.find(halt)
        services.stage(halt, read_body(request, StageBody), by=self.by)
        return Response(get_halt(halt))


class HaltLift(ApiView):
    """Lift a halt completely."""

    roles = {"POST": (OPERATOR,)}

    @described("Lift a halt", HaltRow, body=LiftBody)
    def post(self, request: Request, halt: UUID) -> Response:
        services.find(halt)
        services.lift(halt, read_body(request, LiftBody), by=self.by)
        return Response(get_halt(halt))
