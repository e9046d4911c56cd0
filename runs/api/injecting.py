"""API to preview a patch or a message for a run. The patch or message itself is sent with a resume or retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import ApiView, described, read_body
from ledger.web.roles import OPERATOR
from ledger.web.seeing.payloads import must_read
from ledger.web.shapes import Shape
from runs.services import lifecycle
from runs.services.injecting import Look, LookBody, look


class ChangeRow(Shape):
    """One value of the state that the patch changes."""

    path: str = Field(description="Path of the value in the state.")
    before: Any = Field(description="Null: no value before.")
    after: Any = Field(description="Null: no value afterwards.")


class SeenRow(Shape):
    """The run's state that the caller has read. Send this with the patch or message."""

    seq: int = Field(description="Number of the last journal event.")
    head: str = Field(description="Hash of that event.")


class ContextRow(Shape):
    """The point at which a patch or message would be applied to a run."""

    seen: SeenRow = Field(description="State of the run on which this is based.")
    node: str = Field(description="Node that receives it.")
    visit: str = Field(description="Generation and number of the node's visit.")
    place: int = Field(
        description="Number of the node's call after which it is applied; 0: before the first call; -1: "
        "when the node is entered."
    )
    open: list[str] = Field(description="Calls without an outcome; they keep their original arguments.")
    state: dict[str, Any] = Field(description="State of the node at that point.")
    after: dict[str, Any] | None = Field(description="State after the patch; null if no patch was sent.")
    changes: list[ChangeRow] = Field(description="Values that the patch changes.")
    hears: bool = Field(description="Whether the agent uses models, which receive a message.")


class RunContext(ApiView):
    """Preview the effect of a patch or message on a run. Nothing is changed."""

    roles = {"POST": (OPERATOR,)}

    @described("Preview context for a run", ContextRow, body=LookBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        must_read(run_id)
        body = read_body(request, LookBody)
        return Response(_row(look(run_id, patch=body.patch, message=body.message)))


def _row(found: Look) -> dict[str, Any]:
    position, made = found.stands, found.made
    changes = [{"path": path, "before": was, "after": now} for path, was, now in made.lines] if made else []
    return ContextRow.of(
        position,
        seen={"seq": found.seq, "head": found.head},
        open=list(position.open),
        after=None if made is None else made.state,
        changes=changes,
        hears=bool(found.agent.assistants),
    ).shown()
