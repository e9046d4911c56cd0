"""List and set limits and circuit breakers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.limits import services
from durableagents.contrib.limits.models import Limit
from durableagents.contrib.limits.queries import LimitRow, get_limit, list_limits
from durableagents.contrib.limits.services import KeyBody, LimitBody
from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Changed, Query, described, read_body
from ledger.web.fields import Rows
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Page
from runs.engine.limits import MAX_KEY_LENGTH


class LimitPage(Page):
    results: Rows[LimitRow]


_AFTER = OpenApiParameter("after", str, "query", description="Only keys after this one, for paging: follow `next`.")


class _OfKey(ApiView):
    body: ClassVar[type[KeyBody]] = KeyBody

    def current(self, request: Request, *args: Any, **kwargs: Any) -> LimitRow:
        try:
            return get_limit(read_body(request, self.body).key)
        except NotFound:
            raise Changed from None

    def _etag(self, data: LimitRow) -> str:
        return data.etag


class Limits(_OfKey):
    """All limits that are set or in use, by key."""

    body = LimitBody
    roles = {**READ, "POST": (OPERATOR,)}

    @described("List limits", LimitPage, query=(_AFTER, "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        rows = list_limits(limit=query.limit + 1, after=(query.text("after") or "")[:MAX_KEY_LENGTH])
        return query.page(rows, lambda row: {"after": row.key}, lambda row: row)

    @described("Set a limit", LimitRow, body=LimitBody, headers=("If-Match",))
    def post(self, request: Request) -> Response:
        """Set all limits of one key."""
        body = read_body(request, LimitBody)
        services.set_limit(body.key, body.rule, by=self.by, justification=body.justification)
        return Response(get_limit(body.key))


class SteerLimit(_OfKey):
    """Reset a limit to its configured values, or open or close a circuit breaker by hand."""

    roles = {"POST": (OPERATOR,)}
    action: ClassVar[str] = ""

    @described(
        {"reset": "Reset a limit", "open": "Open a circuit breaker", "close": "Close a circuit breaker"},
        LimitRow,
        body=KeyBody,
        headers=("If-Match",),
        about={
            "reset": "Return a limit to its configured values.",
            "open": "Open a circuit breaker by hand: nothing is sent until someone closes it.",
            "close": "Close a circuit breaker by hand.",
        },
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, KeyBody)
        ACTS[self.action](body.key, by=self.by, justification=body.justification)
        return Response(get_limit(body.key))


ACTS: Mapping[str, Callable[..., Limit]] = {
    "reset": services.reset_limit,
    "open": services.open_breaker,
    "close": services.close_breaker,
}
