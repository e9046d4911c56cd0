"""Over HTTP: what hooks kept back of a run's content."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from ledger import events as e
from ledger.models import Event
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.shapes import Page, Shape
from runs.services import lifecycle


class WithheldRow(Shape):
    """One screening verdict: which hook withheld what, between which places. Never the content."""

    seq: int
    at: datetime
    slot: str | None
    attempt: int
    verdict: Literal["refused", "replaced"]
    hook: str
    version: str
    source: str
    to: str
    place: str
    size: int
    digest: str
    reason: str
    is_restored: bool


class WithheldPage(Page):
    results: list[WithheldRow]


class Withheld(ApiView):
    """All screening verdicts that withheld content, in journal order."""

    roles = READ

    @described("List withheld content", WithheldPage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**53)
        rows = Event.objects.filter(run_id=run_id, seq__gt=after, kind=e.ContentWithheld.KIND).order_by("seq")
        return query.page(list(rows[: query.limit + 1]), lambda row: {"after": str(row.seq)}, _row)


def _row(row: Event) -> WithheldRow:
    told = e.decode(row.clear)
    assert isinstance(told, e.ContentWithheld)
    shown = {name: getattr(told, name) for name in WithheldRow.model_fields if name not in ("seq", "at")}
    return WithheldRow(seq=row.seq, at=row.at, **shown)
