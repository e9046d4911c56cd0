"""Serve documents: originals as downloads that browsers don't open, pages as pictures that were rendered here."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils.http import content_disposition_header

from approvals.guards import UNREADABLE_LIST, NotShown
from approvals.queues.sight import read_one
from durableagents.contrib.documents.rendering import Facts, facts_of, page_of
from durableagents.contrib.documents.storage import mismatch, read_contents
from ledger.errors import NotFound
from ledger.web.renderers import HEADERS
from ledger.web.roles import roles
from runs.engine.canonical import parsed
from runs.engine.gating.documents import Named, named_in


def document_of(approval_id: UUID, n: int, user: Any) -> Named:
    """Return an approval's `n`-th document, counted from 1, if the user may read it.

    Raises NotFound, PayloadsHidden, NotShown.
    """
    approval = read_one(approval_id, roles(user))
    try:
        documents = named_in(parsed(bytes(approval.plan)))
    except ValueError:
        raise NotShown(UNREADABLE_LIST) from None
    if not 1 <= n <= len(documents):
        raise NotFound("document", f"{n} of approval {approval_id}")
    return documents[n - 1]


def original_response(document: Named) -> HttpResponse:
    """Return the original as a download. Raises NotShown if the stored bytes aren't those of the document."""
    content = _content(document)
    if content is None or mismatch(document, content):
        raise NotShown(mismatch(document, content), document.name)
    kind = f"{document.media_type}; charset=utf-8" if document.is_text else document.media_type
    response = HttpResponse(content, content_type=kind, headers=HEADERS)
    response["Content-Disposition"] = content_disposition_header(True, document.name) or "attachment"
    return response


def read_facts(document: Named) -> Facts:
    """Return the page sizes, or the problem that prevents showing the document; texts have no pages. Raises Busy."""
    if not document.is_text:
        return facts_of(document, lambda: _content(document))
    return Facts(problem=mismatch(document, _content(document)))


def page_response(document: Named, page: int) -> HttpResponse:
    """Return a page as PNG, which browsers don't cache. Raises NotFound, NotShown, Busy."""
    facts = read_facts(document)
    if facts.problem:
        raise NotShown(facts.problem, document.name)
    if not 1 <= page <= len(facts.pages):
        raise NotFound("page", f"{page} of {document.name}")
    picture = page_of(document, page, lambda: _content(document))
    if picture is None:
        raise NotShown(read_facts(document).problem or f"its page {page} can't be drawn", document.name)
    return HttpResponse(picture, content_type="image/png", headers=HEADERS)


def _content(document: Named) -> bytes | None:
    return read_contents([document]).get(document.digest)
