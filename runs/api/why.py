"""The API's answer to why a run doesn't move, as documented."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.roles import roles
from ledger.web.shapes import Shape
from runs.models import State
from runs.queries.why.answer import Why, why
from runs.queries.why.seen import Cause, Reader, Seen, look_at


class WhoRow(Shape):
    """Who must act before the run moves."""

    kind: Literal["nobody", "system", "outside", "people"] = Field(
        description="nobody: it moves, or never will again; outside: whoever calls back or sends."
    )
    roles: list[str] = Field(description="Of people: those with one of these roles.")
    queue: str = Field(description="The queue that it waits at; empty: at none.")
    name: str = Field(description="What they are asked. Untrusted where an agent wrote it.")
    but: str = Field(description="Who said the first of two words, so that it takes another one; empty: nobody.")


class EvidenceRow(Shape):
    """What shows that it is so."""

    what: str
    seq: int | None = Field(description="The event of the run's journal.")
    wait: UUID | None
    run: UUID | None
    at: datetime | None
    until: datetime | None


class OfferRow(Shape):
    """One act on the run, and whether whoever asked may do it now."""

    act: str
    subject: str = Field(description="Which of several: a wait, a name; empty: there is one.")
    allowed: bool
    role: str = Field(description="Under which of the caller's roles.")
    method: str
    path: str
    body: dict[str, Any] = Field(description="The JSON schema of what is sent.")
    code: str = Field(description="The problem that it would be answered with now; empty: none.")
    why_not: str


class WhyRow(Shape):
    """Why a run doesn't move, or what does."""

    run: UUID
    state: State
    seq: int | None = Field(description="The journal's last event, as of which all this is; null: its head is lost.")
    cause: Cause
    sentence: str
    also: str = Field(description="What else is the matter; empty: nothing.")
    since: datetime | None
    until: datetime | None
    who: WhoRow
    evidence: list[EvidenceRow]
    acts: list[OfferRow]


def why_row(seen: Seen, found: Why) -> WhyRow:
    """The answer, as the API says it."""
    return WhyRow.of(
        found,
        run=seen.run.pk,
        state=seen.run.state,
        seq=seen.head.seq if seen.head is not None else None,
        who=WhoRow.of(found.who, roles=list(found.who.roles)),
        evidence=[EvidenceRow.of(one) for one in found.evidence],
        acts=[OfferRow.of(one, allowed=one.is_allowed, body=one.schema) for one in found.acts],
    )


class RunWhy(ApiView):
    roles = READ

    @described("Why a run doesn't move, and what may be done", WhyRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        seen = look_at(run_id)
        return Response(why_row(seen, why(seen, Reader(self.by, roles(request.user)))))
