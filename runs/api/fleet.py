"""API to declare a host dead, and to ask a worker to drain."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import ApiView, described, read_body
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Shape
from runs.api.schemas import ProcessRow
from runs.services import fleet
from runs.services.bodies import SteerBody
from runs.services.fleet import DeadBody


class DeadRow(Shape):
    """A host that was declared dead."""

    host: str = Field(description="Name of the host.")
    processes: int = Field(description="Number of processes that this declaration recorded as ended.")


class Dead(ApiView):
    """Declare that nothing runs on a host any more. The host's runs continue on other hosts."""

    roles = {"POST": (OPERATOR,)}

    @described("Declare a host dead", DeadRow, body=DeadBody)
    def post(self, request: Request) -> Response:
        body = read_body(request, DeadBody)
        count = fleet.declare_dead(body.host, by=self.by, justification=body.justification)
        return Response({"host": body.host, "processes": count})


class Drain(ApiView):
    """Ask a worker to release its runs and exit."""

    roles = {"POST": (OPERATOR,)}

    @described("Drain a worker", ProcessRow, body=SteerBody)
    def post(self, request: Request, process_id: UUID) -> Response:
        body = read_body(request, SteerBody)
        return Response(ProcessRow.of(fleet.drain(process_id, by=self.by, justification=body.justification)))
