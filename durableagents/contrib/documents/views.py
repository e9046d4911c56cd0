"""Documents of approvals in the console."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from durableagents.contrib.documents.serving import document_of, original_response, page_response
from ledger.web.page_base import Page


class Original(Page):
    """One document, as the agent gave it."""

    section = "inbox"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, approval_id: UUID, n: int) -> HttpResponse:
        return original_response(document_of(approval_id, n, request.user))


class Picture(Page):
    """One page of a document."""

    section = "inbox"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, approval_id: UUID, n: int, page: int) -> HttpResponse:
        return page_response(document_of(approval_id, n, request.user), page)
