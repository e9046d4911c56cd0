"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.limits import api, budget_api, services, shared_budgets, views
from durableagents.contrib.limits.budget_views import SharedBudgetAct, SharedBudgetsPage
from durableagents.contrib.limits.shared_budgets import SharedBudgetBody, SharedBudgetChangeBody
from ledger.web.page_acts import decimal

api_urls = [
    path("limits", api.Limits.as_view(), name="api-limits"),
    path("limits/reset", api.SteerLimit.as_view(action="reset"), name="api-limit-reset"),
    path("limits/open", api.SteerLimit.as_view(action="open"), name="api-limit-open"),
    path("limits/close", api.SteerLimit.as_view(action="close"), name="api-limit-close"),
    path("shared-budgets", budget_api.SharedBudgets.as_view(), name="api-shared-budgets"),
    path("shared-budgets/<int:budget_id>", budget_api.OneSharedBudget.as_view(), name="api-shared-budget"),
    path("shared-budgets/<int:budget_id>/off", budget_api.SharedBudgetOff.as_view(), name="api-shared-budget-off"),
    path(
        "runs/<uuid:run_id>/shared-budgets",
        budget_api.SharedBudgetsOfRun.as_view(),
        name="api-run-shared-budgets",
    ),
]

_OPENED = "Breaker opened. The circuit breaker stays open until someone closes it."
_RESET = views.LimitAct.as_view(service=services.reset_limit, done="Limit reset.")
_OPEN = views.LimitAct.as_view(service=services.open_breaker, done=_OPENED)
_CLOSE = views.LimitAct.as_view(service=services.close_breaker, done="Breaker closed.")
_NEW = {"body": SharedBudgetBody, "reads": {"limit": decimal}, "done": "Shared budget created."}
_CHANGE = {"body": SharedBudgetChangeBody, "reads": {"limit": decimal, "if_limit": decimal}, "done": "Limit saved."}
_CREATE_BUDGET = SharedBudgetAct.as_view(service=shared_budgets.create, act="budget", **_NEW)
_CHANGE_BUDGET = SharedBudgetAct.as_view(service=shared_budgets.change, act="limit", **_CHANGE)
_SWITCH_OFF = SharedBudgetAct.as_view(service=shared_budgets.switch_off, act="off", done="Shared budget switched off.")

console_urls = [
    path("limits", views.LimitsPage.as_view(), name="limits"),
    path("limits/settings", views.LimitSettings.as_view(), name="limit_settings"),
    path("limits/resets", _RESET, name="limit_resets"),
    path("limits/openings", _OPEN, name="breaker_openings"),
    path("limits/closings", _CLOSE, name="breaker_closings"),
    path("shared-budgets", SharedBudgetsPage.as_view(), name="shared_budgets"),
    path("shared-budgets/new", _CREATE_BUDGET, name="new_shared_budget"),
    path("shared-budgets/<int:budget_id>/limits", _CHANGE_BUDGET, name="shared_budget_limits"),
    path("shared-budgets/<int:budget_id>/closings", _SWITCH_OFF, name="shared_budget_closings"),
]
