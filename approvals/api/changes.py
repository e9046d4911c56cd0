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
    """A record that the change would write."""

    action: str
    subject: str
    queue: str
    before: dict[str, Any]
    after: dict[str, Any]


class RuleChangeRow(Shape):
    """A proposed change."""

    id: UUID
    family: str
    act: str = Field(description="Name of the service function that it calls.")
    told: list[ToldRow] = Field(description="Records that it would have written when it was proposed.")
    why: str
    by: str
    made_at: datetime
    state: RuleChange.State
    ended_by: str
    ended_at: datetime | None
    ended_why: str
    is_late: bool = Field(description="Whether it is too old to be applied.")
    is_genuine: bool = Field(description="False: not recorded by this installation, so it can't be applied.")
    may_agree: bool = Field(description="Whether you may be the second person.")


class RuleChangePage(Page):
    results: list[RuleChangeRow]


class GuardRow(Shape):
    """A kind of rules that may need two people to change."""

    family: str
    words: str
    needs_two: bool


class GuardsRow(Shape):
    """The rules that two people must change."""

    families: list[GuardRow]
    is_damaged: bool = Field(
        description="The setting was changed outside this installation, so all rules need two people."
    )


class Changes(ApiView):
    """The newest proposed changes, open ones first."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("List proposed changes", RuleChangePage, query=("state",))
    def get(self, request: Request) -> Response:
        query = Query(request, "state")
        state = query.choice("state", RuleChange.State.values) or ""
        rows = [row_of(each) for each in listed.newest(request.user, state=state)]
        return Response({"results": rows, "next": None})


class OneChange(ApiView):
    """One proposed change."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("Get a proposed change", RuleChangeRow)
    def get(self, request: Request, change_id: UUID) -> Response:
        Query(request)
        return Response(row_of(listed.one(changes.find(change_id), request.user)))


class ChangeAct(ApiView):
    """Apply, refuse or withdraw a proposed change. Applying and refusing need a second person."""

    permission_classes = [OrAdmin]
    roles = {"POST": (OPERATOR, AUDITOR)}
    action = "apply"

    @described(
        {
            "apply": "Apply a proposed change",
            "refuse": "Refuse a proposed change",
            "withdraw": "Withdraw a proposed change",
        },
        RuleChangeRow,
        body=SteerBody,
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        changes.find(change_id)
        body = read_body(request, SteerBody)
        ACTS[self.action](change_id, by=self.by, justification=body.justification)
        return Response(row_of(listed.one(changes.find(change_id), request.user)))


ACTS = {"apply": changes.apply, "refuse": changes.refuse, "withdraw": changes.withdraw}


class FourEyesRules(ApiView):
    """The rules that two people must change. Administrators set them with POST."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("Get the four-eyes rules", GuardsRow)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response(guards_row())

    @described("Set the four-eyes rules", GuardsRow, body=GuardsBody, name="four_eyes_update")
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
