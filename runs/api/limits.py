"""Over HTTP: what all workers share, how it stands, what operators say of it; and a run's priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import ClassVar, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described, read_body
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
    """What counts for a key; null: it isn't limited in that way."""

    per_minute: int | None
    burst: int | None
    at_once: int | None
    breaker: int | None
    rest: int | None
    weight: int | None


class LimitRow(Shape):
    """One key: what counts, and how it stands."""

    key: str
    is_genuine: bool = Field(description="false: changed outside the application; nothing goes out under it.")
    rule: RuleRow
    source: str = Field(description="Who says so: a person, `installation`, `tool`; empty: nobody, or a pattern does.")
    set_at: datetime | None = Field(description="When a person last said anything of it.")
    breaker: Literal["closed", "open"]
    is_by_hand: bool
    opened_at: datetime | None
    rest_until: datetime | None = Field(description="From then on one try at a time finds out.")
    held_until: datetime | None = Field(description="Until then the other side asked to be left alone.")
    served: int | None = Field(description="Tries of the last half minute to minute, where a breaker counts them.")
    failed: int | None
    last_error: str
    last_error_at: datetime | None
    under_way: int | None = Field(description="Null, as any number here: it would tell of runs that aren't yours.")
    driven: int | None = Field(description="Of an agent or a tag: its runs that are driven now.")
    waiting: int | None = Field(description="Tries that wait for a permit, in place or by a timer.")
    runs: list[UUID] = Field(description="Some of the runs that wait by a timer, the next one first.")


class LimitPage(Page):
    results: list[LimitRow]


class Limits(ApiView):
    """All that is said or known of limits, by key; a POST says what counts for one."""

    roles = {**READ, "POST": (OPERATOR,)}

    @described("List limits", LimitPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        rows = standing(limit=query.limit + 1, beyond=(query.text("after") or "")[:LONGEST_KEY])
        return query.page(rows, lambda row: {"after": row.key}, row_of)

    @described("Set a limit", LimitRow, body=LimitBody)
    def post(self, request: Request) -> Response:
        body = read_body(request, LimitBody)
        acts.set_limit(body.key, body.rule, by=self.by, justification=body.justification)
        return Response(_one(body.key))


class SteerLimit(ApiView):
    """Reset a limit, or open and close a breaker: `action` comes from the route."""

    roles = {"POST": (OPERATOR,)}
    action: ClassVar[str] = ""

    @described("Reset a limit, open or close a breaker", LimitRow, body=KeyBody)
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
    """How urgent a run is."""

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
    return LimitRow.of(found, rule=RuleRow.of(found.rule), set_at=found.given_at, runs=list(found.runs))
