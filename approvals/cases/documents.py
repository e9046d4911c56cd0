"""A case's documents: the originals as files, their pages as pictures. For whoever reads what is asked, and nobody
else."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from approvals.documents import served
from approvals.queues.sight import read_one
from ledger.errors import RecordDamaged
from ledger.web.downloads import json_file
from ledger.web.page_base import Page
from ledger.web.roles import roles
from runs.engine.gate.documents import Named


def asked_with(approval_id: UUID, n: int, user: Any) -> Named:
    """The `n`-th document of a question, for a user who reads what is asked. Raises NotFound, PayloadsHidden,
    NotShown."""
    approval = read_one(approval_id, roles(user))
    return served.document_in(approval_id, bytes(approval.plan), n)


class Original(Page):
    """One document, as it was given."""

    section = "inbox"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, approval_id: UUID, n: int) -> HttpResponse:
        return served.original(asked_with(approval_id, n, request.user))


class Plan(Page):
    """What a decision binds: all of what is asked, with its evidence."""

    section = "inbox"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        approval = read_one(approval_id, roles(request.user))
        plan = approval.planned()
        if plan is None:
            raise RecordDamaged(approval.run_id, "a plan that can be read")
        return json_file(plan, f"{approval_id}-plan.json")


class Picture(Page):
    """One page of a document."""

    section = "inbox"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, approval_id: UUID, n: int, page: int) -> HttpResponse:
        return served.picture(asked_with(approval_id, n, request.user), page)
