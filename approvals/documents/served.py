"""Serve documents: originals as inert downloads, pages as pictures that were drawn here."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.utils.http import content_disposition_header

from approvals.documents.drawn import Facts, facts_of, page_of
from approvals.documents.shown import NO_LIST, NotShown
from approvals.documents.stored import contents_of, unsound
from ledger.errors import NotFound
from ledger.web.renderers import HEADERS
from runs.engine.canonical import parsed
from runs.engine.gating.documents import Named, named_in


def document_in(approval_id: UUID, plan: bytes, n: int) -> Named:
    """Return the `n`-th document of a plan, from 1. Raises NotFound, NotShown."""
    try:
        listed = named_in(parsed(plan))
    except ValueError:
        raise NotShown(NO_LIST) from None
    if not 1 <= n <= len(listed):
        raise NotFound("document", f"{n} of approval {approval_id}")
    return listed[n - 1]


def original(named: Named) -> HttpResponse:
    """Return the original as a download. Raises NotShown if the bytes don't match."""
    content = _content(named)
    if content is None or unsound(named, content):
        raise NotShown(unsound(named, content), named.name)
    kind = f"{named.media_type}; charset=utf-8" if named.is_text else named.media_type
    response = HttpResponse(content, content_type=kind, headers=HEADERS)
    response["Content-Disposition"] = content_disposition_header(True, named.name) or "attachment"
    return response


def facts(named: Named) -> Facts:
    """Return page sizes, or the problem that keeps it from being shown; texts have no pages. Raises Busy."""
    if not named.is_text:
        return facts_of(named, lambda: _content(named))
    return Facts(problem=unsound(named, _content(named)))


def picture(named: Named, page: int) -> HttpResponse:
    """Return a page as PNG, uncached by browsers. Raises NotFound, NotShown, Busy."""
    told = facts(named)
    if told.problem:
        raise NotShown(told.problem, named.name)
    drawn = page_of(named, page, lambda: _content(named)) if 1 <= page <= len(told.pages) else None
    if drawn is None:
        if 1 <= page <= len(told.pages):
            raise NotShown(facts(named).problem or f"its page {page} can't be drawn", named.name)
        raise NotFound("page", f"{page} of {named.name}")
    return HttpResponse(drawn, content_type="image/png", headers=HEADERS)


def _content(named: Named) -> bytes | None:
    return contents_of([named]).get(named.digest)
