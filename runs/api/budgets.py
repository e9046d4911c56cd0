"""API to raise a run's budget, set its models, and list model prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import OPERATOR, roles
from runs.api.present import load_run_row, price_row
from runs.api.schemas import AskedPage, AskedRow, PricePage, RunRow
from runs.services import authority, lifecycle, thinking
from runs.services.bodies import BudgetBody, ModelsBody
from runs.services.budgets import prices, raising
from runs.services.budgets.starting import most_of


class RunBudget(ApiView):
    """Set the caps of a run. Besides operators, the role in charge of the budget queue may do so."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {"POST": authority.RAISERS}

    @described("Set a run's budget", RunRow, body=BudgetBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        run = lifecycle.find(run_id)
        role = authority.role_to(authority.BUDGET, run, held=roles(request.user), person=request.user.pk)
        body = read_body(request, BudgetBody)
        by = replace(self.by, role=role)
        most = most_of(request.auth)
        raising.set_budget(run_id, body.budget, by=by, justification=body.justification, most=most, seen=body.if_caps)
        return Response(load_run_row(run_id))


class RunModels(ApiView):
    """Models that a run uses: those chosen when it first used a model, unless others were set later."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {**READ, "POST": (OPERATOR,)}

    @described("List a run's models", AskedPage)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        lifecycle.find(run_id)
        return self._now(run_id)

    @described("Set a run's models", AskedPage, body=ModelsBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        """Set the models that a run uses from now on."""
        body = read_body(request, ModelsBody)
        thinking.move(run_id, body.models, assistant=body.assistant, by=self.by, justification=body.justification)
        return self._now(run_id)

    def _now(self, run_id: UUID) -> Response:
        rows = [AskedRow.of(model) for model in thinking.asked_by(run_id)]
        return Response({"results": rows, "next": None})


class Prices(ApiView):
    """Current prices of model tokens. The whole list is on one page unless you set a limit."""

    roles = READ

    @described("List prices", PricePage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**31)
        rows = prices.in_force()[after : after + query.limit + 1]
        return query.page(rows, lambda row: {"after": str(after + query.limit)}, price_row)
