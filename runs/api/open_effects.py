"""Calls without a known outcome, over all runs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.spans import span_id
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.cursors import placed
from ledger.web.fields import Attempt, ReplayClass, Rows, RunId, Slot, ToolName
from ledger.web.shapes import Page, Shape
from runs.queries.open_effects import STATUSES, Filters, OpenEffect, Status, open_effects


class OpenEffectRow(Shape):
    """A call that was or may have been sent, and whose outcome is not known."""

    run: RunId
    agent: str = Field(description="Agent and version of the run.")
    slot: Slot
    attempt: Attempt
    tool: ToolName
    replay_class: ReplayClass
    status: Status = Field(
        description="pending: being sent; accepted: a callback is due; unknown: a person settles it."
    )
    sent_at: datetime = Field(description="Time of the intent, before the call was sent.")
    wait: UUID | None = Field(description="Open wait for its outcome; if it is unknown, to settle under `reconcile`.")
    span_id: str = Field(description="Span of the call in the run's trace, 16 hex digits, if the run is traced.")


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
        return query.page(rows, lambda row: {"cursor": placed(row.sent_at, row.id)}, _row)


def _row(effect: OpenEffect) -> OpenEffectRow:
    return OpenEffectRow.of(effect, span_id=span_id(str(effect.run), effect.slot, effect.attempt, "call"))
