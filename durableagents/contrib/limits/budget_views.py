"""The page of shared budgets: state, refill, waiting calls; creating, changing and switching off."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.limits import shared_budgets
from durableagents.contrib.limits.budget_queries import RESOURCES, SCOPES, list_budgets, rows_of
from durableagents.contrib.limits.models import SharedBudget
from durableagents.contrib.limits.shared_budgets import MAX_BUDGETS, SharedBudgetBody, SharedBudgetChangeBody
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs.services.bodies import SteerBody


class SharedBudgetsPage(Page):
    """The active shared budgets, newest first."""

    template = "limits/shared_budgets.html"
    section = "shared_budgets"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None, at: int | None = None) -> HttpResponse:
        """Show the page, with a refused form at its budget."""
        context: dict[str, Any] = {
            "budgets": rows_of(list_budgets(limit=MAX_BUDGETS)),
            "refused": refused,
            "refused_at": at,
            "may_set": OPERATOR in roles(request.user),
            "scopes": SCOPES,
            "resources": RESOURCES,
            "periods": SharedBudget.Period.values,
            "typed": refused.typed if refused is not None and at is None else {"zone": "UTC", "period": "month"},
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class _Form(SharedBudgetsPage):
    """A form of the page."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]
    name: ClassVar[str] = ""
    done: ClassVar[str] = ""

    def post(self, request: HttpRequest, budget_id: int | None = None) -> HttpResponse:
        form = Sent(request)
        try:
            self.act(form, budget_id)
        except DurableAgentsError as error:
            return self.tell(request, Refused(self.name, error, form.kept), budget_id)
        messages.success(request, self.done, extra_tags="ok")
        return redirect("shared_budgets")

    def act(self, form: Sent, budget_id: Any) -> None:
        """Do what the form asks for. Raises DurableAgentsError."""
        raise NotImplementedError

    @property
    def by(self) -> Any:
        return self.acting(self.request, prefer=(OPERATOR,))


class NewSharedBudget(_Form):
    name, done = "budget", "Shared budget created."

    def act(self, form: Sent, budget_id: Any) -> None:
        shared_budgets.create(form.read(SharedBudgetBody, limit=_number), by=self.by)


class SharedBudgetLimits(_Form):
    name, done = "limit", "Limit saved."

    def act(self, form: Sent, budget_id: Any) -> None:
        body = form.read(SharedBudgetChangeBody, limit=_number, if_limit=_number)
        shared_budgets.change(budget_id, body, by=self.by)


class SharedBudgetClosings(_Form):
    name, done = "off", "Shared budget switched off."

    def act(self, form: Sent, budget_id: Any) -> None:
        shared_budgets.switch_off(budget_id, by=self.by, justification=form.read(SteerBody).justification)


def _number(text: str) -> Any:
    """Return a limit; other text unchanged, for the body to refuse."""
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return text
