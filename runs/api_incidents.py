"""Recoveries over HTTP: all of them for who runs the fleet, one run's for everybody who may read the run."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import AUDITOR, OPERATOR
from ledger.rest import READ, ApiView, Query, described
from runs import incidents
from runs.api import one_exists
from runs.models import Incident
from runs.shapes import IncidentPage


class Incidents(ApiView):
    """Newest first."""

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
    """One run's, newest first."""

    roles = READ

    @described("List a run's recoveries", IncidentPage, query=("before", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "before")
        one_exists(run_id)
        return _page(query, Incident.objects.filter(run_id=run_id))


def _page(query: Query, rows: QuerySet[Incident]) -> Response:
    before = query.integer("before", default=2**63 - 1, lowest=1, highest=2**63 - 1)
    found = list(rows.filter(id__lt=before).order_by("-id")[: query.limit + 1])
    told = {row["id"]: row for row in incidents.told(found[: query.limit])}
    return query.page(found, lambda row: {"before": str(row.id)}, lambda row: told[row.id])
