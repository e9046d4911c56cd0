"""`GET /api/v1/runs/{id}/evidence`: the bundle of a run."""

from __future__ import annotations

from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from durableagents.contrib.evidence.leaving_out import Choice, paths_in
from durableagents.contrib.evidence.serving import ROLES, bundle_response
from ledger.web.api_base import ApiView, Query, described

_REDACT = OpenApiParameter("redact", str, description="Fields to leave out, comma-separated: `iban,customer.name`.")
_PAYLOADS = OpenApiParameter("payloads", str, description="`none` leaves out all payloads; default: `full`.")


class RunEvidence(ApiView):
    """A ZIP file with the run's journal, decisions, overrides, seals and a program that verifies it.

    Each export is recorded. Needs the right to read the run's payloads.
    """

    roles = {"GET": ROLES}
    http_method_names = ["get"]

    @described(
        "Export a run's evidence bundle", OpenApiTypes.BINARY, query=(_REDACT, _PAYLOADS), kinds=("application/zip",)
    )
    def get(self, request: Request, run_id: UUID) -> HttpResponseBase:
        query = Query(request, "redact", "payloads")
        paths = paths_in(query.text("redact") or "") if "redact" in request.query_params else []
        is_without = query.choice("payloads", ("full", "none")) == "none"
        return bundle_response(run_id, Choice(paths, is_without), by=self.by)
