"""Documents of approvals in the API."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.documents.serving import document_of, original_response, page_response, read_facts
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.shapes import Shape
from runs.engine.gating.documents import MEDIA_TYPES


class PageRow(Shape):
    n: int = Field(description="Number of the page, from 1.")
    width: int = Field(description="In pixels.")
    height: int = Field(description="In pixels.")
    url: str = Field(description="Address of the image.")


class PagesRow(Shape):
    """Page images of a document. A text document has none: read its bytes."""

    problem: str = Field(
        description="Why the document can't be shown, so that the plan can't be approved; empty if it can be shown."
    )
    note: str = Field(description="Content of the file that the pages don't show.")
    pages: list[PageRow] = Field(description="Pages in order.")


class Original(ApiView):
    """The bytes of a document."""

    roles = READ

    @described("Download a document", OpenApiTypes.BINARY, kinds=MEDIA_TYPES)
    def get(self, request: Request, approval_id: UUID, n: int) -> HttpResponse:
        Query(request)
        return original_response(document_of(approval_id, n, request.user))


class Pages(ApiView):
    """Pages of a document, as approvers see it."""

    roles = READ

    @described("List a document's pages", PagesRow, name="approvals_documents_pages_list")
    def get(self, request: Request, approval_id: UUID, n: int) -> Response:
        Query(request)
        facts = read_facts(document_of(approval_id, n, request.user))
        at = f"/api/v1/approvals/{approval_id}/documents/{n}/pages"
        pages = [
            PageRow.of(None, n=page, width=width, height=height, url=f"{at}/{page}")
            for page, (width, height) in enumerate(facts.pages, 1)
        ]
        return Response(PagesRow.of(None, problem=facts.problem, note=facts.note, pages=pages))


class Picture(ApiView):
    """One page of a document, as an image."""

    roles = READ

    @described("Get a page image", OpenApiTypes.BINARY, kinds=["image/png"])
    def get(self, request: Request, approval_id: UUID, n: int, page: int) -> HttpResponse:
        Query(request)
        return page_response(document_of(approval_id, n, request.user), page)
