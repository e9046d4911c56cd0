"""Links to what a row names by its id. A row that was damaged may name what nothing can be called: that is no link."""

from __future__ import annotations

from html import escape

from django.urls import NoReverseMatch, reverse


def to_run(run_id: str, html: str) -> str:
    return _to("run", run_id, html)


def to_approval(approval_id: str, html: str) -> str:
    return _to("approval", approval_id, html)


def to_pools(html: str) -> str:
    return f'<a href="{escape(reverse("pools"))}">{html}</a>'


def _to(page: str, name: str, html: str) -> str:
    try:
        return f'<a href="{escape(reverse(page, args=[name]))}">{html}</a>'
    except NoReverseMatch:
        return html
