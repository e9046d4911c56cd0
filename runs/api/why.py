"""The endpoint that explains a run's status."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.roles import roles
from runs.queries.actions import Reader
from runs.queries.run_facts import read_facts
from runs.queries.why import Why, why


class RunWhy(ApiView):
    """The reasons why a run does not progress, who must act, and which actions the caller may take."""

    roles = READ

    @described("Explain a run's status", Why)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        return Response(why(read_facts(run_id), Reader(self.by, roles(request.user))))
