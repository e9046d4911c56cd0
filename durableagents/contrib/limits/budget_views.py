"""The page of shared budgets: their state and waiting calls, and forms to create, change and switch off budgets."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse

from durableagents.contrib.limits.budget_queries import RESOURCES, SCOPES, list_budgets, rows_of
from durableagents.contrib.limits.models import SharedBudget
from durableagents.contrib.limits.shared_budgets import MAX_BUDGETS
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_forms import Refused
from ledger.web.roles import OPERATOR, roles


class SharedBudgetsPage(FormPage):
    """The active shared budgets, newest first."""

    template = "limits/shared_budgets.html"
    section = "shared_budgets"

    def tell(self, request: HttpRequest, refused: Refused | None = None, budget_id: int | None = None) -> HttpResponse:
        """Show the page, with the errors of a refused form next to its budget."""
        context: dict[str, Any] = {
            "budgets": rows_of(list_budgets(limit=MAX_BUDGETS)),
            "refused_at": budget_id,
            "may_set": OPERATOR in roles(request.user),
            "scopes": SCOPES,
            "resources": RESOURCES,
            "periods": SharedBudget.Period.values,
            "typed": refused.typed if refused is not None and budget_id is None else {"zone": "UTC", "period": "month"},
        }
        return self.show_forms(request, context, refused)


class SharedBudgetAct(Act, SharedBudgetsPage):
    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    page = "shared_budgets"
