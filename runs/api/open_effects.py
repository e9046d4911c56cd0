"""API of calls without a known outcome, across all runs."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.cursors import placed
from ledger.web.fields import Rows
from ledger.web.shapes import Page
from runs.queries.open_effects import STATUSES, Filters, OpenEffectRow, open_effects


class OpenEffectPage(Page):
    """Calls without a known outcome, oldest first."""

    results: Rows[OpenEffectRow]


class OpenEffects(ApiView):
    """Calls without a known outcome, in runs that have not ended, oldest first."""

    roles = READ

    @described(
        "List calls without a known outcome",
        OpenEffectPage,
        query=(
            OpenApiParameter("status", str, enum=list(STATUSES), description="Only calls with this status."),
            OpenApiParameter("tool", str, description="Only calls of this tool."),
            "agent",
            "cursor",
            "limit",
        ),
    )
    def get(self, request: Request) -> Response:
        query = Query(request, "status", "tool", "agent", "cursor")
        filters = Filters(query.text("tool") or "", query.text("agent") or "", query.choice("status", STATUSES) or "")
        rows = open_effects(filters, limit=query.limit + 1, beyond=query.placed())
        return query.page(rows, lambda row: {"cursor": placed(row.sent_at, row.id)}, lambda row: row)
