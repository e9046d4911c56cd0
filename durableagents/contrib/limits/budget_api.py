"""Create, list, change and switch off shared budgets, and list those of a run."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from durableagents.contrib.limits import shared_budgets
from durableagents.contrib.limits.budget_queries import (
    SharedBudgetRow,
    find_visible,
    list_budgets,
    of_run,
    row_of,
    rows_of,
)
from durableagents.contrib.limits.shared_budgets import SharedBudgetBody, SharedBudgetChangeBody
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import Rows
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Page
from runs.api.once import answered_once
from runs.services import lifecycle
from runs.services.bodies import SteerBody

_SETTERS = (OPERATOR,)


class SharedBudgetPage(Page):
    results: Rows[SharedBudgetRow]


class SharedBudgets(ApiView):
    """Active shared budgets, newest first."""

    roles = {**READ, "POST": _SETTERS}

    @described("List shared budgets", SharedBudgetPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = list_budgets(limit=query.limit + 1, after=after or None)
        rows = {row.id: row for row in rows_of(found[: query.limit])}
        return query.page(found, lambda budget: {"after": str(budget.pk)}, lambda budget: rows[budget.pk])

    @described(
        "Create a shared budget", SharedBudgetRow, status=201, body=SharedBudgetBody, headers=("Idempotency-Key",)
    )
    def post(self, request: Request) -> HttpResponse:
        """Create a budget shared by all calls in a scope."""
        body = read_body(request, SharedBudgetBody)

        def create() -> tuple[int, SharedBudgetRow]:
            return 201, row_of(shared_budgets.create(body, by=self.by))

        return answered_once(request, {"pool": request.data}, create)


class OneSharedBudget(ApiView):
    """One shared budget with its use and waiting calls."""

    versioned = True
    roles = {**READ, "POST": _SETTERS}

    @described("Get a shared budget", SharedBudgetRow)
    def get(self, request: Request, budget_id: int) -> Response:
        Query(request)
        return Response(row_of(find_visible(budget_id)))

    @described(
        "Update a shared budget",
        SharedBudgetRow,
        body=SharedBudgetChangeBody,
        name="shared_budgets_update",
        headers=("If-Match",),
    )
    def post(self, request: Request, budget_id: int) -> Response:
        """Change the limit or the name of a shared budget."""
        shared_budgets.find(budget_id)
        body = read_body(request, SharedBudgetChangeBody)
        return Response(row_of(shared_budgets.change(budget_id, body, by=self.by)))


class SharedBudgetOff(ApiView):
    """Switch a shared budget off permanently."""

    roles = {"POST": _SETTERS}

    @described("Switch off a shared budget", SharedBudgetRow, body=SteerBody)
    def post(self, request: Request, budget_id: int) -> Response:
        shared_budgets.find(budget_id)
        body = read_body(request, SteerBody)
        return Response(row_of(shared_budgets.switch_off(budget_id, by=self.by, justification=body.justification)))


class SharedBudgetsOfRun(ApiView):
    """Shared budgets that cover the run or were charged for it, all on one page."""

    roles = READ

    @described("List a run's shared budgets", SharedBudgetPage)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        return Response({"results": of_run(lifecycle.find(run_id).pk), "next": None})
