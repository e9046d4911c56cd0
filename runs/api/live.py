"""API of the live output of a run's models."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.fields import Rows
from ledger.web.seeing.payloads import must_read
from runs.api.schemas import Shape
from runs.overheard.reading import listen, live_output_of
from runs.services import lifecycle


class SaidNow(Shape):
    slot: str = Field(description="Step of the model request.")
    text: str = Field(description="Text so far; for a long text, only the end.")
    characters: int = Field(description="Length of the whole text so far.")
    at: datetime = Field(description="Time of the latest piece of text.")


class SaidNowPage(Shape):
    results: Rows[SaidNow]


class Live(ApiView):
    """The text that each model request in progress has produced so far. It is not recorded.

    A request to this URL turns the output on for 30 seconds, starting with the next model request.
    """

    roles = READ

    @described("Get live model output", SaidNowPage)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        lifecycle.find(run_id)
        must_read(run_id)
        listen([run_id])
        return Response({"results": [asdict(one) for one in live_output_of([run_id]).get(run_id, [])]})
