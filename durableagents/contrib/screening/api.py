"""Lists content of a run that hooks withheld."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import events as e
from ledger.models import Event
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.fields import Attempt, Rows, Seq
from ledger.web.shapes import Page, Shape
from runs.services import lifecycle


class WithheldRow(Shape):
    """One verdict of a hook: source and receiver of the withheld content, but not the content."""

    seq: Seq
    at: datetime = Field(description="Time of the verdict.")
    slot: str | None = Field(description="Step that it belongs to; null if none.")
    attempt: Attempt
    verdict: Literal["refused", "replaced"] = Field(
        description="refused (the step failed) or replaced (other content replaced it)."
    )
    hook: str = Field(description="Name of the screening hook.")
    version: str = Field(description="Version of the hook.")
    source: str = Field(description="Origin of the content.")
    to: str = Field(description="Intended receiver of the content.")
    place: str = Field(description="Part of the content that was withheld.")
    size: int = Field(description="Number of characters withheld.")
    digest: str = Field(description="Keyed digest of the content.")
    reason: str = Field(description="Reason given by the hook.")
    is_restored: bool = Field(description="Whether the content was read from the journal instead of just received.")


class WithheldPage(Page):
    results: Rows[WithheldRow]


class Withheld(ApiView):
    """All verdicts that withheld content, in journal order."""

    roles = READ

    @described("List withheld content", WithheldPage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**53)
        rows = Event.objects.filter(run_id=run_id, seq__gt=after, kind=e.ContentWithheld.KIND).order_by("seq")
        return query.page(list(rows[: query.limit + 1]), lambda row: {"after": str(row.seq)}, _row)


def _row(row: Event) -> WithheldRow:
    event = e.decode(row.clear)
    assert isinstance(event, e.ContentWithheld)
    fields = {name: getattr(event, name) for name in WithheldRow.model_fields if name not in ("seq", "at")}
    return WithheldRow(seq=row.seq, at=row.at, **fields)
