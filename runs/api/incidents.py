"""API of recoveries: all of them for operators and auditors, one run's for those who may read the run."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.roles import AUDITOR, OPERATOR
from runs.api.schemas import IncidentPage
from runs.fleet import incidents
from runs.models import Incident
from runs.services import lifecycle


class Incidents(ApiView):
    """Recoveries of all runs, newest first."""

    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("List recoveries", IncidentPage, query=("run", "host", "cause", "before", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "run", "host", "cause", "before")
        rows = Incident.objects.all()
        if run := query.uuid("run"):
            rows = rows.filter(run_id=run)
        if host := query.text("host"):
            rows = rows.filter(host=host)
        if cause := query.choice("cause", Incident.Cause.values):
            rows = rows.filter(cause=cause)
        return _page(query, rows)


class RunIncidents(ApiView):
    """Recoveries of one run, newest first."""

    roles = READ

    @described("List a run's recoveries", IncidentPage, query=("before", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "before")
        lifecycle.find(run_id)
        return _page(query, Incident.objects.filter(run_id=run_id))


def _page(query: Query, rows: QuerySet[Incident]) -> Response:
    before = query.integer("before", default=2**63 - 1, lowest=1, highest=2**63 - 1)
    page = list(rows.filter(id__lt=before).order_by("-id")[: query.limit + 1])
    described = {row.id: row for row in incidents.described(page[: query.limit])}
    return query.page(page, lambda row: {"before": str(row.id)}, lambda row: described[row.id])
