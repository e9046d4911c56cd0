"""A question's documents over HTTP: their bytes, and the pictures that whoever decides is shown of them."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.schemas import PageRow, PagesRow
from approvals.cases.documents import asked_with
from approvals.documents import served
from ledger.web.api_base import READ, ApiView, Query, described
from runs.engine.gate.documents import MEDIA_TYPES


class Original(ApiView):
    """One document, byte for byte."""

    roles = READ

    @described("A document's bytes", OpenApiTypes.BINARY, kinds=MEDIA_TYPES)
    def get(self, request: Request, approval_id: UUID, n: int) -> HttpResponse:
        Query(request)
        return served.original(asked_with(approval_id, n, request.user))


class Pages(ApiView):
    """How one looks."""

    roles = READ

    @described("A document's pages", PagesRow, name="approvals_documents_pages_list")
    def get(self, request: Request, approval_id: UUID, n: int) -> Response:
        Query(request)
        told = served.facts(asked_with(approval_id, n, request.user))
        at = f"/api/v1/approvals/{approval_id}/documents/{n}/pages"
        pages = [
            PageRow.of(None, n=page, width=width, height=height, url=f"{at}/{page}")
            for page, (width, height) in enumerate(told.pages, 1)
        ]
        return Response(PagesRow.of(None, problem=told.problem, note=told.note, pages=pages))


class Picture(ApiView):
    """One page of one, as a picture."""

    roles = READ

    @described("A page of a document", OpenApiTypes.BINARY, kinds=["image/png"])
    def get(self, request: Request, approval_id: UUID, n: int, page: int) -> HttpResponse:
        Query(request)
        return served.picture(asked_with(approval_id, n, request.user), page)
