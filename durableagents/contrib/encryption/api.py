"""The API of erasures."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from pydantic import Field
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from approvals.queues.who import ADMIN
from durableagents.contrib.encryption import erasure
from durableagents.contrib.encryption.bodies import EraseBody
from ledger.four_eyes.changes import account_of, holds
from ledger.four_eyes.known import SUPERUSER
from ledger.web.api_base import ApiView, described, read_body
from ledger.web.roles import HasRole, actor
from ledger.web.shapes import Shape
from runs.api.once import answered_once


class ErasureRow(Shape):
    """An erased run."""

    run_id: UUID = Field(description="The run.")
    at: datetime = Field(description="When its content was erased.")
    by: str = Field(description="Who erased it.")
    reason: str = Field(description="Why.")
    others: list[UUID] = Field(description="Runs that were erased with it, since they held copies of its content.")
    remains: list[str] = Field(description="Where copies of its content are left.")


class Erases(BasePermission):
    """Allow administrators."""

    message = "Only an administrator may erase the content of a run."

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.user.is_authenticated and holds(account_of(actor(request, ADMIN)), SUPERUSER):
            view.acting_role = ADMIN
            return True
        return HasRole().has_permission(request, view)  # none has it


class RunErase(ApiView):
    """Erase the content of a run that has ended, for administrators. Its data key is destroyed: nobody can read its
    payloads any more, also in later backups. What happened, when and by whom stays, and the chain still verifies."""

    permission_classes = [Erases]
    roles = {"POST": ()}

    @described("Erase a run's content", ErasureRow, body=EraseBody, headers=("Idempotency-Key",))
    def post(self, request: Request, run_id: UUID) -> HttpResponse:
        body = read_body(request, EraseBody)

        def act() -> tuple[int, ErasureRow]:
            done = erasure.erase(run_id, with_children=body.with_children, by=self.by, justification=body.justification)
            others, remains = list(done.others), list(done.remains)
            return 200, ErasureRow.of(done.entry, others=others, remains=remains)

        return answered_once(request, {"run": str(run_id), "act": "erase", "body": request.data}, act)
