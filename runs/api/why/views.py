"""Why a run doesn't move, or what does; who must act; and what the caller may do."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.roles import roles
from runs.api.why.shapes import WhyRow, why_row
from runs.queries.why.answer import why
from runs.queries.why.seen import Reader, look_at


class RunWhy(ApiView):
    roles = READ

    @described("Why a run doesn't move, and what may be done", WhyRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        seen = look_at(run_id)
        return Response(why_row(seen, why(seen, Reader(self.by, roles(request.user)))))
