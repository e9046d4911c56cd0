"""The API of rule changes that need a second person."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.permissions import OrAdmin
from durableagents.contrib.change_control import services, setting
from durableagents.contrib.change_control.models import RuleChange
from durableagents.contrib.change_control.queries import (
    GuardsRow,
    RuleChangeRow,
    change_row,
    guards_row,
    list_changes,
)
from durableagents.contrib.change_control.setting import GuardsBody
from ledger.web.api_base import ApiView, Query, described, read_body
from ledger.web.fields import Rows
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Page
from runs.services.bodies import SteerBody


class RuleChangePage(Page):
    results: Rows[RuleChangeRow]


class Changes(ApiView):
    """The newest proposed changes, open ones first."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("List proposed changes", RuleChangePage, query=("state",))
    def get(self, request: Request) -> Response:
        query = Query(request, "state")
        state = query.choice("state", RuleChange.State.values) or ""
        return Response({"results": list_changes(request.user, state=state), "next": None})


class OneChange(ApiView):
    """One proposed change."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("Get a proposed change", RuleChangeRow)
    def get(self, request: Request, change_id: UUID) -> Response:
        Query(request)
        return Response(change_row(services.find(change_id), request.user))


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
        services.find(change_id)
        body = read_body(request, SteerBody)
        ACTS[self.action](change_id, by=self.by, justification=body.justification)
        return Response(change_row(services.find(change_id), request.user))


ACTS = {"apply": services.apply, "refuse": services.refuse, "withdraw": services.withdraw}


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
        setting.require(read_body(request, GuardsBody), by=self.by)
        return Response(guards_row())
