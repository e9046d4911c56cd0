"""List and set limits and circuit breakers, and set a run's priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Changed, Query, described, etag_of, read_body
from ledger.web.fields import Rows
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Page, Shape
from runs.api.present import one as run_row
from runs.api.schemas import RunRow
from runs.engine.limits import LONGEST_KEY
from runs.models import Limit
from runs.queries.limits import Standing, standing, standing_of
from runs.services import lifecycle
from runs.services.limits import acts
from runs.services.limits.acts import KeyBody, LimitBody, PriorityBody


class RuleRow(Shape):
    """Limits for a key; null: unlimited."""

    per_minute: int | None = Field(description="Calls per minute.")
    burst: int | None = Field(description="Calls that may be made at once before `per_minute` applies.")
    at_once: int | None = Field(
        description="Calls in progress at the same time; for an agent or a tag: runs driven at the same time."
    )
    breaker: int | None = Field(
        description="Percentage of failed attempts that opens the circuit breaker; null: no breaker."
    )
    rest: int | None = Field(description="Seconds that the breaker stays open before one attempt tests it; null: 30.")
    weight: int | None = Field(description="Share of worker slots relative to others; null: 1.")


class LimitRow(Shape):
    """A limit key: the rule in force and its current state."""

    key: str = Field(description="Key of the limit, such as tool:charge.")
    is_genuine: bool = Field(description="False: changed outside the application, so calls under it are not sent.")
    rule: RuleRow = Field(description="Limits in force.")
    source: str = Field(description="Source of the rule: a person, `installation`, `tool`; empty: none, or a pattern.")
    set_at: datetime | None = Field(description="Time of the last change by a person.")
    breaker: Literal["closed", "open"] = Field(description="State of the circuit breaker.")
    is_by_hand: bool = Field(description="Whether a person opened the breaker.")
    opened_at: datetime | None = Field(description="Time when the breaker opened; null: it is closed.")
    rest_until: datetime | None = Field(
        description="After this time single attempts test whether the other side has recovered."
    )
    held_until: datetime | None = Field(description="Time until which the other side asked not to be called.")
    served: int | None = Field(description="Attempts in the last 30 to 60 seconds, if a breaker counts them.")
    failed: int | None = Field(description="Failed attempts in that period.")
    last_error: str = Field(description="Last error that the breaker counted; empty: none.")
    last_error_at: datetime | None = Field(description="Time of that error; null: none.")
    under_way: int | None = Field(
        description="Null, like any count here, if it would include runs that you may not see."
    )
    driven: int | None = Field(description="For an agent or a tag: its runs that workers are executing now.")
    waiting: int | None = Field(description="Attempts that wait for a permit, in place or on a timer.")
    runs: list[UUID] = Field(description="Some of the runs that wait on a timer, earliest first.")
    etag: str = Field(description="Of the rule and the breaker, for the header `If-Match` of a change.")


class LimitPage(Page):
    results: Rows[LimitRow]


_AFTER = OpenApiParameter("after", str, "query", description="Only keys after this one; follow `next`.")


class _OfKey(ApiView):
    body: ClassVar[type[KeyBody]] = KeyBody

    def current(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        found = standing_of(read_body(request, self.body).key)
        if found is None:
            raise Changed
        return _versioned(found)


class Limits(_OfKey):
    """All limits that are set or in use, by key."""

    body = LimitBody
    roles = {**READ, "POST": (OPERATOR,)}

    @described("List limits", LimitPage, query=(_AFTER, "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        rows = standing(limit=query.limit + 1, beyond=(query.text("after") or "")[:LONGEST_KEY])
        return query.page(rows, lambda row: {"after": row.key}, row_of)

    @described("Set a limit", LimitRow, body=LimitBody, headers=("If-Match",))
    def post(self, request: Request) -> Response:
        """Set all limits of one key."""
        body = read_body(request, LimitBody)
        acts.set_limit(body.key, body.rule, by=self.by, justification=body.justification)
        return Response(_one(body.key))


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
            "open": "Open a circuit breaker by hand: nothing is sent until somebody closes it.",
            "close": "Close a circuit breaker by hand.",
        },
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, KeyBody)
        ACTS[self.action](body.key, by=self.by, justification=body.justification)
        return Response(_one(body.key))


ACTS: Mapping[str, Callable[..., Limit]] = {
    "reset": acts.reset_limit,
    "open": acts.open_breaker,
    "close": acts.close_breaker,
}


class RunPriority(ApiView):
    """Set a run's priority."""

    roles = {"POST": (OPERATOR,)}

    @described("Set a run's priority", RunRow, body=PriorityBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        body = read_body(request, PriorityBody)
        acts.set_priority(run_id, body.priority, by=self.by, justification=body.justification)
        return Response(run_row(run_id))


def _one(key: str) -> LimitRow:
    found = standing_of(key)
    assert found is not None, "it was just written"
    return row_of(found)


def row_of(found: Standing) -> LimitRow:
    more = {"rule": RuleRow.of(found.rule), "set_at": found.given_at, "runs": list(found.runs)}
    return LimitRow.of(found, **more, etag=etag_of(_versioned(found)))


def _versioned(found: Standing) -> dict[str, Any]:
    """Return what people change, without the counts."""
    values = found.key, found.source, found.given_at, found.breaker, found.is_by_hand
    return {"rule": RuleRow.of(found.rule), "values": values}
