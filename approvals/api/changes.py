"""Changes of rules that wait for a second person, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.notices import OrAdmin
from approvals.changes import listed
from ledger.four_eyes import changes, guards
from ledger.four_eyes.guards import GuardsBody
from ledger.models import RuleChange
from ledger.web.api_base import ApiView, Query, described, read_body
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Page, Shape
from runs.services.bodies import SteerBody


class ToldRow(Shape):
    """A record that it would leave."""

    action: str
    subject: str
    queue: str
    before: dict[str, Any]
    after: dict[str, Any]


class RuleChangeRow(Shape):
    """A change that was proposed."""

    id: UUID
    family: str
    act: str = Field(description="The service, by the name of its function.")
    told: list[ToldRow] = Field(description="What its records would have said when it was proposed.")
    why: str
    by: str
    made_at: datetime
    state: RuleChange.State
    ended_by: str
    ended_at: datetime | None
    ended_why: str
    is_late: bool = Field(description="Too old to be put in force.")
    is_genuine: bool = Field(description="false: not put on record by this installation; nothing is done by it.")
    may_agree: bool = Field(description="Whether you may be its second person.")


class RuleChangePage(Page):
    results: list[RuleChangeRow]


class GuardRow(Shape):
    """A kind of rules."""

    family: str
    words: str
    needs_two: bool


class GuardsRow(Shape):
    """Which rules two people change."""

    families: list[GuardRow]
    is_damaged: bool = Field(description="Set past this installation: two people change all.")


class Changes(ApiView):
    """The newest changes, the open ones first."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("List proposed changes of rules", RuleChangePage, query=("state",))
    def get(self, request: Request) -> Response:
        query = Query(request, "state")
        state = query.choice("state", RuleChange.State.values) or ""
        rows = [row_of(each) for each in listed.newest(request.user, state=state)]
        return Response({"results": rows, "next": None})


class OneChange(ApiView):
    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("A proposed change", RuleChangeRow)
    def get(self, request: Request, change_id: UUID) -> Response:
        Query(request)
        return Response(row_of(listed.one(changes.find(change_id), request.user)))


class ChangeAct(ApiView):
    """Put it in force, refuse it, withdraw it: `action` comes from the route."""

    permission_classes = [OrAdmin]
    roles = {"POST": (OPERATOR, AUDITOR)}
    action = "apply"

    @described("Agree to a change, refuse or withdraw it", RuleChangeRow, body=SteerBody)
    def post(self, request: Request, change_id: UUID) -> Response:
        changes.find(change_id)
        body = read_body(request, SteerBody)
        ACTS[self.action](change_id, by=self.by, justification=body.justification)
        return Response(row_of(listed.one(changes.find(change_id), request.user)))


ACTS = {"apply": changes.apply, "refuse": changes.refuse, "withdraw": changes.withdraw}


class FourEyesRules(ApiView):
    """Which rules two people change; and, for administrators, saying so."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("Which rules two people change", GuardsRow)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response(guards_row())

    @described("Say which rules two people change", GuardsRow, body=GuardsBody, name="four_eyes_update")
    def post(self, request: Request) -> Response:
        guards.require(read_body(request, GuardsBody), by=self.by)
        return Response(guards_row())


def guards_row() -> GuardsRow:
    return GuardsRow(
        families=[GuardRow(family=name, words=words, needs_two=is_on) for name, words, is_on in listed.guards()],
        is_damaged=listed.is_damaged(),
    )


def row_of(shown: listed.Shown) -> RuleChangeRow:
    """A change of the list."""
    told = [ToldRow(**{name: each[name] for name in ToldRow.model_fields}) for each in shown.row.told]
    return RuleChangeRow.of(
        shown.row, told=told, is_late=shown.is_late, is_genuine=shown.is_genuine, may_agree=shown.may_agree
    )
