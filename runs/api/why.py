"""The API's answer to why a run doesn't move, as documented."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.fields import RunId
from ledger.web.roles import roles
from ledger.web.shapes import Shape
from runs.models import State
from runs.queries.why.answer import Why, why
from runs.queries.why.seen import Cause, Reader, Seen, look_at


class WhoRow(Shape):
    """The people or systems that must act before the run continues."""

    kind: Literal["nobody", "system", "outside", "people"] = Field(
        description="nobody: it continues by itself, or has ended. outside: an external system must call back "
        "or send something."
    )
    roles: list[str] = Field(description="For people: those with one of these roles.")
    queue: str = Field(description="Queue that it waits at; empty: none.")
    name: str = Field(description="The question. Untrusted if an agent wrote it.")
    but: str = Field(
        description="Person who gave the first of two verdicts, so another person must give the second; empty: nobody."
    )


class EvidenceRow(Shape):
    """The record that supports a reason."""

    what: str = Field(description="Description of the record.")
    seq: int | None = Field(description="Event in the run's journal.")
    wait: UUID | None = Field(description="Id of the wait; null: none.")
    run: UUID | None = Field(description="Another run that it concerns; null: none.")
    at: datetime | None = Field(description="Time of the record; null: none.")
    until: datetime | None = Field(description="Time until which it applies; null: none.")


class OfferRow(Shape):
    """An action on the run, and whether the caller may take it now."""

    act: str = Field(description="Name of the action.")
    subject: str = Field(
        description="Its object if there are several, such as a wait or a name; empty: there is only one."
    )
    allowed: bool = Field(description="Whether the caller may take it now.")
    role: str = Field(description="The caller's role that allows it.")
    method: str = Field(description="HTTP method.")
    path: str = Field(description="Address to send it to.")
    body: dict[str, Any] = Field(description="JSON schema of the request body.")
    code: str = Field(description="Code of the problem it would return now; empty: none.")
    why_not: str = Field(description="Why it is not allowed now; empty: it is.")


class WhyRow(Shape):
    """The reasons why a run does not progress, or what makes it progress."""

    run: RunId
    state: State = Field(description="State of the run.")
    seq: int | None = Field(
        description="Number of the last journal event when this was computed; null: the run's head is missing."
    )
    cause: Cause = Field(description="Stable code of the reason.")
    sentence: str = Field(description="The reason in one sentence.")
    also: str = Field(description="Further reasons; empty: none.")
    since: datetime | None = Field(description="Time since which it applies; null: unknown.")
    until: datetime | None = Field(description="Time when it ends by itself; null: never, or unknown.")
    who: WhoRow = Field(description="Who must act.")
    evidence: list[EvidenceRow] = Field(description="Records that support the reason.")
    acts: list[OfferRow] = Field(description="Actions on the run.")


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
    """The reasons why a run does not progress, who must act, and which actions the caller may take."""

    roles = READ

    @described("Explain a run's status", WhyRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        seen = look_at(run_id)
        return Response(why_row(seen, why(seen, Reader(self.by, roles(request.user)))))
