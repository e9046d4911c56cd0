"""The API of erasures."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.queues.who import ADMIN
from durableagents.contrib.encryption import erasure
from durableagents.contrib.encryption.bodies import EraseAllBody, EraseBody
from durableagents.contrib.encryption.finding import ErasableRun, find_runs
from ledger.change_control import SUPERUSER, account_of, holds
from ledger.verification.archives import Sought
from ledger.web.api_base import ApiView, Query, described, read_body
from ledger.web.cursors import closed
from ledger.web.fields import Rows, RunId
from ledger.web.roles import AUDITOR, OPERATOR, HasRole, actor
from ledger.web.shapes import Page, Shape
from runs.api.once import answered_once

_SEARCHED = ("business_key", "tag", "agent")
_KEY, _TAG, _AGENT = (
    OpenApiParameter(name, str, "query", description=f"Only runs with this {said}.")
    for name, said in zip(_SEARCHED, ("business key", "tag", "agent, without version"), strict=True)
)


class ErasureRow(Shape):
    """An erased run."""

    run_id: UUID = Field(description="The run.")
    at: datetime = Field(description="Time when its content was erased.")
    by: str = Field(description="Who erased it.")
    reason: str = Field(description="Why.")
    others: list[UUID] = Field(
        description="Runs that were erased together with it, because they held copies of its content."
    )
    remains: list[str] = Field(description="Where copies of its content are left.")


class ListedRunRow(Shape):
    """A run in the database or an archive."""

    run_id: RunId
    agent: str = Field(description="Name of the agent.")
    version: str = Field(description="Version of the agent.")
    state: str = Field(description="State of the run.")
    business_key: str | None = Field(description="Business key; null: none.")
    created_at: datetime = Field(description="Time of the start.")
    where: Literal["database", "archive", "deleted"] = Field(description="Location of its rows.")
    erased_at: datetime | None = Field(description="Time when its content was erased; null if it was not erased.")
    kept: str | None = Field(description="Why its content can't be erased now; null if it can be, or already was.")


class ListedRunPage(Page):
    results: Rows[ListedRunRow]


class ErasedRunsRow(Shape):
    """The runs whose content this request erased."""

    results: list[ErasureRow] = Field(description="One entry for each named run that had not been erased before.")


class Erases(BasePermission):
    """Allow administrators."""

    message = "Only an administrator may erase the content of a run."

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.user.is_authenticated and holds(account_of(actor(request, ADMIN)), SUPERUSER):
            view.acting_role = ADMIN
            return True
        return HasRole().has_permission(request, view)  # no role gives this right


class RunErase(ApiView):
    """Erase the content of a run that has ended, for administrators. Its data key is destroyed: nobody can read its
    payloads any more, not even in later backups. The record of what happened, when and by whom stays, and the hash
    chain still verifies."""

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


class Erasures(ApiView):
    """Runs in the database and in archives by business key, tag or agent; erases several of them."""

    permission_classes = [Erases]
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("List runs and archived runs", ListedRunPage, query=(_KEY, _TAG, _AGENT, "cursor", "limit"))
    def get(self, request: Request) -> Response:
        """List all matching runs, newest first. Give at least one condition."""
        query = Query(request, *_SEARCHED, "cursor")
        sought = Sought(**{name: query.text(name) or "" for name in _SEARCHED}, before=query.moment())
        found = find_runs(sought, query.limit + 1)
        return query.page(found, lambda row: {"cursor": closed(row.run.created_at, row.run.run_id)}, _listed_row)

    @described("Erase the content of several runs", ErasedRunsRow, body=EraseAllBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Erase all of the named runs or, if one must be kept, none.

        Archived runs are restored in the same transaction.
        """
        body = read_body(request, EraseAllBody)

        def act() -> tuple[int, ErasedRunsRow]:
            done = erasure.erase_all(
                body.runs, with_children=body.with_children, by=self.by, justification=body.justification
            )
            rows = [ErasureRow.of(each.entry, others=list(each.others), remains=list(each.remains)) for each in done]
            return 200, ErasedRunsRow(results=rows)

        return answered_once(request, {"act": "erase", "body": request.data}, act)


def _listed_row(found: ErasableRun) -> ListedRunRow:
    return ListedRunRow.of(
        found.run,
        business_key=found.run.business_key or None,
        where=found.where,
        erased_at=found.erased_at,
        kept=None if found.erased_at else found.kept or None,
    )
