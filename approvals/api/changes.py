"""Changes of rules that wait for a second person, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.permissions import OrAdmin
from approvals.changes import listed
from ledger.four_eyes import changes, guards
from ledger.four_eyes.guards import GuardsBody
from ledger.models import RuleChange
from ledger.web.api_base import ApiView, Query, described, read_body
from ledger.web.fields import Rows
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Page, Shape
from runs.services.bodies import SteerBody


class ToldRow(Shape):
    """A record that the change would write."""

    action: str = Field(description="Action that the record names.")
    subject: str = Field(description="Object of the action.")
    queue: str = Field(description="Queue that it concerns; empty: none.")
    before: dict[str, Any] = Field(description="Values before the change.")
    after: dict[str, Any] = Field(description="Values after the change.")


class RuleChangeRow(Shape):
    """A proposed change."""

    id: UUID = Field(description="Id of the proposed change.")
    family: str = Field(description="Kind of rules that it changes.")
    act: str = Field(description="Name of the service function that it calls.")
    told: list[ToldRow] = Field(description="Records that it would have written when it was proposed.")
    why: str = Field(description="Justification of the person who proposed it.")
    by: str = Field(description="Person who proposed it.")
    made_at: datetime = Field(description="Time when it was proposed.")
    state: RuleChange.State = Field(description="State of the proposal.")
    ended_by: str = Field(description="Person who applied, refused or withdrew it; empty: it is open.")
    ended_at: datetime | None = Field(description="Time when it was applied, refused or withdrawn.")
    ended_why: str = Field(description="Justification given at its end; empty: it is open.")
    is_late: bool = Field(description="Whether it is too old to be applied.")
    is_authentic: bool = Field(description="False: not recorded by this installation, so it can't be applied.")
    may_agree: bool = Field(description="Whether you may be the second person.")


class RuleChangePage(Page):
    results: Rows[RuleChangeRow]


class GuardRow(Shape):
    """A kind of rules that may need two people to change."""

    family: str = Field(description="Name of the kind of rules.")
    words: str = Field(description="Its description for people.")
    needs_two: bool = Field(description="Whether two people must change these rules.")


class GuardsRow(Shape):
    """The rules that two people must change."""

    families: list[GuardRow] = Field(description="All kinds of rules that can need two people.")
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
        about={
            "apply": "Apply a change that another person proposed.",
            "refuse": "Refuse a change that another person proposed. Nothing changes.",
            "withdraw": "Withdraw a change that you proposed. Nothing changes.",
        },
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        changes.find(change_id)
        body = read_body(request, SteerBody)
        ACTS[self.action](change_id, by=self.by, justification=body.justification)
        return Response(row_of(listed.one(changes.find(change_id), request.user)))


ACTS = {"apply": changes.apply, "refuse": changes.refuse, "withdraw": changes.withdraw}


class FourEyesRules(ApiView):
    """The rules that two people must change."""

    permission_classes = [OrAdmin]
    versioned = True
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("Get the four-eyes rules", GuardsRow)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response(guards_row())

    @described("Set the four-eyes rules", GuardsRow, body=GuardsBody, name="four_eyes_update", headers=("If-Match",))
    def post(self, request: Request) -> Response:
        """Set which rules two people must change. Administrators only."""
        guards.require(read_body(request, GuardsBody), by=self.by)
        return Response(guards_row())


def guards_row() -> GuardsRow:
    return GuardsRow(
        families=[GuardRow(family=name, words=words, needs_two=is_on) for name, words, is_on in listed.guards()],
        is_damaged=listed.is_damaged(),
    )


def row_of(shown: listed.Shown) -> RuleChangeRow:
    """Return the row of a proposed change."""
    told = [ToldRow(**{name: each[name] for name in ToldRow.model_fields}) for each in shown.row.told]
    return RuleChangeRow.of(
        shown.row, told=told, is_late=shown.is_late, is_authentic=shown.is_authentic, may_agree=shown.may_agree
    )
