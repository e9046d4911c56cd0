"""Where a run stands, and what a patch of its state would make of it. What is handed is sent with the act that lets the
run go on."""

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
    """One value of the state that the patch makes another one."""

    path: str
    before: Any = Field(description="null: there was none.")
    after: Any = Field(description="null: there is none.")


class SeenRow(Shape):
    """The state of the run that was looked at, to be sent with what is handed."""

    seq: int
    head: str


class ContextRow(Shape):
    """Where a run stands that something may be handed to."""

    seen: SeenRow
    node: str = Field(description="The node that takes it over.")
    visit: str = Field(description="Its visit: generation and number.")
    place: int = Field(
        description="The call of the node's own line after which it does; -1: as it is entered; 0: before it is."
    )
    open: list[str] = Field(description="Calls without an outcome, which keep what they were made with.")
    state: dict[str, Any] = Field(description="The state that the node has there.")
    after: dict[str, Any] | None = Field(description="The state after the patch; null: none was sent.")
    changes: list[ChangeRow]
    hears: bool = Field(description="Whether the agent asks models, which hear a message.")


class RunContext(ApiView):
    """What would be made of a run by what is handed to it. Nothing is changed."""

    roles = {"POST": (OPERATOR,)}

    @described("Look what would be made of a run by what is handed to it", ContextRow, body=LookBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        must_read(run_id)
        body = read_body(request, LookBody)
        return Response(_row(look(run_id, patch=body.patch, message=body.message)))


def _row(found: Look) -> dict[str, Any]:
    stands, made = found.stands, found.made
    changes = [{"path": path, "before": was, "after": now} for path, was, now in made.lines] if made else []
    return ContextRow.of(
        stands,
        seen={"seq": found.seq, "head": found.head},
        open=list(stands.open),
        after=None if made is None else made.state,
        changes=changes,
        hears=bool(found.agent.assistants),
    ).shown()
